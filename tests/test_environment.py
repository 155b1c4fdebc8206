"""What upstreams see of our environment, and which proxies stand before remote ones: real processes, real HTTP."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from forgetful import Forgetful

from toolscout.errors import UpstreamError
from toolscout.server.config import UpstreamConfig
from toolscout.server.upstreams.environment import proxy_for, safe_environment
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings

TINY = Path(__file__).parent / "upstreams" / "tiny.py"
PASSES = [
    *("DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"),
    *("XDG_SESSION_TYPE", "SSH_AUTH_SOCK", "GNUPGHOME", "KUBECONFIG", "DOCKER_HOST"),
    *("DOCKER_CONTEXT", "DOCKER_CONFIG", "AWS_PROFILE", "AWS_REGION", "AWS_CONFIG_FILE"),
    *(
        "CLOUDSDK_CONFIG",
        "CLOUDSDK_ACTIVE_CONFIG_NAME",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_CONFIG_DIR",
        "ASDF_DIR",
    ),
    *("ASDF_DATA_DIR", "MISE_DATA_DIR", "PYENV_ROOT", "NVM_DIR", "VOLTA_HOME"),
    *("FNM_DIR", "PNPM_HOME", "JAVA_HOME", "GOPATH", "CARGO_HOME"),
    *("RUSTUP_HOME", "UV_CACHE_DIR", "UV_DEFAULT_INDEX", "PIP_INDEX_URL", "NPM_CONFIG_REGISTRY"),
    *("npm_config_cache", "PLAYWRIGHT_BROWSERS_PATH", "LC_TIME", "NODE_EXTRA_CA_CERTS"),
]
HELD = {
    "AWS_ACCESS_KEY_ID": "AKIA",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_SESSION_TOKEN": "x",
    "OPENAI_API_KEY": "x",
    "GITHUB_TOKEN": "x",
    "DATABASE_URL": "x",
    "CLOUDSDK_AUTH_ACCESS_TOKEN": "x",
    "NPM_CONFIG__AUTH": "x",
    "npm_config__authToken": "x",
    "UV_INDEX_ACME_PASSWORD": "x",
    "UV_EXTRA_INDEX_URL": "https://bob:word@pypi.example.com/simple",
    "PIP_EXTRA_INDEX_URL": "https://token@pypi.example.com/simple",
    "TOOLSCOUT_MODEL_KEY": "x",
    "ACME_REGION": "x",
    "HTTPS_PROXY": "http://user:word@proxy:1",
}


async def seen_by(settings: Settings) -> dict[str, str]:
    config = UpstreamConfig.stdio("tiny", sys.executable, ["-I", "-S", str(TINY)])
    async with UpstreamPool(settings, lambda: {"tiny": config}) as pool:
        result = await pool.call("tiny", "env", {})
    found: dict[str, str] = json.loads(result.content[0].text)  # type: ignore[union-attr]
    return found


async def test_where_things_are_passes_and_keys_do_not(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PASSES:
        monkeypatch.setenv(name, f"/where/{name.lower()}")
    for name, value in HELD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BASH_FUNC", "() { :; }")
    seen = await seen_by(settings)
    assert [name for name in PASSES if name not in seen] == []
    assert [name for name in HELD if name in seen] == [] and "BASH_FUNC" not in seen


async def test_a_person_lets_more_through(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACME_REGION", "ACME_ZONE", "OTHER"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("TOOLSCOUT_PASS_ENV", "ACME_*, GITHUB_TOKEN")
    given = Settings(home=settings.home)
    assert given.pass_env == ["ACME_*", "GITHUB_TOKEN"]
    seen = await seen_by(given)
    assert {"ACME_REGION", "ACME_ZONE"} <= set(seen) and "OTHER" not in seen
    environ = {"OTHER": "x", "TOOLSCOUT_MODEL_KEY": "x"}
    assert safe_environment(environ, ["*"]) == {"OTHER": "x"}, "but never what is ours"


def test_proxies_pass_with_this_machine_excepted() -> None:
    assert safe_environment({"https_proxy": "http://proxy:3128", "NO_PROXY": "corp.example, localhost"}) == {
        "https_proxy": "http://proxy:3128",
        "NO_PROXY": "corp.example,localhost,127.0.0.1,::1",
        "no_proxy": "corp.example,localhost,127.0.0.1,::1",
    }
    assert safe_environment({}) == {}
    assert safe_environment({"NO_PROXY": "*"})["NO_PROXY"] == "*"


async def test_no_proxy_stands_before_an_upstream_on_this_machine(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = Forgetful()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configs = {
        host: UpstreamConfig.remote(host, f"http://{host}:{server.server_port}/mcp")
        for host in ("127.0.0.1", "localhost", "upstream.invalid")
    }
    try:
        async with UpstreamPool(settings, lambda: configs) as pool:
            await pool.call("127.0.0.1", "go", {})
            await pool.call("localhost", "go", {})
            with pytest.raises(UpstreamError) as caught:
                await pool.call("upstream.invalid", "go", {})
    finally:
        server.shutdown()
        server.server_close()
    assert "the proxy that http_proxy names" in caught.value.hint


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("http://far.example/mcp", "all_proxy"),
        ("https://far.example/mcp", "HTTPS_PROXY"),
        ("https://git.corp.example/mcp", ""),
        ("https://localhost:8443/mcp", ""),
        ("http://app.localhost/mcp", ""),
        ("http://[::1]:8000/mcp", ""),
    ],
)
def test_which_proxy_a_request_goes_through(url: str, variable: str) -> None:
    environ = {"HTTPS_PROXY": "http://p:1", "all_proxy": "http://p:2", "NO_PROXY": ".corp.example,10.0.0.1"}
    assert proxy_for(url, environ) == variable
