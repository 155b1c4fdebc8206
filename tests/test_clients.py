"""Clients' configurations: read every dialect, never copy a secret, edit without touching another byte."""

from __future__ import annotations

import json
import os
import stat
import string
import time
import tomllib
from collections import ChainMap
from pathlib import Path
from typing import Any

import client_files
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from toolscout.errors import BadInput, NotAllowed, NotFound, StorageError
from toolscout.secret_store import SecretStore
from toolscout.server.clients import connect, edit, jsonc, redact
from toolscout.server.clients.documents import load_document, parse_document
from toolscout.server.clients.importing import apply_import, plan_import, read_sources
from toolscout.server.clients.known import CLIENTS, Machine, get_client
from toolscout.server.clients.read import usual
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.secrecy.secrets import Resolver

GITHUB_PAT = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
OPENAI_KEY = "sk-proj-" + "Zk29fLq0PwXe81mVbTnYs7Rc4Hd6Ju3A"
PASSWORD = "correct-horse-battery"
HOOK = "T0AB1CD2E/B0FG3HI4J/k5Lm6No7Pq8Rs9Tu0Vw1Xy2Z"
SECRETS = (
    GITHUB_PAT, OPENAI_KEY, PASSWORD, "k5Lm6No7Pq8Rs9Tu0Vw1Xy2Z", "3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c",
    *client_files.SECRETS,
)  # fmt: skip

CLAUDE = {
    "globalShortcut": "Alt+Space",
    "mcpServers": {
        "github": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-github"],
            "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": GITHUB_PAT, "LOG_LEVEL": "debug", "MAX_TOKENS": "4096"},
        },
        "postgres": {
            "command": "npx",
            "args": [
                "-y",
                "@modelcontextprotocol/server-postgres@0.6.2",
                f"postgresql://app:{PASSWORD}@db.example.com:5432/shop",
            ],
        },
        "windows-npx": {"command": "cmd", "args": ["/c", "npx", "-y", "@upstash/context7-mcp@latest"]},
        "toolscout": {"command": "/home/me/.local/bin/toolscout", "args": ["serve"]},
    },
}
CLAUDE_CODE = {
    "numStartups": 31,
    "mcpServers": {
        "sentry": {"type": "http", "url": "https://mcp.sentry.dev/mcp"},
        "linear": {"type": "sse", "url": "https://mcp.linear.app/sse"},
        "ref": {
            "type": "http",
            "url": "https://api.example.com/mcp?apiKey=3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c&team=core",
            "headers": {"Authorization": f"Bearer {OPENAI_KEY}", "X-Region": "eu"},
        },
    },
    "projects": {
        "/home/me/shop": {
            "allowedTools": [],
            "mcpServers": {"github": {"type": "stdio", "command": "docker", "args": ["run", "-i", "ghcr.io/x/y"]}},
        }
    },
}
CURSOR = """{
  // servers of mine
  "mcpServers": {
    "github": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"],
                "env": { "GITHUB_PERSONAL_ACCESS_TOKEN": "PAT_HERE", "LOG_LEVEL": "debug", "MAX_TOKENS": "4096" } },
    "search": { "url": "https://search.example.com/mcp", "headers": { "X-Api-Key": "${env:SEARCH_KEY}" } },
    "files": { "command": "uvx", "args": ["mcp-files", "${userHome}/notes"], },
  },
}
""".replace("PAT_HERE", GITHUB_PAT)
VSCODE = """{
  "inputs": [
    { "type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true },
  ],
  "servers": {
    /* asks for its key */
    "perplexity": {
      "type": "stdio", "command": "npx", "args": ["-y", "server-perplexity-ask"],
      "env": { "PERPLEXITY_API_KEY": "${input:perplexity-key}" }
    },
    "fetch": { "type": "stdio", "command": "uvx", "args": ["mcp-server-fetch"], "cwd": "${workspaceFolder}" }
  }
}
"""
CODEX = f"""model = "o4"  # my favourite

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs-mcp"]
env_vars = ["DOCS_TOKEN"]

[mcp_servers.docs.env]
OPENAI_API_KEY = "{OPENAI_KEY}"

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "FIGMA_TOKEN"
http_headers = {{ "X-Figma-Region" = "us-east-1" }}

[mcp_servers.old]
command = "old"
enabled = false
"""
WINDSURF = {
    "mcpServers": {
        "zapier": {"serverUrl": "https://actions.zapier.com/mcp/sk-ak-Q7wE9rT1yU3iO5pA7sD9fG1h/sse"},
        "slack": {"command": "npx", "args": ["-y", "slack-mcp", f"--webhook=https://hooks.slack.com/services/{HOOK}"]},
        "off": {"command": "npx", "args": ["x"], "disabled": True},
    }
}


def machine(tmp_path: Path, platform: str = "linux", **env: str) -> Machine:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    return Machine(tmp_path / "user", platform, env, project)


def first_path(client: str, where: Machine) -> Path:
    return next(iter(get_client(client).places(where))).path


