"""What an upstream sees of our environment: where things are, never what opens them (the rule: docs/UPSTREAMS.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

_NAMES = frozenset(
    (
        # where programs, homes and temporary files are
        *("PATH", "HOME", "LOGNAME", "USER", "SHELL", "TERM", "COLORTERM", "TMPDIR", "TEMP", "TMP", "TZ"),
        *("LANG", "LANGUAGE"),
        # which certificates to trust
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *("NIX_SSL_CERT_FILE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE"),
        # the screen, the session, the agents that keep keys to themselves
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "BROWSER"),
        *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GNUPGHOME", "WSL_DISTRO_NAME", "WSL_INTEROP"),
        # which cluster, container engine, cloud account: names and files, no keys
        *("KUBECONFIG", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
        *("CONTAINER_HOST", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"),
        *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_SDK_LOAD_CONFIG", "AZURE_CONFIG_DIR"),
        *("AZURE_SUBSCRIPTION_ID", "AZURE_TENANT_ID", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"),
        *("GCLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "PGSERVICEFILE", "PGPASSFILE"),
        # where languages, their version managers and their tools are
        *("NVM_DIR", "NVM_BIN", "VOLTA_HOME", "N_PREFIX", "NODENV_ROOT", "NODENV_VERSION", "PNPM_HOME", "BUN_INSTALL"),
        *("DENO_DIR", "DENO_INSTALL", "PYENV_ROOT", "PYENV_VERSION", "RBENV_ROOT", "RBENV_VERSION", "GEM_HOME"),
        *("JAVA_HOME", "JDK_HOME", "SDKMAN_DIR", "JENV_ROOT", "GRADLE_USER_HOME", "M2_HOME", "MAVEN_HOME"),
        *("GOPATH", "GOROOT", "GOBIN", "GOENV_ROOT", "GOPROXY", "GOPRIVATE", "CARGO_HOME", "RUSTUP_HOME"),
        *("RUSTUP_TOOLCHAIN", "DOTNET_ROOT", "ANDROID_HOME", "ANDROID_SDK_ROOT", "NIX_PATH", "NIX_PROFILES"),
        *("LD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "CHROME_PATH", "PUPPETEER_EXECUTABLE_PATH"),
        # Windows
        *("APPDATA", "LOCALAPPDATA", "HOMEDRIVE", "HOMEPATH", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "WINDIR", "COMSPEC", "USERNAME", "USERPROFILE", "PROGRAMDATA", "PUBLIC"),
        *("ALLUSERSPROFILE", "PROGRAMFILES(X86)", "PROGRAMW6432", "COMMONPROGRAMFILES", "COMPUTERNAME"),
    )
)
_FAMILIES = (
    *("LC_", "XDG_", "ASDF_", "MISE_", "FNM_", "HOMEBREW_", "CLOUDSDK_", "UV_", "PIP_", "PIPX_"),
    *("NPM_CONFIG_", "npm_config_", "YARN_", "COREPACK_", "PLAYWRIGHT_"),
)
"""Of these all pass but what may be a key by its name or value: settings of runners hold passwords, too."""
_STEERING = re.compile(
    r"(?:LD|DYLD|GLIBC|GCONV)_\w+|PATH|PATHEXT|COMSPEC|BASH_ENV|ENV|SHELLOPTS|CLASSPATH|(?:_JAVA|JAVA_TOOL|JDK_JAVA)_OPTIONS"
    r"|NODE_(?:OPTIONS|PATH)|PYTHON(?:PATH|HOME|STARTUP|BREAKPOINT|WARNINGS|USERBASE|EXECUTABLE)|DOTNET_STARTUP_HOOKS"
    r"|(?:PERL5|RUBY)(?:LIB|OPT)|GEM_(?:HOME|PATH)|GIT_(?:SSH|SSH_COMMAND|EXEC_PATH|CONFIG\w*|EXTERNAL_DIFF|PAGER|EDITOR)"
    r"|(?:NPM_CONFIG|YARN|BUN_CONFIG|COREPACK|PIP|PIPX|UV)_\w+|GOPROXY|CARGO_HOME|RUSTUP_HOME",
    re.IGNORECASE,
)


def steers(name: str) -> bool:
    """Whether a variable can change which program code is run, or where it is fetched from."""
    return _STEERING.fullmatch(name) is not None


_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_HERE = ("localhost", "127.0.0.1", "::1")


def safe_environment(environ: Mapping[str, str] | None = None, passed: Iterable[str] = ()) -> dict[str, str]:
    """What an upstream sees of our environment: enough to run, no keys.

    ``passed``: names or patterns (``*`` for any text) of what a person lets through beside. Anything else has to be
    named in the upstream's ``env``.
    """
    environ = os.environ if environ is None else environ
    wanted = [pattern for pattern in passed if pattern]
    kept = {}
    for name, value in environ.items():
        if value.startswith("()") or name.startswith("TOOLSCOUT_"):
            continue  # a shell function exported by an old bash is code, not a value
        if (
            name in _NAMES
            or any(fnmatchcase(name, pattern) for pattern in wanted)
            or (name.startswith(_FAMILIES) and not _may_be_key(name, value))
        ):
            kept[name] = value
    return {**kept, **_proxies(environ)}


def _may_be_key(name: str, value: str) -> bool:
    from toolscout.server.clients.redact import secret_name, secret_value

    return secret_name(name) or secret_value(value) or "@" in value.partition("://")[2].partition("/")[0]


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """The proxies' addresses, unless they carry a user and password, and that this machine is reached without them."""
    kept = {}
    for name in (*_PROXIES, *map(str.lower, _PROXIES)):
        if environ.get(name) and "@" not in environ[name]:
            kept[name] = environ[name]
    excepted = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    return kept | dict.fromkeys(("NO_PROXY", "no_proxy"), without_proxy(excepted)) if kept or excepted else kept


def without_proxy(named: str) -> str:
    """A value of NO_PROXY with this machine in it."""
    hosts = [host.strip() for host in named.split(",") if host.strip()]
    return named if "*" in hosts else ",".join(dict.fromkeys([*hosts, *_HERE]))


def is_here(url: str) -> bool:
    """Whether an address is this machine's own, by its name."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host in _HERE or host.endswith(".localhost") or host.startswith("127.")


def proxy_for(url: str, environ: Mapping[str, str] | None = None) -> str:
    """The name of the variable whose proxy requests to ``url`` go through; empty where they go by themselves."""
    environ = os.environ if environ is None else environ
    parts = urlsplit(url)
    if is_here(url) or _excepted(parts.hostname or "", environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return ""
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if environ.get(variable):
                return variable
    return ""


def _excepted(host: str, no_proxy: str) -> bool:
    hosts = [named.strip().partition(":")[0].lstrip(".") for named in no_proxy.split(",")]
    return any(named and (named == "*" or host == named or host.endswith(f".{named}")) for named in hosts)
