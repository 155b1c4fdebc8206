"""What tests of the web agent in a real browser need: a Chromium, and settings that lead it to a local site."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest

from marketplace_sites.base import LocalSite
from toolscout.crawler.agent.browser import find_chromium
from toolscout.crawler.agent.settings import AgentSettings

browser = pytest.mark.skipif(
    importlib.util.find_spec("playwright") is None or find_chromium() is None,
    reason="needs the extra 'crawl' and a Chromium: apt-get install chromium",
)


def settings(site: LocalSite, name: str, **more: Any) -> AgentSettings:
    """The agent's settings for a local site: root in a test container has no other way than without the sandbox."""
    return AgentSettings(bases={name: site.base}, unsandboxed=os.geteuid() == 0, page_delay=0.01, page_rest=0.3, **more)