def write(path: Path, content: str | dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    return path


def fill(where: Machine) -> None:
    write(first_path("claude", where), CLAUDE)
    write(first_path("claude-code", where), CLAUDE_CODE)
    write(first_path("cursor", where), CURSOR)
    write(first_path("vscode", where), VSCODE)
    write(first_path("codex", where), CODEX)
    write(first_path("windsurf", where), WINDSURF)


# --- where the files are ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "platform", "expected"),
    [
        ("claude", "linux", ".config/Claude/claude_desktop_config.json"),
        ("claude", "darwin", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude", "win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("claude-code", "linux", ".claude.json"),
        ("cursor", "win32", ".cursor/mcp.json"),
        ("vscode", "linux", ".config/Code/User/mcp.json"),
        ("vscode", "darwin", "Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", "AppData/Roaming/Code/User/mcp.json"),
        ("codex", "darwin", ".codex/config.toml"),
        ("windsurf", "linux", ".codeium/windsurf/mcp_config.json"),
    ],
)
def test_default_paths(tmp_path: Path, client: str, platform: str, expected: str) -> None:
    where = machine(tmp_path, platform)
    assert first_path(client, where) == where.home / expected


def test_paths_follow_the_environment(tmp_path: Path) -> None:
    where = machine(
        tmp_path, "win32", APPDATA="/roaming", CODEX_HOME="/codex", CLAUDE_CONFIG_DIR="/cc", XDG_CONFIG_HOME="/x"
    )
    assert first_path("claude", where) == Path("/roaming/Claude/claude_desktop_config.json")
    assert first_path("codex", where) == Path("/codex/config.toml")
    assert first_path("claude-code", where) == Path("/cc/.claude.json")
    linux = machine(tmp_path, "linux", XDG_CONFIG_HOME="/x")
    assert first_path("vscode", linux) == Path("/x/Code/User/mcp.json")


def test_unknown_client_lists_the_known_ones() -> None:
    with pytest.raises(NotFound, match="emacs") as error:
        get_client("emacs")
    assert all(name in error.value.hint for name in CLIENTS)


# --- import ----------------------------------------------------------------------------------------------------------


def test_import_reads_every_client_and_copies_no_secret(tmp_path: Path) -> None:
    where = machine(tmp_path)
    fill(where)
    plan = plan_import(read_sources([], where), {})
    assert not plan.failures
    servers = ServersFile(tmp_path / "mcp.json")
    apply_import(plan, servers)
    written = servers.path.read_text()
    for secret in SECRETS:
        assert secret not in written
        assert secret not in repr(plan)
    loaded = servers.load()
    assert not servers.problems
    assert set(loaded) == {
        "github", "postgres", "windows-npx", "sentry", "linear", "ref", "github-shop", "search", "files",
        "perplexity", "fetch", "docs", "figma", "zapier", "slack",
    }  # fmt: skip
    github = loaded["github"]
    assert github.command == "npx"
    assert dict(github.env) == {
        "GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_PERSONAL_ACCESS_TOKEN}",
        "LOG_LEVEL": "debug",
        "MAX_TOKENS": "4096",
    }
    assert loaded["postgres"].args[:2] == ("-y", "@modelcontextprotocol/server-postgres@0.6.2")
    assert loaded["postgres"].args[2] == "postgresql://app:${POSTGRES_URL_SECRET}@db.example.com:5432/shop"
    assert (loaded["windows-npx"].command, loaded["windows-npx"].args) == (
        "npx",
        ("-y", "@upstash/context7-mcp@latest"),
    )
    assert (loaded["sentry"].transport, loaded["linear"].transport) == ("http", "sse")
    assert loaded["ref"].url == "https://api.example.com/mcp?apiKey=${REF_URL_SECRET}&team=core"
    assert dict(loaded["ref"].headers) == {"Authorization": "Bearer ${REF_AUTHORIZATION}", "X-Region": "eu"}
    assert dict(loaded["search"].headers) == {"X-Api-Key": "${SEARCH_KEY}"}
    assert loaded["files"].args == ("mcp-files", f"{where.home}/notes")
    assert dict(loaded["perplexity"].env) == {"PERPLEXITY_API_KEY": "${PERPLEXITY_KEY}"}
    assert loaded["fetch"].cwd == str(where.project)
    assert dict(loaded["docs"].env) == {"DOCS_TOKEN": "${DOCS_TOKEN}", "OPENAI_API_KEY": "${OPENAI_API_KEY}"}
    assert dict(loaded["figma"].headers) == {"X-Figma-Region": "us-east-1", "Authorization": "Bearer ${FIGMA_TOKEN}"}
    assert loaded["zapier"].url == "https://actions.zapier.com/mcp/${ZAPIER_URL_SECRET}/sse"
    assert loaded["zapier"].transport == "sse"
    to_set = plan.to_set()
    assert to_set["PERPLEXITY_KEY"] == "perplexity: Perplexity API Key"
    assert to_set["GITHUB_PERSONAL_ACCESS_TOKEN"] == "github: env GITHUB_PERSONAL_ACCESS_TOKEN"
    assert {"FIGMA_TOKEN", "DOCS_TOKEN", "SEARCH_KEY", "POSTGRES_URL_SECRET"} <= set(to_set)


def test_import_says_what_it_leaves_out_and_why(tmp_path: Path) -> None:
    where = machine(tmp_path)
    fill(where)
    plan = plan_import(read_sources([], where), {})
    left = {(i.entry.source, i.entry.name): i.why for i in plan.items if i.action != "add"}
    assert left == {
        ("claude", "toolscout"): "is Toolscout itself",
        ("cursor", "github"): "already there",
        ("codex", "old"): "is disabled there",
        ("windsurf", "off"): "is disabled there",
    }
    renamed = [i for i in plan.additions if i.why]
    assert [(i.name, i.why) for i in renamed] == [("github-shop", "renamed: github is another server")]


def test_a_name_that_utf_8_cannot_carry_is_the_name_that_is_written(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(r'{"mcpServers": {"\ud800": {"command": "npx", "args": ["thing"]}}}')
    servers = ServersFile(tmp_path / "mcp.json")
    plan = plan_import(read_sources([str(path)], machine(tmp_path)), {})
    assert apply_import(plan, servers) == ["\ufffd"] == list(servers.load())


@pytest.mark.parametrize("blank", [b"\r", b" \r \n"])
def test_a_toml_file_of_blanks_takes_an_entry(blank: bytes) -> None:
    keys, entry = ("mcp_servers", "toolscout"), {"command": "toolscout"}
    made = edit.with_entry(blank, Path("config.toml"), keys, entry)
    assert edit.lookup(tomllib.loads(made.decode()), keys) == entry
    assert edit.without_entry(blank, Path("config.toml"), keys) == blank


def test_importing_twice_adds_nothing(tmp_path: Path) -> None:
    where = machine(tmp_path)
    fill(where)
    servers = ServersFile(tmp_path / "mcp.json")
    apply_import(plan_import(read_sources([], where), servers.load()), servers)
    before = servers.path.read_bytes()
    again = plan_import(read_sources([], where), servers.load())
    assert again.additions == []
    assert servers.path.read_bytes() == before


def test_a_malformed_file_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    where = machine(tmp_path)
    fill(where)
    broken = write(first_path("claude", where), '{"mcpServers": {"a": {"command": "x"}')
    wrong = write(first_path("windsurf", where), '{"mcpServers": [1]}')
    plan = plan_import(read_sources([], where), {})
    assert {path for path, _ in plan.failures} == {broken, wrong}
    assert any("line 1" in reason for _, reason in plan.failures)
    assert "docs" in {i.name for i in plan.additions}


@pytest.mark.parametrize(
    "odd",
    [
        {"command": "x", "env_vars": 5},
        {"url": "https://x.example/mcp", "env_http_headers": ["a"]},
        {"command": ["a"], "args": 5},
    ],
)
def test_an_odd_entry_does_not_cost_its_file(tmp_path: Path, odd: dict[str, Any]) -> None:
    path = write(tmp_path / "odd.json", json.dumps({"mcpServers": {"odd": odd, "good": {"command": "x"}}}))
    plan = plan_import(read_sources([str(path)], machine(tmp_path)), {})
    assert [item.name for item in plan.additions] == ["good"]
    assert [item.entry.problem for item in plan.items if item.entry.name == "odd"] == [
        "a field of it is not of the kind that it should be"
    ]


def test_plain_files(tmp_path: Path) -> None:
    where = machine(tmp_path)
    bare = write(tmp_path / "bare.json", '{"a": {"command": "a-mcp"}, "b": {"url": "https://b.example/sse"}}')
    toml = write(tmp_path / "c.toml", '[mcp_servers.c]\ncommand = "c-mcp --stdio"\n')
    split = plan_import(read_sources([str(bare), str(toml)], where), {}).additions
    assert [(i.name, i.launch()) for i in split] == [
        ("a", "a-mcp"),
        ("b", "https://b.example/sse"),
        ("c", "c-mcp --stdio"),
    ]
    with pytest.raises(NotFound, match="no file"):
        read_sources([str(tmp_path / "absent.json")], where)
    with pytest.raises(BadInput, match="no MCP servers"):
        read_sources([str(write(tmp_path / "none.json", '{"colour": "blue"}'))], where)
    with pytest.raises(BadInput, match="line 2, column 3"):
        read_sources([str(write(tmp_path / "bad.json", "{\n  nope: 1}"))], where)
    with pytest.raises(BadInput, match="UTF-8"):
        (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
        read_sources([str(tmp_path / "latin.json")], where)


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ("cmd", ["/c", "npx", "-y", "p"], ("npx", "-y", "p")),
        ("cmd.exe", ["/d", "/s", "/c", "npx.cmd -y p"], ("npx", "-y", "p")),
        (r"C:\Windows\System32\cmd.exe", ["/C", "uvx", "p"], ("uvx", "p")),
        (r"C:\Program Files\nodejs\npx.cmd", ["p"], ("npx", "p")),
        ("npx.cmd", ["p"], ("npx", "p")),
        ("npx -y p --flag 'a b'", None, ("npx", "-y", "p", "--flag", "a b")),
        (["uvx", "p"], None, ("uvx", "p")),
        ("/usr/local/bin/npx", ["p"], ("/usr/local/bin/npx", "p")),
    ],
)
def test_command_forms(tmp_path: Path, command: object, args: object, expected: tuple[str, ...]) -> None:
    entry = {"command": command} | ({} if args is None else {"args": args})
    file = write(tmp_path / "m.json", {"mcpServers": {"x": entry}})
    (item,) = plan_import(read_sources([str(file)], machine(tmp_path)), {}).additions
    assert (item.config["command"], *item.config["args"]) == expected


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "toolscout", "args": ["serve"]},
        {"command": "uvx", "args": ["toolscout", "serve"]},
        {"command": "uvx", "args": ["--from", "toolscout[local]==0.1.0", "toolscout", "serve"]},
        {"command": "/venv/bin/python", "args": ["-m", "toolscout", "serve"]},
        {"command": r"C:\Tools\toolscout.exe", "args": ["serve"]},
    ],
)
def test_own_entry_is_never_imported(tmp_path: Path, entry: dict[str, Any]) -> None:
    file = write(tmp_path / "m.json", {"mcpServers": {"gateway": entry}})
    plan = plan_import(read_sources([str(file)], machine(tmp_path)), {})
    assert [i.why for i in plan.items] == ["is Toolscout itself"]


