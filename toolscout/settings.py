"""One typed settings object, read from the environment and from ``config.toml`` in the home folder.

A field ``name`` is set by the environment variable ``TOOLSCOUT_NAME`` or, below it, by a line ``name = value`` of the
file. The file is what a client started from the desktop sees, which has no shell's variables.
"""

from __future__ import annotations

import os
import tomllib
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from platformdirs import user_data_path
from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from toolscout.errors import BadInput, StorageError
from toolscout.secret_store import SecretStore

PREFIX = "TOOLSCOUT_"
CONFIG_FILE = "config.toml"
SECRET_SETTINGS = ("encoder_key", "model_key", "auth_token")
"""Those that the file does not hold: they are kept as secrets under their variable's name (`secret_store`)."""

_OFF = frozenset({"off", "0", "false", "no", "none"})
_ON = frozenset({"default", "on", "1", "true", "yes"})

JwtAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448"
]
JWT_ALGORITHMS: tuple[str, ...] = get_args(JwtAlgorithm)
"""Those with a public key: a key set that anybody can read holds no secret to sign with."""


class Settings(BaseSettings):
    """All settings of an installation. Times are in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", allow_inf_nan=False)

    home: Path = Field(default_factory=lambda: user_data_path("toolscout"))
    """Folder of everything Toolscout keeps: catalogue, index, upstream configuration, models. The one setting that
    ``config.toml`` cannot hold: it lies there."""

    database: str = ""
    """Catalogue URL. Empty means SQLite in ``home``; ``postgresql+psycopg://...`` is served by the same code."""

    encoder: str = "default"
    """``default`` (embedded ONNX), a path to an encoder folder, ``st:<model>`` or ``openai:<model>``."""

    encoder_url: str = ""
    """Base URL of an OpenAI-compatible embeddings endpoint, for ``encoder=openai:<model>``."""

    encoder_key: str = Field(default="", repr=False)
    encoder_threads: int = Field(default=1, ge=0)

    pack: str = "default"
    """The built-in catalog of servers that can be installed: ``default`` (the newest of the one that came with
    Toolscout and those fetched since), ``off`` (also ``0``, ``false``, ``no``), or the path of a pack."""

    pack_url: str = ""
    """Where ``toolscout catalog update`` looks for newer packs."""

    pack_keys: Annotated[list[str], NoDecode] = Field(default_factory=list)
    """Further public keys (hex) whose signatures on packs are believed; commas between them."""

    model: str = ""
    """Call generator: a name from ``toolscout model list``; empty means the best one installed, if any."""

    model_url: str = ""
    """Base URL of an OpenAI-compatible chat endpoint (vLLM, Ollama, llama.cpp server, OpenAI). Wins over local."""

    model_prompt: str = ""
    """How the model wants to be asked, where neither its files nor its served name say so: the folder or JSON file of
    its training, or ``style=compact,budget=4000``."""

    model_key: str = Field(default="", repr=False)
    model_timeout: float = Field(default=60.0, gt=0)
    model_context: int = Field(default=4096, ge=1)
    model_threads: int = Field(default=0, ge=0)
    """Threads of the in-process model; 0 means the number of cores."""
    model_temperature: float = Field(default=0.0, ge=0, le=2)
    """0: the likeliest answer, always the same. More is for trials that are to differ (``eval execute --trials``)."""
    model_chooses: bool | None = None
    """Whether the model chooses among the candidates. By default an endpoint's does, and for one in process the encoder
    chooses: among ten tools it is right more often than a model of that size, and the prompt is a tenth as long."""

    max_upstreams: int = Field(default=16, ge=0)
    """Most upstream processes that are kept while nobody uses them; the least recently used one is stopped."""

    upstream_idle: float = Field(default=300.0, ge=0)
    """How long such a process is kept; browsers, shells and the like twelve times as long, and where ``keep_alive`` in
    the entry says so for so many seconds, or always."""
    upstream_start_timeout: float = Field(default=30.0, gt=0)
    upstream_call_timeout: float = Field(default=60.0, gt=0)
    sandbox: Literal["off", "on", "network"] = "off"
    """Sandbox of the upstream processes whose entry in ``mcp.json`` does not say: none, one without files and network,
    or one without files. See docs/SANDBOX.md."""

    share_upstreams: bool | None = None
    """Whether all clients of the HTTP face share the upstreams' processes and sessions, and with them what those hold:
    an open page, a chosen folder. By default they do not, but with several workers, where a client's calls go to any
    of them; an entry of ``mcp.json`` with ``"shared": true`` is shared in any case. See docs/UPSTREAMS.md."""

    pass_env: Annotated[list[str], NoDecode] = Field(default_factory=list)
    """Further environment variables that upstream processes get, names or patterns such as ``ACME_*``; commas between
    them. ``*`` passes all, keys included. What passes without it: docs/UPSTREAMS.md."""

    upstream_concurrency: int = Field(default=32, ge=1)
    """Most calls in flight on one upstream; more wait their turn."""

    max_result_bytes: int = Field(default=10_000_000, ge=1)
    """Largest result relayed to the client; a larger one is an error that says so."""

    auth_token: str = Field(default="", repr=False)
    """Bearer token of the HTTP face; required when it listens beyond loopback."""

    auth_jwks: str = ""
    """URL of the key set that signs JWTs for the HTTP face; wins over ``auth_token``."""

    auth_issuer: str = ""
    auth_audience: str = ""
    """Who makes the JWTs and for whom, as their ``iss`` and ``aud`` have it. Both are required with ``auth_jwks``
    beyond loopback, and where ``public_url`` or ``allowed_hosts`` name the server."""

    auth_algorithm: JwtAlgorithm = "RS256"
    """The one algorithm by which JWTs may be signed."""

    public_url: str = ""
    """Where clients reach the HTTP face through a proxy, such as ``https://tools.example.com``. With ``auth_issuer`` it
    says in the metadata of RFC 9728 where tokens come from; its host is an allowed one. Authentication is required."""

    max_request_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    """Largest request that the HTTP face reads; a larger one gets 413."""

    max_buffered_bytes: int = Field(default=256 * 1024 * 1024, ge=1024)
    """Bytes of all requests together that one process of the HTTP face holds; what goes beyond gets 503."""

    request_timeout: float = Field(default=30.0, gt=0)
    """How long a request's body may take to arrive over HTTP."""

    allowed_hosts: Annotated[list[str], NoDecode] = Field(default_factory=list)
    """Further Host header values that the HTTP face accepts (a proxy's public name); commas between them. With a name
    that is not this machine's own authentication is required."""

    trusted_proxies: Annotated[list[str], NoDecode] = Field(default_factory=list)
    """Addresses or networks of the proxies whose X-Forwarded-For says where a client calls from; commas between them.
    None by default: whoever is believed may choose the address that rates go by and that the audit log has."""

    health: Path | None = None
    """How well servers answer, a file of ``toolscout eval servers --health``: among tools about as good, those of
    healthier servers come first. None: all are alike."""

    probe_offers: bool = False
    """Whether a server is tried, by a call of one of its tools that read, before its tools are offered."""

    probe_timeout: float = Field(default=5.0, gt=0)
    """Seconds that such a call may take, and that a search waits for it."""

    probe_age: float = Field(default=86_400.0, ge=0)
    """How long a server that answered is not tried again; one that did not, an hour at most."""

    starter: bool = True
    """Register the starter set of keyless servers when nothing is configured."""

    trust_imports: bool = True
    """Tools of servers the user adds are approved at once, adding them being the approval; later changes are not."""

    review_policy: Path | None = None
    """A policy file of the review (docs/GUARD.md): judges what a server has added or changed whenever it is listed."""

    policy: Path | None = None
    """The policy on calls (docs/POLICY.md), a TOML file that has to exist. By default ``policy.toml`` in ``home``,
    which need not: without it every approved tool may be called."""

    install_offers: bool | None = None
    """Whether ``invoke`` asks the person behind the client to install a server that is not installed. By default over
    stdio, where the client runs on this machine as its user does, and not over HTTP: who calls from elsewhere would
    install things here. ``1`` offers it over HTTP too, ``0`` nowhere."""

    log_format: Literal["plain", "json"] = "plain"
    """How a serving Toolscout writes its log to stderr: for people, or one JSON object per line."""

    log_level: Literal["", "debug", "info", "warning", "error"] = ""
    """From which level on; by default warnings, and with ``log_format=json`` each call, too (``info``)."""

    traces: bool | None = None
    """Whether spans are sent by OpenTelemetry (extra ``otel``). By default where ``OTEL_*`` name a place for them."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given in code, then the environment, then the home's file."""
        return init_settings, env_settings, _Home(settings_cls)

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("pack")
    @classmethod
    def _pack_word(cls, value: str) -> str:
        word = value.strip().lower()
        if not word:  # off to some, and not set to others
            raise ValueError("write off, default or the path of one")
        return "off" if word in _OFF else "default" if word in _ON else value

    @field_validator("home", "health", "policy", "review_policy", mode="before")
    @classmethod
    def _path_or_none(cls, value: object, info: ValidationInfo) -> object:
        if value != "" or info.field_name is None:  # as a path it would be the current folder
            return value
        return cls.model_fields[info.field_name].get_default(call_default_factory=True)

    @field_validator("home", "policy", "review_policy")
    @classmethod
    def _whole_path(cls, value: Path | None) -> Path | None:
        # A client's configuration is no shell: nobody else would expand ~. And for what runs in another folder, such as
        # the sandbox's installer, a relative path is another one.
        return value and value.expanduser().absolute()

    @field_validator("allowed_hosts", "trusted_proxies", "pack_keys", "pass_env", mode="before")
    @classmethod
    def _separated(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return [host for part in value.strip("[] ").split(",") if (host := part.strip(" \"'"))]

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: list[str]) -> list[str]:
        try:
            return [str(ip_network(part)) for part in value]
        except ValueError:  # uvicorn would take it for a name, which no connection comes from
            raise ValueError("write addresses or networks such as 127.0.0.1, 10.0.0.0/8") from None

    @property
    def database_url(self) -> str:
        """SQLAlchemy URL of the catalogue."""
        return self.database or f"sqlite:///{self.home / 'catalogue.db'}"

    @property
    def index_dir(self) -> Path:
        """Folder of the search index (generations and the pointer to the current one)."""
        return self.home / "index"

    @property
    def servers_file(self) -> Path:
        """Configured upstreams, in the usual ``mcpServers`` form; holds references to secrets, never values."""
        return self.home / "mcp.json"

    @property
    def policy_file(self) -> Path:
        """The policy on calls."""
        return self.policy or self.home / "policy.toml"

    @property
    def models_dir(self) -> Path:
        """Folder of pulled models and their manifest."""
        return self.home / "models"

    @property
    def keyring_service(self) -> str:
        """Name under which secrets are kept in the operating system's keyring."""
        return keyring_service(self.home)


