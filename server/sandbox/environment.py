"""The environment inside a sandbox: what the server is given, and the few things without which nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toolscout.bubblewrap import HOME, PATH
from toolscout.server.upstreams.environment import safe_environment

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def base_environment(network: bool | tuple[str, ...]) -> dict[str, str]:
    """PATH, a home, the locale and time zone; with a network certificates, with all of it passwordless proxies."""
    ours = safe_environment()
    wanted = {"LANG", "TZ", *(name for name in ours if name.startswith("LC_"))}
    if network:
        wanted.update(_CERTIFICATES)
    if network is True:
        wanted.update(_PROXIES, map(str.lower, _PROXIES))
    kept = {name: value for name, value in ours.items() if name in wanted}
    fixed = {"PATH": PATH, "HOME": HOME, "TMPDIR": "/tmp", "USER": "scout", "LOGNAME": "scout", "TERM": "dumb"}
    return {"LANG": "C.UTF-8", **kept, **fixed}


def certificates(env: Mapping[str, str]) -> list[Path]:
    """The files and folders that the certificate variables name, as far as they are there."""
    paths = [Path(env[name]) for name in _CERTIFICATES if env.get(name)]
    return [path for path in paths if path.is_absolute() and path.exists()]