def test_the_home_is_no_project(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    write(tmp_path / ".cursor" / "mcp.json", {"mcpServers": {"a": {"command": "a"}}})
    entries = read_sources(["cursor"], Machine(home=tmp_path, platform="linux", env={}, project=tmp_path)).entries
    assert [(entry.name, entry.scope) for entry in entries] == [("a", "user")]


def test_two_servers_with_different_values_under_one_name_get_two_references(tmp_path: Path) -> None:
    servers = {n: {"command": n, "env": {"SERVICE_TOKEN": f"value-number-{n}"}} for n in ("one", "two", "three")}
    servers["three"]["env"] = {"SERVICE_TOKEN": "value-number-one"}
    file = write(tmp_path / "m.json", {"mcpServers": servers})
    items = plan_import(read_sources([str(file)], machine(tmp_path)), {}).additions
    assert [i.config["env"]["SERVICE_TOKEN"] for i in items] == [
        "${SERVICE_TOKEN}",
        "${TWO_SERVICE_TOKEN}",
        "${SERVICE_TOKEN}",
    ]


def test_a_variable_that_holds_something_else_here_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "another value altogether")
    entry = {"command": "x", "env": {"SERVICE_TOKEN": "value of the file"}}
    config, _ = redact.Redactor().clean("alpha", entry)
    assert config["env"] == {"SERVICE_TOKEN": "${ALPHA_SERVICE_TOKEN}"}
    monkeypatch.setenv("SERVICE_TOKEN", "value of the file")
    config, _ = redact.Redactor().clean("alpha", entry)
    assert config["env"] == {"SERVICE_TOKEN": "${SERVICE_TOKEN}"}