def keyring_service(home: Path) -> str:
    """Name under which a home's secrets are kept in the operating system's keyring: one of its own for each home."""
    return "toolscout" if home == user_data_path("toolscout") else f"toolscout {home}"


class GivenSettings(Settings):
    """Settings of what is given in code alone: neither the environment nor a file is read."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given."""
        return (init_settings,)


def home_folder() -> Path:
    """The home, also where its file cannot be used."""
    return GivenSettings(home=os.environ.get(f"{PREFIX}HOME", "")).home  # type: ignore[arg-type]


class _Home(PydanticBaseSettingsSource):
    """The values of ``config.toml``, and the kept secrets that are settings, of the home that was named before."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Part of the interface; `__call__` gives all values at once."""
        raise NotImplementedError

    def __call__(self) -> dict[str, Any]:
        given = self.current_state.get("home")
        home = Path(given).expanduser().absolute() if given else user_data_path("toolscout")
        store = SecretStore(home, keyring_service(home))
        kept = {name: store[PREFIX + name.upper()] for name in SECRET_SETTINGS if PREFIX + name.upper() in store}
        return kept | read_config(home / CONFIG_FILE)


def read_config(path: Path) -> dict[str, Any]:
    """Read a settings file; empty where there is none.

    Raises BadInput also for a name which is no setting's; otherwise as `parse_config`.
    """
    values = parse_config(path)
    for name in values:
        check_setting(name, f"{path}: ")
    return values


