"""The forms in which clients' files name servers: what is taken over of each, and that no key is copied."""

from __future__ import annotations

import json
import re
from collections import ChainMap
from pathlib import Path
from typing import Any

import pytest
from client_files import FILES, KEY, PASSWORD, SECRETS, write_files

from toolscout.errors import BadInput, NotAllowed
from toolscout.secret_store import SecretStore
from toolscout.server.clients import connect, documents, edit
from toolscout.server.clients.importing import ImportPlan, apply_import, plan_import, read_sources
from toolscout.server.clients.known import CLIENTS, Machine, get_client
from toolscout.server.clients.read import read_file
from toolscout.server.clients.redact import Redactor
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.secrecy.secrets import MissingSecret, Resolver


@pytest.fixture
def where(tmp_path: Path) -> Machine:
    (tmp_path / "project").mkdir()
    return Machine(tmp_path / "user", "linux", {}, tmp_path / "project")


def planned(where: Machine, document: object, name: str = "m.json") -> ImportPlan:
    """What is planned for a file of this content."""
    path = where.home.parent / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return plan_import(read_sources([str(path)], where), {}, {})


def one(where: Machine, entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of an ``mcpServers`` file as it would be written."""
    (item,) = planned(where, {"mcpServers": {"srv": entry}}).additions
    return dict(item.config)


def started(entry: dict[str, Any], secrets: dict[str, str]) -> UpstreamConfig:
    """An entry as it starts."""
    return UpstreamConfig.parse("srv", entry).resolved(Resolver(secrets))


def test_every_client_is_read_and_no_key_is_copied(where: Machine, tmp_path: Path) -> None:
    list(write_files(where))
    store, servers = SecretStore(tmp_path, "test"), ServersFile(tmp_path / "mcp.json")
    seen = {}
    for client in FILES:
        plan = plan_import(read_sources([client], where), {}, ChainMap({}, store))
        assert not plan.failures
        seen[client] = {i.name: i.action for i in plan.items}
        if client == "goose":
            (notes,) = [i.config for i in plan.additions if i.name == "notes"]
    assert seen == {
        "gemini": {"notes": "add", "docs": "add"},
        "opencode": {"notes": "add", "docs": "skip"},
        "zed": {"notes": "add", "older": "add", "markdown-pdf": "skip"},
        "cline": {"notes": "add", "events": "add", "docs": "add"},
        "roo": {"notes": "add", "docs": "add"},
        "goose": {"developer": "skip", "notes": "add", "docs": "add"},
        "lmstudio": {"docs": "add"},
        "junie": {"notes": "add"},
        "kiro": {"db": "add"},
        "amazonq": {"docs": "add"},
    }
    assert (notes["command"], notes["args"]) == ("npx", ["-y", "notes"])
    assert notes["env"] == {"NOTES_KEY": "${NOTES_KEY}", "API_TOKEN": "${NOTES_API_TOKEN}"}
    apply_import(plan_import(read_sources(list(FILES), where), {}, {}), servers, store)
    assert not any(secret in servers.path.read_text() for secret in SECRETS)
    assert servers.load()["db"].resolved(Resolver(ChainMap({}, store))).args[2].endswith(f"Password={PASSWORD}")


def test_variables_of_opencode_gemini_and_files(where: Machine) -> None:
    (where.home.parent / "key.txt").write_text(f"{KEY}\n")
    (note := where.home.parent / "note.txt").write_text("plain words\n")
    entry = {
        "type": "local",
        "command": ["x", "{env:MODE}"],
        "environment": {
            "A": "{env:A_NAME}",
            "B": "$B_NAME",
            "API_TOKEN": "{file:key.txt}",
            "C": "$c",
            "D": "{file:no}",
            "NOTE": "see {file:note.txt}",
        },
    }
    plan = planned(where, {"mcp": {"srv": entry, "off": {"enabled": False}}})
    (item,) = plan.additions
    assert item.config["args"] == ["${MODE}"]
    env = {
        "A": "${A_NAME}",
        "B": "${B_NAME}",
        "API_TOKEN": "${SRV_API_TOKEN}",
        "C": "$c",
        "D": "{file:no}",
        "NOTE": "see ${NOTE}",
    }
    assert item.config["env"] == env
    assert plan.secrets() == {"SRV_API_TOKEN": KEY, "NOTE": "plain words"}
    assert f"what {note} holds" in [secret.where for secret in item.secrets]
    (inside,) = planned(where, {"mcp": {"srv": {"type": "local", "command": "x --say {file:note.txt}"}}}).additions
    assert (inside.config["args"], inside.secrets[0].value) == (["--say", "${FILE_NOTE_TXT}"], "plain words")
    assert item.entry.notes == ("no could not be read",)


def test_a_second_account_is_another_server(where: Machine) -> None:
    work, home = ({"command": "x", "env": {"GITHUB_TOKEN": f"ghp_{who}0aaaaaaaa"}} for who in ("work", "home"))
    unknown = {"command": "x", "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}}
    plan = planned(where, {"mcpServers": {"work": work, "home": home, "again": home, "unknown": unknown}})
    assert {i.name: (i.action, i.same_as) for i in plan.items} == {
        "work": ("add", ""), "home": ("add", ""), "again": ("same", "home"), "unknown": ("same", "work"),
    }  # fmt: skip
    assert plan.secrets() == {"GITHUB_TOKEN": "ghp_work0aaaaaaaa", "HOME_GITHUB_TOKEN": "ghp_home0aaaaaaaa"}


def test_one_entry_of_another_kind_costs_only_itself(where: Machine) -> None:
    good = {"command": "uvx", "args": ["x"]}
    for document in (
        {"context_servers": {"good": good, "ext": {"settings": {"a": 1}}}},
        {"mcp": {"good": good, "remote": {"enabled": False}}},
        {"servers": {"good": good, "gallery": {"gallery": True}, "text": "odd"}},
        {"mcpServers": {"good": good, "list": {"command": "x", "args": "no list"}, "quote": {"command": "a 'b"}}},
    ):
        plan = planned(where, document)
        assert [i.name for i in plan.additions] == ["good"]
        assert all(i.why for i in plan.items if i.action == "skip")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "mcpServers:\n  - name: srv\n    command: npx\n    args: [-y, thing]\n"),
        ("c.json", '{"mcpServers": [{"name": "srv", "command": "npx", "args": ["-y", "thing"]}]}'),
        ("amp.json", '{"amp.mcpServers": {"srv": {"command": "npx", "args": ["-y", "thing"]}}}'),
        ("x.code-workspace", '{"settings": {"mcp": {"servers": {"srv": {"command": "npx -y thing"}}}}}'),
        (
            "devcontainer.json",
            '{"customizations": {"vscode": {"mcp": {"servers": {"srv": {"command": "npx -y thing"}}}}}}',
        ),
        ("zed.json", '{"context_servers": {"srv": {"command": {"path": "npx", "args": ["-y", "thing"]}}}}'),
        ("v2.json", '{"mcp": {"servers": {"srv": {"type": "local", "command": ["npx", "-y", "thing"]}}}}'),
    ],
)
def test_files_of_other_programs(where: Machine, name: str, text: str) -> None:
    (item,) = planned(where, text, name).additions
    assert (item.name, item.config["command"], item.config["args"]) == ("srv", "npx", ["-y", "thing"])


def test_a_file_of_powershell_and_a_file_without_servers(where: Machine) -> None:
    path = where.home.parent / "utf16.json"
    path.write_bytes('{"mcpServers": {"srv": {"command": "x"}}}'.encode("utf-16"))
    assert [i.name for i in plan_import(read_sources([str(path)], where), {}).additions] == ["srv"]
    with pytest.raises(BadInput, match="no MCP servers") as error:
        planned(where, {"colour": "blue"})
    assert "context_servers" in error.value.hint
    with pytest.raises(BadInput, match="aliases"):
        planned(where, "a: &a [x]\nb: [*a, *a]\n", "bomb.yaml")


def test_sse_by_either_name_and_as_the_client_takes_it(where: Machine) -> None:
    assert one(where, {"url": "http://h/events", "transportType": "sse"})["transport"] == "sse"
    assert "transport" not in one(where, {"url": "http://h/events"}), "it is found out at the first start"
    list(write_files(where))
    kinds = {i.name: i.config.get("transport") for i in plan_import(read_sources(["cline"], where), {}, {}).additions}
    assert kinds == {"notes": None, "events": "sse", "docs": "http"}


def test_what_vs_code_asks_for(where: Machine) -> None:
    asked = [
        {"type": "pickString", "id": "zone", "options": ["a", "b"], "default": "a"},
        {"type": "promptString", "id": "user", "description": "Account"},
        {"type": "promptString", "id": "pass", "default": "x", "password": True},
        {"type": "command", "id": "pick", "command": "acme.pick"},
    ]
    args = ["${input:zone}", "${input:user}", "${input:pass}", "${input:pick}", "${config:acme.path}"]
    plan = planned(where, {"inputs": asked, "servers": {"srv": {"command": "x", "args": args}}})
    (item,) = plan.additions
    assert item.config["args"] == ["${ZONE:-a}", "${INPUT_USER}", "${PASS}", "${PICK}", "${ACME_PATH}"]
    assert plan.to_set() == {
        "INPUT_USER": "srv: Account",
        "PASS": "srv: pass",
        "PICK": "srv: what VS Code's command answers: acme.pick",
        "ACME_PATH": "srv: VS Code's setting acme.path",
    }


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["/c", "set MODE=fast && npx -y p"], {"command": "npx", "args": ["-y", "p"], "env": {"MODE": "fast"}}),
        (["/d", "/s", "/c", "cd /d C:\\w && node d\\i.js"], {"command": "node", "args": ["d\\i.js"], "cwd": "C:\\w"}),
        (["/c", "set", "A=1", "&&", "npx", "p"], {"command": "npx", "args": ["p"], "env": {"A": "1"}}),
        (["/c", "npx -y p 2>nul"], None),
        (["/c", "npx -y p | more"], None),
        (["/c", "%APPDATA%\\npm\\x.cmd"], None),
        (["/c", "call x.bat"], None),
        (["/c", "npx", "-y", "p", "https://h/?a=1&b=2"], {"command": "npx", "args": ["-y", "p", "https://h/?a=1&b=2"]}),
        (["/c", 'C:\\Tools\\x.exe "a b"'], {"command": "C:\\Tools\\x.exe", "args": ["a b"]}),
    ],
)
def test_cmd_is_taken_apart_or_kept_as_it_is(where: Machine, args: list[str], expected: dict[str, Any] | None) -> None:
    entry = one(where, {"command": "cmd", "args": args, "env": {"OWN": "1"}})
    wanted = expected or {"command": "cmd", "args": args}
    assert entry == {**wanted, "env": {**wanted.get("env", {}), "OWN": "1"}}


def test_backslashes_and_the_home_in_a_command_line(where: Machine) -> None:
    assert one(where, {"command": "node .\\dist\\index.js"})["args"] == [".\\dist\\index.js"]
    entry = one(where, {"command": "~/bin/server", "args": ["~/notes", "a~b"]})
    assert (entry["command"], entry["args"]) == (f"{where.home}/bin/server", [f"{where.home}/notes", "a~b"])


# --- keys -------------------------------------------------------------------------------------------------------------

_JSON = json.dumps({"internalKey": KEY, "page": 5, "inner": json.dumps({"password": 'a"b\\c', "on": True})})


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"HEADERS": json.dumps({"Authorization": f"Bearer {KEY}"})}},
        {"command": "x", "args": ["--config", _JSON]},
        {"command": "x", "args": [f"--config={_JSON}"]},
        {"command": "x", "env": {"AUTH_HEADER": f"Bearer {KEY}"}},
        {"command": "x", "env": {"CONNECTION": f"Server=db;User Id=sa;Password={PASSWORD}"}},
        {"command": "x", "env": {"CONNECTION": f"cache:6379,password={PASSWORD},ssl=True"}},
        {"command": "x", "env": {"CONNECTION": f"host=a password='{PASSWORD}' dbname=z"}},
        {"command": "x", "env": {"CONNECTION": f"jdbc:sqlserver://h;user=sa;password={PASSWORD}"}},
        {"command": "x", "args": [f"Server=db;Password={PASSWORD}"]},
        {"command": "x", "args": ["--dsn", f"Server=db;Password={PASSWORD}", "--auth", f"user:{KEY}"]},
        {"command": "docker", "args": ["run", f"--env=API_TOKEN={KEY}", "img"]},
        {"command": "bash", "args": ["-c", f"API_TOKEN={KEY} exec server --url https://u:{PASSWORD}@h/x"]},
        {"command": "wsl", "args": ["bash", "-lc", f"export API_TOKEN='{KEY}'; server -H \"X-Key: {KEY}\""]},
        {"command": "npx", "args": ["r", "--header", "Authorization:${H}"], "env": {"H": f"Bearer {KEY}"}},
        {"command": "x", "args": ["--key", "${API_KEY}"], "env": {"API_KEY": KEY}},
    ],
)
def test_a_key_is_kept_wherever_it_stands_and_comes_back_whole(entry: dict[str, Any], where: Machine) -> None:
    config, found = Redactor(values={}).clean("srv", entry)
    assert found and not any(secret in json.dumps(config) for secret in (*SECRETS, 'a\\\\"b'))
    assert all(f"${{{s.reference}}}" in json.dumps(config) and "${" not in s.value for s in found)
    again = started(config, {s.reference: s.value for s in found})
    own = entry.get("env", {})
    expected = [re.sub(r"\$\{(\w+)\}", lambda m: own.get(m[1], m[0]), arg) for arg in entry.get("args", ())]
    assert list(again.args) == expected
    assert dict(again.env) == own


def test_a_shell_keeps_the_variables_that_are_its_own() -> None:
    line = 'PORT=7; for i in 1 2; do :; done; exec x --port ${PORT} ${i} ${MODE} --key "${API_KEY}"'
    entry = {"command": "bash", "args": ["-c", line], "env": {"API_KEY": "${API_KEY}"}}
    assert UpstreamConfig.parse("srv", entry).references() == ["MODE", "API_KEY"]
    again = started(entry, {"API_KEY": KEY, "MODE": "fast", "PORT": "8"})
    assert again.args[1] == line.replace("${MODE}", "fast")
    assert again.env["API_KEY"] == KEY
    with pytest.raises(MissingSecret, match="MODE"):
        started(entry, {"API_KEY": KEY})


def test_a_name_that_every_machine_has_stands_for_no_key() -> None:
    config, _ = Redactor(values={}).clean("srv", {"command": "x", "args": [f"user:{KEY}"]})
    assert config["args"] == ["user:${SRV_USER}"]


# --- YAML, and clients that write their own way -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "GOOSE_MODE: auto",
        "GOOSE_MODE: auto\nextensions:\n",
        "extensions: {}  # none\nGOOSE_MODE: auto\n",
        "extensions:\n  # mine\n  a:\n    cmd: x\n    args:\n    - one\n# tail\nb: 1\n",
        "extensions:\n    a: {cmd: x}\n",
        'extensions: {"a": {"cmd": "x"}}\n',
        "a: 1\r\nextensions:\r\n  b:\r\n    cmd: c\r\n",
        "extensions:\n  a:\n    text: |\n      one\n      two\n\n",
    ],
)
def test_yaml_of_any_layout_gets_the_entry_and_gives_it_back(text: str) -> None:
    path, keys = Path("config.yaml"), ("extensions", "toolscout")
    entry = {"cmd": "/bin/toolscout", "args": ["serve"], "enabled": True, "envs": {"HOME": "C:\\x: #y"}}
    before = documents.load_yaml(text) or {}
    edited = edit.with_entry(text.encode(), path, keys, entry)
    after = {**before, "extensions": {**(before.get("extensions") or {}), "toolscout": entry}}
    assert documents.load_yaml(edited.decode()) == after
    assert edited.count(b"\n") == edited.count(b"\r\n") or b"\r\n" not in edited
    again = edit.with_entry(edited, path, keys, {**entry, "enabled": False})
    assert documents.load_yaml(again.decode())["extensions"]["toolscout"]["enabled"] is False
    removed = edit.without_entry(edited, path, keys, prune=0 if "extensions" in before else 1)
    assert documents.load_yaml(removed.decode()) in (before or None, {**before, "extensions": {}})
    if before.get("extensions") and "{" not in text:
        assert removed == text.encode()


@pytest.mark.parametrize("text", ["extensions: [a]\n", "[a]\n", "- a\n", "{a: 1}\n"])
def test_yaml_of_another_form_is_left_alone(text: str) -> None:
    with pytest.raises(BadInput):
        edit.with_entry(text.encode(), Path("config.yaml"), ("extensions", "toolscout"), {"cmd": "x"})


def test_opencode_of_either_version_gets_the_entry_where_it_looks(where: Machine, home: Path) -> None:
    client = get_client("opencode")
    path = next(iter(client.places(where))).path
    path.parent.mkdir(parents=True)
    for text, key in (("{}", ("mcp",)), ('{"mcp": {"servers": {}}}', ("mcp", "servers"))):
        path.write_text(text)
        connect.apply_connect(connect.plan_connect(client, where), home)
        entry = edit.lookup(json.loads(path.read_text()), (*key, "toolscout"))
        assert entry["type"] == "local" and entry["command"][-1] == "serve"
        assert [i.why for i in plan_import(read_sources(["opencode"], where), {}).items] == ["is Toolscout itself"]
        connect.apply_undo(connect.plan_undo(client, where, home), home)
        assert path.read_text() == text


def test_a_client_that_is_set_up_by_hand_says_where(where: Machine) -> None:
    client = get_client("jetbrains")
    place, text = connect.snippet(client, where)
    assert "AI Assistant" in place and json.loads(text)["mcpServers"]["toolscout"]
    with pytest.raises(NotAllowed, match="AI Assistant") as error:
        connect.plan_connect(client, where)
    assert "--print" in error.value.hint


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude-code", {"type": "http", "alwaysLoad": True, "url": "http://h/mcp"}),
        ("gemini", {"httpUrl": "http://h/mcp"}),
        ("opencode", {"type": "remote", "url": "http://h/mcp"}),
        ("cline", {"type": "streamableHttp", "url": "http://h/mcp"}),
        ("roo", {"type": "streamable-http", "url": "http://h/mcp"}),
        ("zed", {"url": "http://h/mcp"}),
        ("amazonq", {"type": "http", "url": "http://h/mcp"}),
    ],
)
def test_each_client_names_a_remote_server_its_way(client: str, expected: dict[str, str]) -> None:
    assert connect.own_entry(get_client(client), url="http://h/mcp") == expected
    assert connect.own_entry(get_client("claude-code"))["alwaysLoad"] is True
    goose = connect.own_entry(get_client("goose"), url="http://h/mcp")
    assert (goose["uri"], goose["type"], goose["enabled"]) == ("http://h/mcp", "streamable_http", True)


@pytest.mark.parametrize(
    ("client", "platform", "env", "expected"),
    [
        ("gemini", "linux", {"GEMINI_CLI_HOME": "/g"}, "/g/.gemini/settings.json"),
        ("goose", "darwin", {}, "~/.config/goose/config.yaml"),
        ("goose", "win32", {"APPDATA": "/r"}, "/r/Block/goose/config/config.yaml"),
        ("zed", "darwin", {}, "~/.config/zed/settings.json"),
        ("zed", "win32", {"APPDATA": "/r"}, "/r/Zed/settings.json"),
        ("opencode", "win32", {}, "~/.config/opencode/opencode.json"),
        ("cline", "linux", {"CLINE_DIR": "/c"}, "/c/data/settings/cline_mcp_settings.json"),
        (
            "roo", "linux", {},
            "~/.config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        ),
    ],
)  # fmt: skip
def test_paths_of_the_newer_clients(
    tmp_path: Path, client: str, platform: str, env: dict[str, str], expected: str
) -> None:
    machine = Machine(tmp_path, platform, env, None)
    assert next(iter(get_client(client).places(machine))).path == Path(expected.replace("~", str(tmp_path)))


def test_the_help_and_the_readme_name_every_client() -> None:
    from toolscout.commands import connecting, importing

    readme = (Path(__file__).parents[1] / "README.md").read_text()
    for text in (connecting.CLIENT_HELP, importing.SOURCES_HELP, readme):
        assert all(name in text for name in CLIENTS)


@pytest.mark.parametrize(
    "more", [{"auth": "oauth"}, {"auth": {"CLIENT_ID": "x", "scopes": ["a"]}}, {"oauth": {"client_id": "x"}}]
)
def test_a_login_in_a_clients_form_becomes_one_of_ours(tmp_path: Path, more: dict[str, Any]) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"url": "https://a.example/mcp", **more}}}))
    entry = read_file(file, Machine(home=tmp_path)).entries[0]
    assert entry.config["auth"] == "oauth" and any("toolscout login" in note for note in entry.notes)
    assert any("client id" in note for note in entry.notes) is isinstance(next(iter(more.values())), dict)


def test_a_name_that_says_nothing_of_its_server_gets_the_servers_name() -> None:
    url = "http://user:hunter2hunter2@proxy.example:8080/"
    entry = {
        "command": "x",
        "args": ["--proxy", url, "--key", "hunter3hunter3"],
        "env": {"HTTP_PROXY": url, "ACME_TOKEN": "t1"},
    }
    cleaned, _ = Redactor(values={}).clean("acme", entry)
    assert cleaned["args"] == ["--proxy", "http://user:${ACME_PROXY}@proxy.example:8080/", "--key", "${ACME_KEY}"]
    assert cleaned["env"] == {"HTTP_PROXY": "${ACME_HTTP_PROXY}", "ACME_TOKEN": "${ACME_TOKEN}"}


def test_what_an_env_file_holds_is_kept_as_secret_whatever_it_is(where: Machine, tmp_path: Path) -> None:
    (tmp_path / "own.env").write_text("PLAN=gold\nTOKEN='abc'\nEMPTY=\n")
    entry = {"command": "x", "envFile": str(tmp_path / "own.env"), "env": {"MODE": "fast"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"acme": entry}}))
    plan = plan_import(read_sources([str(tmp_path / "mcp.json")], where), {}, {})
    assert plan.items[0].config["env"] == {"PLAN": "${PLAN}", "TOKEN": "${ACME_TOKEN}", "EMPTY": "", "MODE": "fast"}
    assert plan.secrets() == {"PLAN": "gold", "ACME_TOKEN": "abc"}