def test_secrets_are_kept_and_found_again(tmp_path: Path) -> None:
    file = write(tmp_path / "m.json", {"mcpServers": {**CLAUDE["mcpServers"], **CLAUDE_CODE["mcpServers"]}})  # type: ignore[dict-item]
    store = SecretStore(tmp_path, "test")
    plan = plan_import(read_sources([str(file)], machine(tmp_path)), {}, ChainMap({}, store))
    servers = ServersFile(tmp_path / "mcp.json")
    apply_import(plan, servers, store)
    assert GITHUB_PAT not in servers.path.read_text()
    loaded = servers.load()
    assert loaded["github"].env["GITHUB_PERSONAL_ACCESS_TOKEN"] == "${GITHUB_PERSONAL_ACCESS_TOKEN}"
    assert loaded["ref"].headers["Authorization"] == "Bearer ${REF_AUTHORIZATION}"
    resolver = Resolver(ChainMap({}, store))
    resolved = loaded["ref"].resolved(resolver)
    assert resolved.headers["Authorization"] == f"Bearer {OPENAI_KEY}"
    assert resolved.url == CLAUDE_CODE["mcpServers"]["ref"]["url"]  # type: ignore[index]
    assert OPENAI_KEY in resolver.secrets


def test_another_value_of_a_kept_name_gets_a_name_of_its_own(tmp_path: Path) -> None:
    store = SecretStore(tmp_path, "test")
    store["SERVICE_TOKEN"] = "the first account's"
    config, _ = redact.Redactor(values=store).clean("two", {"command": "x", "env": {"SERVICE_TOKEN": "another's"}})
    assert config["env"] == {"SERVICE_TOKEN": "${TWO_SERVICE_TOKEN}"}


def test_an_import_never_overwrites_a_kept_secret(tmp_path: Path) -> None:
    store = SecretStore(tmp_path, "test")
    store["GITHUB_TOKEN"] = "mine"
    env = {"A": f"${{GITHUB_TOKEN:-{GITHUB_PAT}}}", "B": "${OTHER_TOKEN:-YOUR_TOKEN}"}
    file = write(tmp_path / "m.json", {"mcpServers": {"srv": {"command": "x", "env": env}}})
    reading, servers = read_sources([str(file)], machine(tmp_path)), ServersFile(tmp_path / "mcp.json")
    apply_import(plan_import(reading, {}, ChainMap({}, store)), servers, store)
    assert servers.load()["srv"].env == {"A": "${SRV_GITHUB_TOKEN}", "B": "${OTHER_TOKEN}"}
    assert dict(store) == {"GITHUB_TOKEN": "mine", "SRV_GITHUB_TOKEN": GITHUB_PAT}
    store["SRV_GITHUB_TOKEN"] = "rotated"
    apply_import(plan_import(reading, {}, {}), ServersFile(tmp_path / "second.json"), store)
    assert dict(store) == {"GITHUB_TOKEN": "mine", "SRV_GITHUB_TOKEN": "rotated"}


# --- secrets ---------------------------------------------------------------------------------------------------------

_KEYLIKE = st.text(string.ascii_letters + string.digits, min_size=24, max_size=48).filter(
    lambda s: (
        len(set(s)) >= 14
        and any(c.isdigit() for c in s)
        and any(c.islower() for c in s)
        and any(c.isupper() for c in s)
    )
)
_PREFIXED = st.builds(
    lambda p, s: p + s,
    st.sampled_from(
        ["sk-", "ghp_", "github_pat_", "glpat-", "xoxb-", "hf_", "AIza", "npm_", "pypi-", "gsk_", "sk_live_"]
    ),
    _KEYLIKE,
)
_SECRET_NAMES = st.sampled_from(
    ["API_KEY", "GITHUB_TOKEN", "MY_SECRET", "DB_PASSWORD", "openaiApiKey", "AUTH", "X_PAT"]
)
_PLAIN_NAMES = st.sampled_from(["VALUE", "CONFIG", "DATA", "SETTING_A", "ENDPOINT"])
_WORDS = st.text(string.ascii_letters + string.punctuation + " äé漢", min_size=9, max_size=30).filter(
    lambda s: not redact.REFERENCE.search(s) and "${" not in s and "://" not in s and not s.startswith("keyring:")
)


