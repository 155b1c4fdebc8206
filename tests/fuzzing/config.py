"""Configurations through their readers: ``mcp.json``, clients' files, policies, settings, the files of our own."""

# ruff: noqa: E501  (tables of odd values)

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import tomlkit
from hypothesis import strategies as st

from fuzzing.values import as_json, json_objects, json_values, mangled, nested_text, numbers, scalars, texts
from toolscout.errors import ToolscoutError
from toolscout.index.guard.policy import read_policy as read_guard_policy
from toolscout.index.guard.policy import verdicts
from toolscout.index.health import read_health
from toolscout.records import Tool
from toolscout.server import face
from toolscout.server.clients.connect import apply_connect, apply_undo, plan_connect, plan_undo
from toolscout.server.clients.importing import apply_import, plan_import, read_sources
from toolscout.server.clients.known import CLIENTS, Machine, get_client
from toolscout.server.config import ServersFile
from toolscout.server.policy.file import read_policy
from toolscout.server.secrecy.secrets import Resolver
from toolscout.server.upstreams.listing import server_from_config
from toolscout.settings import Settings, load_settings

_VALUE = st.one_of(st.sampled_from(["${A}", "${A:-b}", "keyring:x", "${env:A}", "${", "${input:k}", "sk-" + "a1B2" * 8,
                                    "postgres://u:p@h/d", "--token", "--token=x", "-y", "\x00"]), texts)  # fmt: skip
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "command": st.one_of(st.sampled_from(["npx", "uvx", "docker", "cmd", "/bin/true", "./run.sh"]), scalars, json_values),
    "args": st.one_of(st.lists(st.one_of(_VALUE, scalars), max_size=4), json_values),
    "env": st.one_of(st.dictionaries(st.one_of(st.sampled_from(["TOKEN", "PATH", "A=B", ""]), texts), _VALUE, max_size=3), json_values),
    "envFile": scalars,
    "cwd": scalars,
    "url": st.one_of(st.sampled_from(["http://h/mcp", "https://u:p@h/sse?key=abc", "http://[::1", "ftp://x", "http://h:99999/", "http://\ud800/"]), scalars),
    "serverUrl": scalars,
    "httpUrl": scalars,
    "headers": st.one_of(st.dictionaries(texts, _VALUE, max_size=2), json_values),
    "auth": st.one_of(st.just("oauth"), scalars),
    "type": st.one_of(st.sampled_from(["stdio", "http", "sse", "streamable-http"]), scalars),
    "transport": scalars,
    "timeout": st.one_of(numbers, scalars),
    "disabled": scalars,
    "enabled": scalars,
    "sandbox": st.one_of(
        st.booleans(),
        st.fixed_dictionaries({}, optional=dict.fromkeys(("network", "read", "write", "memory", "processes", "x"), json_values)),
        json_values,
    ),
}  # fmt: skip
_entry = st.one_of(
    st.fixed_dictionaries({}, optional=_FIELDS),
    st.fixed_dictionaries({"command": st.just("npx")}, optional={k: v for k, v in _FIELDS.items() if k != "command"}),
    json_values,
)
_servers = st.one_of(
    st.dictionaries(st.one_of(st.sampled_from(["a", "toolscout", "a b"]), texts), _entry, max_size=3), json_values
)
_document = st.one_of(
    st.builds(lambda key, servers, rest: {**rest, key: servers},
              st.sampled_from(["mcpServers", "servers", "mcp_servers", "mcp", "context_servers"]), _servers, json_objects),
    st.builds(lambda s: {"mcp": {"servers": s, "inputs": s}}, _servers),
    st.builds(lambda s, p: {"projects": {p: {"mcpServers": s}}, "inputs": s}, _servers, texts),
    json_values,
)  # fmt: skip


def _toml(value: Any) -> bytes:
    """The value as TOML; as JSON, which TOML is not, where TOML cannot say it."""
    try:
        return tomlkit.dumps(value).encode()
    except Exception:
        return as_json(value)