def parse_config(path: Path) -> dict[str, Any]:
    """What a settings file holds, of whatever names; empty where there is none.

    Raises BadInput for one that is no TOML; StorageError if it cannot be read.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise BadInput(f"{path} is not TOML: {error}.", "Repair it, or move it away.") from None


def check_setting(name: str, where: str = "") -> None:
    """Raise BadInput unless ``name`` is a setting that the file may hold."""
    if name in SECRET_SETTINGS and where:
        raise BadInput(f"{where}{name} is a secret.", f"Keep it with: toolscout secret set {PREFIX}{name.upper()}")
    if name == "home":
        raise BadInput(f"{where}home is where this file lies.", f"Set {PREFIX}HOME in the environment instead.")
    if name not in Settings.model_fields:
        near = get_close_matches(name.lower().removeprefix(PREFIX.lower()), Settings.model_fields, 1)
        hint = f"Did you mean {near[0]}?" if near else "See: toolscout config list"
        raise BadInput(f"{where}there is no setting {name}.", hint)


def checked_settings(**given: Any) -> Settings:
    """Settings from the environment and the home's file, below what is given.

    Raises BadInput for a value that cannot be used. It is not shown: it may be a key in the wrong place.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        said = first["msg"].removeprefix("Value error, ")
        name = str(first["loc"][0])
        variable = PREFIX + name.upper()
        what = f"environment variable {variable}" if variable in os.environ else f"setting {name}"
        raise BadInput(f"The {what} cannot be used: {said}.") from None


def load_settings() -> Settings:
    """Settings from the environment and the home's file, the home folder created.

    Raises:
        BadInput: a value that cannot be used.
        StorageError: the home folder cannot be made.
    """
    settings = checked_settings()
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"The folder {settings.home} cannot be made: {error.strerror}.", "Set TOOLSCOUT_HOME to another one."
        ) from None
    return settings