@hypothesis_settings(max_examples=150, deadline=None)
@given(name=_SECRET_NAMES, value=_WORDS | _KEYLIKE | _PREFIXED, kind=st.sampled_from(["env", "headers"]))
@example(name="AUTH", value="Bearer abcdefgh", kind="env")
def test_no_value_under_a_secret_name_survives(name: str, value: str, kind: str) -> None:
    config, found = redact.Redactor(values={}).clean("srv", {"command": "x", kind: {name: value}})
    assert found
    kept = config[kind][name]
    assert value.strip() not in kept
    assert found[0].value not in kept
    assert redact.REFERENCE.sub("", kept).strip().lower() in {"", "bearer", "basic", "token", "apikey", "digest"}


@hypothesis_settings(max_examples=150, deadline=None)
@given(secret=_PREFIXED | _KEYLIKE, name=_PLAIN_NAMES, shape=st.integers(0, 9))
def test_no_key_survives_wherever_it_stands(secret: str, name: str, shape: int) -> None:
    entry: dict[str, Any] = [
        {"command": "x", "env": {name: secret}},
        {"url": "https://h.example/mcp", "headers": {"Authorization": f"Bearer {secret}"}},
        {"url": "https://h.example/mcp", "headers": {"X-Custom": secret}},
        {"url": f"https://h.example/mcp?{name}={secret}"},
        {"url": f"https://h.example/{secret}/mcp"},
        {"command": "x", "args": ["--api-key", secret]},
        {"command": "x", "args": [f"--token={secret}"]},
        {"command": "docker", "args": ["run", "-e", f"{name}={secret}", "img"]},
        {"command": "npx", "args": ["mcp-remote", "https://h.example", "--header", f"Authorization: Bearer {secret}"]},
        {"command": "x", "env": {name: f"${{{name}:-{secret}}}"}},
    ][shape]
    config, found = redact.Redactor(values={}).clean("srv", entry)
    assert secret not in json.dumps(config)
    assert [s.value for s in found] == [secret]
    UpstreamConfig.parse("srv", config)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOG_LEVEL", "debug"),
        ("MAX_TOKENS", "4096"),
        ("MODEL", "claude-sonnet-4-20250514"),
        ("GOOGLE_APPLICATION_CREDENTIALS_PATH", "/home/me/creds.json"),
        ("PATH", "/usr/local/bin:/usr/bin"),
        ("BASE_URL", "https://api.example.com/v1"),
        ("TENANT_ID", "6f0c2c3e-1d0a-4c55-9a6e-0b5f6f2f8d11"),
        ("AWS_REGION", "eu-central-1"),
        ("AUTH_ENABLED", "true"),
        ("API_KEY", "${MY_KEY}"),
        ("API_KEY", ""),
        ("ALLOWED_HOSTS", "one.example.com,two.example.com"),
        ("HOST", "my-machine-01.internal.example.com"),
    ],
)
def test_ordinary_values_are_left_as_they_are(name: str, value: str) -> None:
    config, found = redact.Redactor(values={}).clean("srv", {"command": "x", "env": {name: value}})
    assert config["env"] == {name: value}
    assert not found


def test_ordinary_arguments_are_left_as_they_are() -> None:
    args = [
        "-y", "@modelcontextprotocol/server-filesystem@2025.8.21", "/home/me/My Docs/a1b2c3d4e5f6g7h8", "--port=8080",
        "run", "-e", "GITHUB_TOKEN", "ghcr.io/github/github-mcp-server:v0.5.0", "--model", "claude-sonnet-4-20250514",
        "git+https://github.com/oraios/serena", "start-mcp-server", "--api-key", "${KEY}", "--max-tokens=4096",
    ]  # fmt: skip
    config, found = redact.Redactor(values={}).clean("srv", {"command": "x", "args": args})
    assert config["args"] == args
    assert not found


def test_the_preview_masks_secrets() -> None:
    line = f'+    "GITHUB_TOKEN": "{GITHUB_PAT}", "args": ["--key", "{OPENAI_KEY}"]'
    masked = redact.mask_line(line)
    assert GITHUB_PAT not in masked
    assert OPENAI_KEY not in masked
    assert '"GITHUB_TOKEN"' in masked
    assert redact.mask_line('api_key = "plain words"') == 'api_key = "••••"'
    assert redact.mask_line('  "command": "npx",') == '  "command": "npx",'
    for line, shown in {
        "+      DB_PASSWORD: hunter2,plain": "+      DB_PASSWORD: ••••",
        '-  DB_PASSWORD: "hunter 2"': '-  DB_PASSWORD: "••••"',
        "   envs: {A: b, DB_PASSWORD: hunter2, C: d}": "   envs: {A: b, DB_PASSWORD: ••••, C: d}",
        ' "env": {"A": "b", "DB_PASSWORD": "hunter2"}': ' "env": {"A": "b", "DB_PASSWORD": "••••"}',
        ' "env": {"A": "b", "PIN": 1234}': ' "env": {"A": "b", "PIN": ••••}',
        "+db_pin = 1234": "+db_pin = ••••",
        '{"A": {"pin":1234, "b": "c", "key": 5}}': '{"A": {"pin":••••, "b": "c", "key": ••••}}',
        "   MAX_TOKENS: 4000": "   MAX_TOKENS: 4000",
        "   DB_PASSWORD: ${DB_PASSWORD}": "   DB_PASSWORD: ${DB_PASSWORD}",
        '   "args": ["--key=", "x"]': '   "args": ["--key=", "x"]',
    }.items():
        assert redact.mask_line(line) == shown
    began = time.monotonic()
    redact.mask_line("{" + '"pin": 1234, "b": "c", ' * 20_000 + "a" * 200_000 + "a-" * 50_000)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("client_id", "document"),
    [
        ("cursor", {"mcpServers": {"db": {"command": "x", "args": ["--password", "hunter2plain"], "disabled": True}}}),
        ("cursor", {"mcpServers": {"db": {"url": "ws://x", "headers": {"X-Key": "a", "B": "Bearer hunter2plain"}}}}),
        ("cursor", {"mcpServers": {"toolscout": {"command": "toolscout", "args": ["--password", "hunter2plain"]}}}),
        (
            "claude-code",
            {"projects": {"/p": {"mcpServers": {"db": {"command": "x", "args": ["--password", "hunter2plain"]}}}}},
        ),
    ],
)
def test_the_preview_hides_secrets_of_every_entry(tmp_path: Path, client_id: str, document: dict[str, Any]) -> None:
    where = machine(tmp_path)
    path = write(first_path(client_id, where), document)
    change = connect.plan_connect(get_client(client_id), where)
    assert "hunter2plain" in change.hidden, path
    assert "hunter2plain" not in change.diff()