_deep = st.builds(nested_text, st.sampled_from([50, 500, 3_000, 100_000]), st.sampled_from(["[", '{"a":', "a=[", "{a=", "[a."]),
                  st.sampled_from(["]", "}", ""])).map(str.encode)  # fmt: skip
_numbers = st.sampled_from([b'{"mcpServers": {"a": {"command": "x", "timeout": %s}}}' % (b"9" * 5000), b"a = " + b"9" * 5000,
                            b"rule = " + b"1_0" * 5, b"default = 1979-05-27T07:32:00Z"])  # fmt: skip
_any = [_deep, _numbers, st.binary(max_size=30)]
_json_file = st.one_of(
    st.builds(as_json, _document, ascii_only=st.booleans()), st.builds(as_json, _document).flatmap(mangled), *_any
)
_commented = st.builds(lambda a, b, c: a + b + c, st.sampled_from([b"// x\n", b"/* x", b"\xef\xbb\xbf", b"/**/"]), _json_file,
                       st.sampled_from([b"", b"\n// y", b",", b"}"]))  # fmt: skip
_patterns = st.one_of(
    st.sampled_from(["*", "[", "[!", "re:(", "re:a+", "re:(a+)+$", "s/*"]),
    texts,
    st.lists(texts, max_size=2),
    json_values,
)
_rule = st.fixed_dictionaries({}, optional={
    "action": st.sampled_from(["allow", "ask", "deny", "approve", "block", "wait", "x", 1, ["allow"]]),
    **dict.fromkeys(("server", "tool", "servers", "tools", "reviews", "fingerprints", "effect"), _patterns),
    "arguments": st.one_of(st.dictionaries(texts, _patterns, max_size=2), json_values),
    "worst": scalars, "max_chars": numbers, "name": scalars, "reason": scalars, "keep": scalars,
})  # fmt: skip
_policy = st.fixed_dictionaries({}, optional={
    "default": st.one_of(st.sampled_from(["allow", "ask", "deny"]), json_values),
    "rules": st.one_of(st.lists(_rule, max_size=3), json_values),
    "rule": st.one_of(st.lists(_rule, min_size=1, max_size=3), json_values),
    "rates": st.one_of(st.fixed_dictionaries({}, optional=dict.fromkeys(("client", "upstream", "upstreams"), st.one_of(
        st.sampled_from(["1/s", "0/s", "9/fortnight", "\u0661/s"]), json_values))), json_values),
    "responses": json_values,
    "audit": st.one_of(st.fixed_dictionaries({}, optional={"file": scalars, "max_bytes": numbers, "files": numbers,
                       "values": scalars, "rules": st.lists(_rule, max_size=2)}), json_values),
})  # fmt: skip
_only_rules = st.builds(lambda rules: {"rule": rules}, st.lists(_rule, min_size=1, max_size=2))
_toml_file = st.one_of(
    st.builds(_toml, st.one_of(_policy, _only_rules, _document)), st.builds(_toml, _policy).flatmap(mangled), *_any
)
_environ = st.dictionaries(
    st.sampled_from([f"TOOLSCOUT_{name.upper()}" for name in Settings.model_fields if name != "home"]),
    st.one_of(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8), st.sampled_from(["1e999", "nan", "-1", "[", "{}", "~nobody/x", "9" * 5000])),
    max_size=3,
)  # fmt: skip

SHARE = 10
cases = st.one_of(
    st.tuples(st.just("servers"), st.one_of(_json_file, _commented)),
    st.tuples(st.just("client json"), st.one_of(_json_file, _commented)),
    st.tuples(st.just("client toml"), _toml_file),
    st.tuples(st.just("policy"), _toml_file),
    st.tuples(st.just("guard policy"), _toml_file),
    st.tuples(st.just("settings"), _environ),
    st.tuples(st.just("own files"), _json_file),
)


