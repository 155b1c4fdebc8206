"""Servers that hold in memory what an agent builds up call by call: browsers, shells, notebooks."""

from __future__ import annotations

import re

from toolscout.server.config import UpstreamConfig

STATEFUL_TIMES = 12
"""So many times as long as others they live when nobody uses them."""

_KNOWN = re.compile(
    r"(?<![a-z])(playwright|puppeteer|selenium|webdriver|browser|chrome|chromium|firefox|camoufox|stagehand|appium"
    r"|shell|bash-|terminal|tmux|ssh|desktop-?commander|jupyter|notebook|ipython|repl|gdb|lldb|debugger)",
    re.IGNORECASE,
)


def keeps_state(config: UpstreamConfig) -> bool:
    """Whether its command line says that a server is one of these."""
    names = (w.rpartition("/")[2] if w.startswith(("/", "~", ".")) else w for w in (config.command, *config.args))
    return any(map(_KNOWN.search, names))