# --- JSON with comments ----------------------------------------------------------------------------------------------

_SCALARS = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=12)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
_LAYOUTS = st.sampled_from([{"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}, {}])


@hypothesis_settings(max_examples=200, deadline=None)
@given(
    document=st.dictionaries(st.text(max_size=8).filter(lambda k: k != "mcpServers"), _JSON, max_size=4),
    servers=st.none() | st.dictionaries(st.text(max_size=8).filter(lambda k: k != "toolscout"), _JSON, max_size=3),
    layout=_LAYOUTS,
    crlf=st.booleans(),
    comments=st.booleans(),
)
def test_an_edit_changes_one_member_and_its_removal_restores_the_text(
    document: dict[str, Any], servers: dict[str, Any] | None, layout: dict[str, Any], crlf: bool, comments: bool
) -> None:
    if servers is not None:
        document["mcpServers"] = servers
    text = json.dumps(document, ensure_ascii=False, **layout) + "\n"
    if comments:
        text = '// head { " }\n' + text + "/* tail , } */\n"
    if crlf:
        text = text.replace("\n", "\r\n")
    entry = {"command": "toolscout", "args": ["serve"]}
    edited = jsonc.set_member(text, ["mcpServers", "toolscout"], entry)
    expected = json.loads(json.dumps(document))
    expected.setdefault("mcpServers", {})["toolscout"] = entry
    assert jsonc.loads(edited) == expected
    removed = jsonc.remove_member(edited, ["mcpServers", "toolscout"])
    if servers:
        assert removed == text
    else:
        if servers is None:
            removed = jsonc.remove_member(removed, ["mcpServers"])
        assert jsonc.loads(removed) == document


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1,]]",
        '{"a" 1}',
        '{"a": }',
        "{'a': 1}",
        '{"a": 1 "b": 2}',
        '{"a": "x\ny"}',
        "/* never closed",
        "nul",
        '{"a": 01}',
    ],
)
def test_broken_json_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(BadInput, match=r"line \d+, column \d+"):
        jsonc.loads(text)
    with pytest.raises(BadInput):
        jsonc.set_member(text, ["a"], 1)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(BadInput, match="deep"):
        jsonc.loads("[" * 100_000)


# --- connect ---------------------------------------------------------------------------------------------------------

ALL = [client.id for client in CLIENTS.values() if not client.paste]


