"""Open files: each client's connection and each upstream's pipes are some, and the usual limit is low."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

_ENOUGH = 4096
_MOST = 65_536


def raise_file_limit() -> int:
    """Allow this process as many open files as it may have, 65,536 at most; returns how many (0: not known).

    Says so where that is few: a server that has none left refuses connections without a word to the client.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = _MOST if hard == unlimited else min(hard, _MOST)
    if soft != unlimited and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            pass
    if soft != unlimited and soft < _ENOUGH:
        logger.warning(
            "Only %d files may be open at once, and each client takes one, each upstream three. Raise the limit "
            "(ulimit -n 65536, or LimitNOFILE= in a systemd unit).",
            soft,
        )
    return _MOST if soft == unlimited else soft
