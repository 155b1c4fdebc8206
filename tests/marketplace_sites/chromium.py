"""What tests of the web agent in a real browser need: a Chromium, and settings that lead it to a local site."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from typing import Any

import pytest

from marketplace_sites.base import LocalSite
from toolscout.crawler.agent.browser import find_chromium
from toolscout.crawler.agent.settings import AgentSettings

browser = pytest.mark.skipif(
    importlib.util.find_spec("playwright") is None or find_chromium() is None,
    reason="needs the extra 'crawl' and a Chromium: apt-get install chromium",
)


def first_of(names: Iterable[str]) -> list[Any]:
    """Parameters of a test over several sites: mcpso (or the first) always, the others with the slow tests."""
    names = list(names)
    always = "mcpso" if "mcpso" in names else names[0]
    return [pytest.param(name, marks=() if name == always else pytest.mark.slow) for name in names]


def settings(site: LocalSite, name: str, **more: Any) -> AgentSettings:
    """The agent's settings for a local site: root in a test container has no other way than without the sandbox."""
    return AgentSettings(bases={name: site.base}, unsandboxed=os.geteuid() == 0, page_delay=0.01, page_rest=0.3, **more)
