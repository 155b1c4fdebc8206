"""A Ray cluster joined, or started for one run: quietly, and only for who may.

Ray (Moritz et al., OSDI 2018) is an extra, `toolscout[ray]`; nothing here imports it before it is wanted.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, NotAllowed, NotFound

LOCAL = "local"
"""Address of a cluster of one machine that is started for this run and ends with it."""

_KNOCKING = 10.0
_TOLD = 350
"""Characters of what Ray says of one death."""
_PARTS = ("class_name:", "actor_id:", "pid:", "namespace:", "ip:")
_LOCAL_STORE = 128 << 20
"""Bytes of Ray's object store in local mode: what travels is small."""


def check_ray(address: str) -> None:
    """See that Ray is installed and the address is one of a cluster's.

    Raises:
        BadInput: it is an address for Ray's client.
        NotAllowed: Ray is not installed.
    """
    if "://" in address:
        raise BadInput(
            f"{address} is an address for Ray's client.", "Run the command on a machine of the cluster: --ray auto."
        )
    if importlib.util.find_spec("ray") is None:
        raise NotAllowed("Ray is not installed.", 'Install it with: pip install "toolscout[ray]"')


def join_cluster(address: str, ends: ExitStack) -> Any:
    """Ray's module, joined to the cluster, or to one that is started here; left again as ``ends`` closes.

    Nothing is reported to Ray's makers, and no dashboard is started.

    Raises:
        BadInput: the address is none.
        NotFound: no cluster answers there.
    """
    if address not in (LOCAL, "auto"):
        _knock(address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    options: dict[str, Any] = {"address": address}
    if address == LOCAL:
        # The loopback only, and only for who knows the key: whoever reaches a Ray cluster runs code on it.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        folder = tempfile.mkdtemp(prefix="toolscout-ray-")
        ends.callback(shutil.rmtree, folder, True)
        options |= {"include_dashboard": False, "num_cpus": 1, "object_store_memory": _LOCAL_STORE}
        options |= {"_temp_dir": folder}
    import ray
    import ray.exceptions
    import ray.util.scheduling_strategies

    # A thread of Ray's prints what it finds noteworthy, on stdout.
    nowhere = ends.enter_context(Path(os.devnull).open("w"))  # noqa: SIM115
    ends.enter_context(contextlib.redirect_stdout(nowhere))
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise _nobody(address, said.rstrip(".")) from None
    finally:
        signal.signal(signal.SIGTERM, handler)  # Ray puts its own in its place
    ends.callback(ray.shutdown)
    return ray


def _knock(address: str) -> None:
    """See that somebody listens there: Ray would try for minutes."""
    host, sep, port = address.rpartition(":")
    if not sep or not port.isdecimal():
        raise BadInput(f"{address} is no address of a Ray cluster.", "Use HOST:PORT, auto or local.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCKING).close()
    except (OSError, OverflowError) as error:
        raise _nobody(address, str(error)) from None


def _nobody(address: str, why: str) -> NotFound:
    return NotFound(
        f"No Ray cluster can be used at {address}: {why}.",
        "Start one with: ray start --head; set RAY_AUTH_MODE=token where it has a token; or take --ray local.",
    )


def said_by_ray(error: Exception) -> str:
    """What Ray says of a failure, without the names of its own parts."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = " ".join(line for line in lines if not line.startswith(_PARTS)).partition(" Some common causes")[0]
    return told[:_TOLD] or type(error).__name__