@contextmanager
def checking() -> Iterator[Callable[[Any], None]]:
    """The check of a case in a folder that all of them share."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "project").mkdir()

        def check(case: Any) -> None:
            kind, content = case
            try:
                _CHECKS[kind](folder, content)
            except ToolscoutError as error:
                assert str(error), error

        yield check


def _servers_file(folder: Path, content: bytes) -> None:
    path = folder / "mcp.json"
    path.write_bytes(content)
    servers = ServersFile(path)
    for name, config in servers.load().items():
        server_from_config(config)
        config.references()
        resolver = Resolver({"A": "x"})
        with suppress(ToolscoutError):
            config.resolved(resolver)
        assert name == config.name
    for problem in servers.problems.values():
        assert problem
    first = next(iter(servers.load().values()), None)
    if first is not None:
        servers.add(first)
        assert first.name in ServersFile(path).load()


def _client_file(folder: Path, content: bytes, name: str) -> None:
    path = folder / "project" / name
    path.write_bytes(content)
    machine = Machine(home=folder / "person", platform="linux", env={}, project=None)
    plan = plan_import(read_sources([str(path)], machine), {})
    plan.to_set()
    into = folder / "new.json"
    into.unlink(missing_ok=True)
    names = apply_import(plan, ServersFile(into))
    assert set(names) <= set(ServersFile(into).load())


def _client_json(folder: Path, content: bytes) -> None:
    for client_id in ("claude-code", "vscode"):
        _connected(folder, content, client_id, "client.json")
    _client_file(folder, content, "client.json")


def _client_toml(folder: Path, content: bytes) -> None:
    _connected(folder, content, "codex", "client.toml")
    _client_file(folder, content, "client.toml")


def _connected(folder: Path, content: bytes, client_id: str, name: str) -> None:
    """Toolscout written into the file and taken out again: the bytes are the old ones, or nothing was done."""
    assert client_id in CLIENTS
    machine = Machine(home=folder / "person", platform="linux", env={}, project=None)
    path = folder / "project" / name
    path.write_bytes(content)
    client = get_client(client_id)
    try:
        change = plan_connect(client, machine, file=path)
    except ToolscoutError:
        assert path.read_bytes() == content
        return
    change.diff()
    if not change.needed:
        return
    apply_connect(change, folder / "home")
    undo = plan_undo(client, machine, folder / "home", file=path)
    apply_undo(undo, folder / "home")


def _policy_file(folder: Path, content: bytes) -> None:
    path = folder / "policy.toml"
    path.write_bytes(content)
    policy = read_policy(path)
    tool = Tool(tool_id="s/t", server_id="s", name="t")
    policy.decide(tool, {"a": "x", "b": [{"c": "\ud800"}]})
    assert policy.in_short()


def _guard_policy(folder: Path, content: bytes) -> None:
    path = folder / "guard.toml"
    path.write_bytes(content)
    rules = read_guard_policy(path)
    tool = Tool(
        tool_id="s/t", server_id="s", name="t", review="pending", findings=[{"severity": ["x"]}, {"severity": "warn"}]
    )
    verdicts(rules, [tool])


def _settings(folder: Path, content: dict[str, str]) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TOOLSCOUT_")}
    with mock.patch.dict(os.environ, {**kept, **content, "TOOLSCOUT_HOME": str(folder / "home")}, clear=True):
        settings = load_settings()
        assert settings.database_url and settings.policy_file


def _own_files(folder: Path, content: bytes) -> None:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    for name in ("face.json", "connections.json", "health.json"):
        (home / name).write_bytes(content)
    assert isinstance(face.load(home), dict)
    with suppress(ToolscoutError):
        read_health(home / "health.json")
    machine = Machine(home=folder / "person", platform="linux", env={}, project=None)
    path = folder / "project" / "c.json"
    path.write_bytes(json.dumps({"mcpServers": {}}).encode())
    change = plan_connect(get_client("cursor"), machine, file=path)
    apply_connect(change, home)


_CHECKS: dict[str, Callable[[Path, Any], None]] = {
    "servers": _servers_file,
    "client json": _client_json,
    "client toml": _client_toml,
    "policy": _policy_file,
    "guard policy": _guard_policy,
    "settings": _settings,
    "own files": _own_files,
}