def written_entry(document: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """An entry in a client's file, in the usual form."""
    entry = usual(edit.lookup(document, keys))
    command = entry["command"]
    return entry if isinstance(command, str) else {**entry, "command": command[0], "args": command[1:]}


@pytest.mark.parametrize("client_id", ALL)
def test_connect_and_undo_restore_the_file_byte_for_byte(tmp_path: Path, home: Path, client_id: str) -> None:
    where, client = machine(tmp_path), get_client(client_id)
    fill(where)
    list(client_files.write_files(where))
    path = first_path(client_id, where)
    path.chmod(0o640)
    before = path.read_bytes()
    change = connect.plan_connect(client, where)
    assert change.path == path
    assert change.needed
    for secret in SECRETS:
        assert secret not in change.diff()
    backup = connect.apply_connect(change, home)
    servers = plan_import(read_sources([client_id], where), {})
    assert "is Toolscout itself" in {i.why for i in servers.items}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    if client_id == "claude":  # it had an entry of ours already, which another installation wrote
        assert backup is None
    else:
        assert backup is not None
        assert backup.read_bytes() == before
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
        assert not connect.plan_connect(client, where).needed
        connect.apply_undo(connect.plan_undo(client, where, home), home)
        assert path.read_bytes() == before
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        with pytest.raises(NotFound, match="nothing to undo"):
            connect.plan_undo(client, where, home)


def test_undo_shows_no_password(tmp_path: Path, home: Path) -> None:
    where, client = machine(tmp_path), get_client("cursor")
    entry = {"command": "x", "args": ["--password", "correct-horse"]}
    path = write(first_path("cursor", where), {"mcpServers": {"db": entry}})
    existing = {"db": UpstreamConfig.parse("db", {**entry, "args": ["--password", "${P}"]})}
    connect.apply_connect(connect.plan_connect(client, where, existing=existing, replace=True), home)
    for edited in (False, True):
        if edited:
            path.write_bytes(path.read_bytes() + b"\n")
        shown = connect.plan_undo(client, where, home).diff()
        assert "--password" in shown and "correct-horse" not in shown


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("client_id", ALL)
def test_replacing_is_undone_exactly(tmp_path: Path, home: Path, client_id: str, edited: bool) -> None:
    where, client = machine(tmp_path), get_client(client_id)
    fill(where)
    list(client_files.write_files(where))
    path = first_path(client_id, where)
    before, document = path.read_bytes(), load_document(path)
    servers = ServersFile(home / "mcp.json")
    apply_import(plan_import(read_sources([client_id], where), {}), servers)
    change = connect.plan_connect(client, where, existing=servers.load(), replace=True)
    assert change.taken_out == change.had != ()
    for secret in SECRETS:
        assert secret not in change.diff()
    connect.apply_connect(change, home)
    key = change.keys[:-1]
    left = edit.lookup(load_document(path), key)
    assert not set(change.had) & set(left)
    assert set(change.only_here) <= set(left)
    if edited:
        path.write_bytes(edit.with_entry(path.read_bytes(), path, (*key, "new"), {"command": "new"}))
    connect.apply_undo(connect.plan_undo(client, where, home), home)
    if edited or client_id == "claude":  # there, another installation's entry of ours goes too
        wanted = {**edit.lookup(document, key), **({"new": {"command": "new"}} if edited else {})}
        wanted.pop("toolscout", None)
        assert edit.lookup(load_document(path), key) == wanted
    else:
        assert path.read_bytes() == before


def test_two_accounts_of_one_service_are_not_taken_for_one(tmp_path: Path) -> None:
    where = machine(tmp_path)
    entry = {"command": "npx", "args": ["p"], "env": {"API_TOKEN": GITHUB_PAT}}
    write(first_path("cursor", where), {"mcpServers": {"work": entry, "home": entry}})
    for own, had in (("work", ("work",)), ("other", ())):
        existing = {own: UpstreamConfig.parse(own, {**entry, "env": {"API_TOKEN": "${API_TOKEN}"}})}
        change = connect.plan_connect(get_client("cursor"), where, existing=existing, replace=True)
        assert change.taken_out == had
        assert set(change.only_here) == {"work", "home"} - set(had)


@pytest.mark.parametrize("client_id", ALL)
def test_connect_without_a_file_makes_one_and_undo_takes_it_away(tmp_path: Path, home: Path, client_id: str) -> None:
    where, client = machine(tmp_path), get_client(client_id)
    where.home.mkdir()
    path = first_path(client_id, where)
    change = connect.plan_connect(client, where)
    assert connect.apply_connect(change, home) is None
    entry = written_entry(load_document(path), change.keys)
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-1] == "serve"
    assert entry["env"] == {"TOOLSCOUT_HOME": str(home)} if where.env.get("TOOLSCOUT_HOME") else "env" not in entry
    connect.apply_undo(connect.plan_undo(client, where, home), home)
    assert list(where.home.rglob("*")) == []


@pytest.mark.parametrize("client_id", ALL)
def test_undo_after_other_changes_removes_only_our_entry(tmp_path: Path, home: Path, client_id: str) -> None:
    where, client = machine(tmp_path), get_client(client_id)
    texts = {".toml": "# mine\ntheme = 'dark'\n", ".yaml": "# mine\ntheme: dark\n"}
    path = first_path(client_id, where)
    before = texts.get(path.suffix, '{\n    "theme": "dark"\n}\n')
    write(path, before)
    connect.apply_connect(connect.plan_connect(client, where), home)
    path.write_text(path.read_text().replace("dark", "light"))
    connect.apply_undo(connect.plan_undo(client, where, home), home)
    after, expected = path.read_text(), before.replace("dark", "light")
    assert parse_document(after, path) == parse_document(expected, path)
    assert path.suffix not in texts or after.strip() == expected.strip()
    assert "toolscout" not in after


def test_comments_and_layout_stay(tmp_path: Path, home: Path) -> None:
    where = machine(tmp_path)
    path = write(first_path("cursor", where), CURSOR)
    connect.apply_connect(connect.plan_connect(get_client("cursor"), where), home)
    text = path.read_text()
    assert "// servers of mine" in text
    untouched = [line for line in CURSOR.splitlines() if line in text.splitlines()]
    assert untouched == CURSOR.splitlines()
    assert set(jsonc.loads(text)["mcpServers"]) == {"github", "search", "files", "toolscout"}


@pytest.mark.parametrize("client_id", ALL)
@pytest.mark.parametrize(
    "content", [b'{"mcpServers": {', b"\xff\xfe{}", b'{"mcpServers": [], "servers": [], "x": }', b"= = = {"]
)
def test_a_file_that_cannot_be_parsed_is_never_overwritten(
    tmp_path: Path, home: Path, client_id: str, content: bytes
) -> None:
    where = machine(tmp_path)
    path = first_path(client_id, where)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(BadInput) as error:
        connect.plan_connect(get_client(client_id), where)
    assert "--print" in error.value.hint
    assert path.read_bytes() == content
    assert not list(path.parent.glob(".*.??????*"))


@pytest.mark.parametrize("content", ['{"mcpServers": []}', '{"mcpServers": null}', "[]", '{"mcpServers": "x"}'])
def test_a_file_of_another_form_is_left_alone(tmp_path: Path, content: str) -> None:
    where = machine(tmp_path)
    path = write(first_path("claude", where), content)
    with pytest.raises(BadInput):
        connect.plan_connect(get_client("claude"), where)
    assert path.read_text() == content


def test_a_change_between_preview_and_write_is_not_lost(tmp_path: Path, home: Path) -> None:
    where = machine(tmp_path)
    path = write(first_path("cursor", where), "{}")
    change = connect.plan_connect(get_client("cursor"), where)
    path.write_text('{"new": 1}')
    with pytest.raises(StorageError, match="changed"):
        connect.apply_connect(change, home)
    assert path.read_text() == '{"new": 1}'


