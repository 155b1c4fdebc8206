"""Settings of the web agent and the marketplaces, each from an environment variable ``TOOLSCOUT_CRAWL_<NAME>``."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class AgentSettings(BaseSettings):
    """Nothing needs to be set: without a model the agent works by each site's own rules, at no price."""

    model_config = SettingsConfigDict(env_prefix="TOOLSCOUT_CRAWL_", extra="ignore")

    model_url: str = ""
    """Base URL of the OpenAI-compatible endpoint that reads pages. Empty: no model."""

    model: str = ""
    """Its model; empty means the first one it lists."""

    model_key: str = Field(default="", repr=False)
    model_timeout: float = 120.0
    price_in: float = 0.0
    """Price of a million prompt tokens, in whatever currency the report shall have."""

    price_out: float = 0.0
    """Price of a million completion tokens."""

    fallback: bool = True
    """Whether a site's own rules take over where the model's answer leads nowhere."""

    browser: str = ""
    """Path of a Chromium. Empty: the system's, else Playwright's own."""

    unsandboxed: bool = False
    """Run Chromium without its sandbox: needed as root, and only wise in a container made for it."""

    page_delay: float = 1.0
    """Least seconds between two pages of one site; a longer Crawl-delay in its robots.txt wins."""

    page_rest: float = 0.5
    """Seconds without a change after which a page has come to rest; more for slow sites."""

    refresh_days: float = 30.0
    """An entry's page is not read again for so many days."""

    queries: list[str] = Field(default_factory=list)
    """Search words for marketplaces that are listed by search; empty: the agent's own. As JSON."""

    bases: dict[str, str] = Field(default_factory=dict)
    """Other base addresses of marketplaces, by name: ``{"mcpso": "http://127.0.0.1:8000"}``. As JSON."""

    keys: dict[str, str] = Field(default_factory=dict, repr=False)
    """API keys of marketplaces, by name. As JSON."""