def test_symbolic_links_byte_order_marks_and_line_ends_survive(tmp_path: Path, home: Path) -> None:
    where = machine(tmp_path)
    real = tmp_path / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    data = b'\xef\xbb\xbf{\r\n\t"mcpServers": {\r\n\t\t"a": {"command": "b"}\r\n\t}\r\n}'
    real.write_bytes(data)
    path = first_path("cursor", where)
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    connect.apply_connect(connect.plan_connect(get_client("cursor"), where), home)
    assert path.is_symlink()
    written = real.read_bytes()
    assert written.startswith(b"\xef\xbb\xbf")
    assert written.count(b"\n") == written.count(b"\r\n")
    connect.apply_undo(connect.plan_undo(get_client("cursor"), where, home), home)
    assert real.read_bytes() == data


def test_connecting_again_after_a_move_updates_the_entry_and_undo_goes_back_to_the_start(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, client = machine(tmp_path), get_client("cursor")
    path = write(first_path("cursor", where), '{"mcpServers": {"a": {"command": "b"}}}')
    before = path.read_bytes()
    connect.apply_connect(connect.plan_connect(client, where), home)
    monkeypatch.setattr(connect, "own_command", lambda: ("/moved/toolscout", ["serve"]))
    connect.apply_connect(connect.plan_connect(client, where), home)
    assert json.loads(path.read_text())["mcpServers"]["toolscout"]["command"] == "/moved/toolscout"
    connect.apply_undo(connect.plan_undo(client, where, home), home)
    assert path.read_bytes() == before


def test_project_files_and_urls(tmp_path: Path, home: Path) -> None:
    where = machine(tmp_path)
    assert where.project is not None
    change = connect.plan_connect(get_client("vscode"), where, project=True, url="http://127.0.0.1:8400/mcp")
    connect.apply_connect(change, home)
    written = json.loads((where.project / ".vscode" / "mcp.json").read_text())
    assert written == {"servers": {"toolscout": {"type": "http", "url": "http://127.0.0.1:8400/mcp"}}}
    with pytest.raises(NotAllowed, match="local commands"):
        connect.plan_connect(get_client("claude"), where, url="http://127.0.0.1:8400/mcp")
    with pytest.raises(NotAllowed, match="project-level"):
        connect.plan_connect(get_client("windsurf"), where, project=True)


@pytest.mark.parametrize("client_id", ALL)
def test_the_snippet_is_what_connect_writes(tmp_path: Path, home: Path, client_id: str) -> None:
    where = machine(tmp_path)
    path, text = connect.snippet(get_client(client_id), where)
    change = connect.plan_connect(get_client(client_id), where)
    assert str(change.path) == path
    assert change.after is not None
    assert parse_document(change.after.decode(), Path(path)) == parse_document(text, Path(path))


def test_a_toml_file_with_inline_servers_is_edited_safely(tmp_path: Path, home: Path) -> None:
    where, client = machine(tmp_path), get_client("codex")
    text = '# note\nmcp_servers = { a = { command = "b" } }  # inline\n[other]\nx = 1\n'
    path = write(first_path("codex", where), text)
    connect.apply_connect(connect.plan_connect(client, where), home)
    assert set(tomllib.loads(path.read_text())["mcp_servers"]) == {"a", "toolscout"}
    assert "# note" in path.read_text()
    connect.apply_undo(connect.plan_undo(client, where, home), home)
    assert path.read_text() == text


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write anywhere, Windows has other rights")
def test_a_folder_without_write_permission_is_one_clear_error(tmp_path: Path, home: Path) -> None:
    where = machine(tmp_path)
    path = write(first_path("cursor", where), "{}")
    path.parent.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="Permission denied"):
            connect.apply_connect(connect.plan_connect(get_client("cursor"), where), home)
    finally:
        path.parent.chmod(0o700)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment",
        'model = "o4"',
        'model = "o4"\n\n\n# tail\n',
        '[mcp_servers]\n\n[mcp_servers.a]\ncommand = "b"  # why\n',
        'mcp_servers.a.command = "b"\nother = 1\n',
        '[[hooks]]\nname = "x"\n\n[[hooks]]\nname = "y"\n',
        '[mcp_servers."odd name"]\ncommand = "b"\nargs = [\n  "one", # first\n  "two",\n]\n\n[profiles.fast]\nx = 1\n',
        'a = 1\r\n\r\n[mcp_servers.b]\r\ncommand = "c"\r\n',
        's = """\n[mcp_servers.toolscout]\ncommand = "not me"\n"""\n',
    ],
)
def test_toml_of_any_layout_gets_the_entry_and_gives_it_back(text: str) -> None:
    path, keys = Path("config.toml"), ("mcp_servers", "toolscout")
    entry = {"command": "/bin/toolscout", "args": ["serve"], "env": {"TOOLSCOUT_HOME": "/home/me/ts"}}
    before = tomllib.loads(text)
    edited = edit.with_entry(text.encode(), path, keys, entry)
    expected = tomllib.loads(text)
    expected.setdefault("mcp_servers", {})["toolscout"] = entry
    assert tomllib.loads(edited.decode()) == expected
    assert all(line in edited.decode().splitlines() for line in text.splitlines())
    removed = edit.without_entry(edited, path, keys, prune=0 if "mcp_servers" in before else 1)
    assert tomllib.loads(removed.decode()) == before
    assert removed.decode().strip() == text.strip()
