"""Kept secrets and the settings file: what a client started from the desktop finds without a shell's variables."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from filelock import FileLock

from toolscout import files
from toolscout.commands.configuring import write_settings
from toolscout.errors import BadInput, StorageError
from toolscout.secret_store import SecretStore, known_values
from toolscout.settings import Settings, checked_settings, load_settings, read_config


@pytest.fixture
def memory_keyring(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    """A keyring backend in memory: the machine's own must not be written by tests."""
    import keyring
    from keyring.backend import KeyringBackend

    kept: dict[tuple[str, str], str] = {}

    class Memory(KeyringBackend):
        priority = 1  # type: ignore[assignment]

        def get_password(self, service: str, username: str) -> str | None:
            return kept.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            kept[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            del kept[service, username]

    monkeypatch.setattr(keyring.core, "_keyring_backend", Memory())
    return kept


def run(home: Path, *arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """One command of the command line, in an environment with nothing of this shell's."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHON_KEYRING_BACKEND")}
    env = {**kept, "HOME": str(home), "TOOLSCOUT_HOME": str(home), "TOOLSCOUT_PACK": "off", **environ}
    command = [sys.executable, "-m", "toolscout", *arguments]
    return subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, timeout=120)


def test_a_keyring_holds_the_value_and_the_file_the_name(
    tmp_path: Path, memory_keyring: dict[tuple[str, str], str]
) -> None:
    store = SecretStore(tmp_path, "test")
    store["GITHUB_TOKEN"] = "ghp_value"
    assert memory_keyring["test", "GITHUB_TOKEN"] == "ghp_value" == store["GITHUB_TOKEN"]
    assert json.loads(store.path.read_text()) == {"GITHUB_TOKEN": None}
    assert store.place("GITHUB_TOKEN") == "keyring"
    del store["GITHUB_TOKEN"]
    assert not memory_keyring and not len(store) and store.find("GITHUB_TOKEN") is None


def test_what_a_keyring_took_before_it_was_locked_is_forgotten_too(
    tmp_path: Path, memory_keyring: dict[tuple[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import keyring
    from keyring.errors import KeyringLocked, NoKeyringError

    def fail(*_: object) -> None:
        raise errors[-1]

    store = SecretStore(tmp_path, "test")
    store["TOKEN"] = "old"
    errors: list[Exception] = []
    with monkeypatch.context() as patch:
        for method in ("get_password", "set_password", "delete_password"):
            patch.setattr(keyring, method, fail)
        for error in (KeyringLocked(), NoKeyringError()):
            errors.append(error)
            with pytest.raises(StorageError, match="TOKEN could not be removed from the system's keyring"):
                del store["TOKEN"]
            assert "TOKEN" in store, "it can be removed later"
        store["TOKEN"] = "new"
        assert store.place("TOKEN") == "file"
    del store["TOKEN"]
    assert not memory_keyring and "TOKEN" not in store


def test_without_a_keyring_the_file_is_the_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SecretStore(tmp_path, "test")
    store.path.write_text("{}")
    store.path.chmod(0o644)
    modes: list[int] = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        modes.append(stat.S_IMODE(self.stat().st_mode))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    store["TOKEN"] = "value"
    assert modes == [0o600], "at no time could others read it"
    assert store.place("TOKEN") == "file" and SecretStore(tmp_path, "test")["TOKEN"] == "value"
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "A B", "${A}", "1A", "../x"])
def test_a_name_that_no_reference_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="name"):
        SecretStore(tmp_path, "test")[name] = "value"


def test_a_damaged_file_is_not_written_over(tmp_path: Path) -> None:
    store = SecretStore(tmp_path, "test")
    store.path.write_text('{"A": "kept by hand"')
    with pytest.raises(StorageError, match=r"secrets\.json"):
        store["B"] = "value"
    assert "kept by hand" in store.path.read_text()


def test_the_environment_wins_over_a_kept_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(home=tmp_path)
    SecretStore(tmp_path, settings.keyring_service)["TOKEN"] = "kept"
    assert known_values(settings)["TOKEN"] == "kept"
    monkeypatch.setenv("TOKEN", "of the shell")
    assert known_values(settings)["TOKEN"] == "of the shell"


def test_each_home_has_its_own_secrets(tmp_path: Path) -> None:
    assert Settings(home=tmp_path / "a").keyring_service != Settings(home=tmp_path / "b").keyring_service


def test_settings_come_from_the_file_below_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCOUT_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text('sandbox = "on"\nmax_upstreams = 3\nallowed_hosts = ["a.example"]\n')
    settings = load_settings()
    assert (settings.sandbox, settings.max_upstreams, settings.allowed_hosts) == ("on", 3, ["a.example"])
    monkeypatch.setenv("TOOLSCOUT_SANDBOX", "network")
    assert load_settings().sandbox == "network"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sandbox = ", "not TOML"),
        ('sandbx = "on"', "Did you mean sandbox"),
        ('sandbox = "maybe"', "The setting sandbox cannot be used"),
        ('home = "/elsewhere"', "TOOLSCOUT_HOME"),
        ('model_key = "sk-very-secret"', "toolscout secret set TOOLSCOUT_MODEL_KEY"),
    ],
)
def test_a_wrong_settings_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(BadInput) as error:
        checked_settings(home=tmp_path)
    assert said in error.value.sentence() and "sk-very-secret" not in error.value.sentence()


def test_config_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("# mine\nmax_upstreams = 3\n")
    assert run(tmp_path, "config", "set", "sandbox", "on").returncode == 0
    assert (tmp_path / "config.toml").read_text() == '# mine\nmax_upstreams = 3\nsandbox = "on"\n'
    assert run(tmp_path, "config", "get", "sandbox").stdout == "on\n"
    refused = run(tmp_path, "config", "set", "sandbox", "maybe")
    assert refused.returncode == 2 and "sandbox cannot be 'maybe'" in refused.stderr
    listed = json.loads(run(tmp_path, "config", "list", "--json", TOOLSCOUT_MODEL="m").stdout)
    assert {r["name"]: r["from"] for r in listed if r["from"] != "default"} == {
        "home": "TOOLSCOUT_HOME", "pack": "TOOLSCOUT_PACK", "model": "TOOLSCOUT_MODEL",
        "sandbox": "config.toml", "max_upstreams": "config.toml",
    }  # fmt: skip
    assert run(tmp_path, "config", "unset", "sandbox").returncode == 0
    assert run(tmp_path, "config", "get", "sandbox").stdout == "off\n"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://u:S3cret@db.example/x", "postgresql+psycopg://u:••••@db.example/x"),
        ("postgresql+psycopg://u:a/S3cret@db.example/x", "postgresql+psycopg://u:••••@db.example/x"),
        ("postgresql://p:p@p.example/?password=S3cret", "postgresql://p:••••@p.example/?password=••••"),
        ("https://m.example:8080/@v1", "https://m.example:8080/@v1"),
    ],
)
def test_a_password_in_a_setting_is_the_owners_alone(tmp_path: Path, url: str, shown: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    path.chmod(0o644)
    said = run(tmp_path, "config", "set", "database", url)
    assert said.stdout == f"database = {shown} ({path})\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and url in path.read_text()
    listed = json.loads(run(tmp_path, "config", "list", "--json").stdout)
    assert next(row["value"] for row in listed if row["name"] == "database") == shown
    path.chmod(0o644)
    assert run(tmp_path, "config", "set", "sandbox", "on").returncode == 0
    path.chmod(0o644)
    assert run(tmp_path, "config", "unset", "sandbox").returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("wrong", ['sandbx = "on"', 'sandbox = "maybe"', 'model_key = "sk-x"', "upstream_idle = nan"])
def test_a_wrong_settings_file_is_repaired_by_commands(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"{wrong}\n# mine\n")
    done = run(tmp_path, "config", "set", "max_upstreams", "3")
    assert done.returncode == 0 and done.stdout == f"max_upstreams = 3 ({path})\n", done.stderr
    assert "Toolscout cannot start yet: " in done.stderr and wrong in path.read_text()
    assert run(tmp_path, "config", "unset", "max_upstreams").stdout == "max_upstreams is 16 again.\n"
    name = wrong.split(" ")[0]
    done = run(tmp_path, "config", "unset", name)
    assert done.returncode == 0 and name in done.stdout and path.read_text() == "# mine\n", done.stderr
    assert run(tmp_path, "config", "list").returncode == 0
    path.write_text("sandbox = ")
    for change in (["set", "sandbox", "on"], ["unset", "sandbox"]):
        assert "is not TOML" in run(tmp_path, "config", *change).stderr
    assert path.read_text() == "sandbox = "


def test_a_setting_is_checked_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default = tmp_path / "default"
    default.mkdir()
    (default / "config.toml").write_text("what = 1")
    monkeypatch.setattr("toolscout.settings.user_data_path", lambda _: default)
    monkeypatch.delenv("TOOLSCOUT_HOME")
    assert write_settings(tmp_path, {"sandbox": "on"}).read_text() == 'sandbox = "on"\n'


def test_an_empty_path_is_none(home: Path) -> None:
    write_settings(home, {"policy": str(home / "p.toml")})
    assert load_settings().policy == home / "p.toml"
    assert write_settings(home, {"policy": "", "health": ""}).read_text() == ""
    (home / "config.toml").write_text('policy = ""\nhealth = ""\nreview_policy = ""\n')
    settings = load_settings()
    assert (settings.policy, settings.health, settings.review_policy) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("upstream_idle", "nan"), ("upstream_idle", "inf"), ("upstream_idle", "-1"), ("upstream_concurrency", "0"),
     ("upstream_call_timeout", "0"), ("probe_timeout", "nan"), ("model_temperature", "nan"), ("model_threads", "-1")],
)  # fmt: skip
def test_a_number_that_breaks_something_is_refused(home: Path, name: str, value: str) -> None:
    with pytest.raises(BadInput, match=f"{name} cannot be '{value}'"):
        write_settings(home, {name: value})
    assert not (home / "config.toml").exists()


def write_one(home: Path, number: int) -> None:
    """In a process of its own: write into each file that processes share."""
    from toolscout.server.clients.connect import _Journal, _Record

    _Journal(home).put(_Record("cursor", f"/{number}", [], True, None, ""))
    SecretStore(home, "test")[f"KEY_{number}"] = "value"
    write_settings(home, {("max_upstreams", "model_context", "probe_timeout", "max_result_bytes")[number]: "7"})


def test_processes_do_not_lose_each_others_changes(tmp_path: Path) -> None:
    for _ in range(3):
        with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
            list(pool.map(write_one, [tmp_path] * 4, range(4)))
        assert len(read_config(tmp_path / "config.toml")) == 4
        assert len(SecretStore(tmp_path, "test")) == 4
        assert len(json.loads((tmp_path / "connections.json").read_text())) == 4
        for name in ("config.toml", "secrets.json", "connections.json"):
            (tmp_path / name).unlink()


def test_a_lock_that_another_process_holds_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LOCK_SECONDS", 0.1)
    with FileLock(tmp_path / "secrets.json.lock"), pytest.raises(StorageError, match="by another process") as caught:
        SecretStore(tmp_path, "test")["TOKEN"] = "value"
    assert "secrets.json is being changed" in str(caught.value)


def test_secrets_on_the_command_line(tmp_path: Path) -> None:
    assert run(tmp_path, "secret", "set", "TOOLSCOUT_MODEL_KEY", stdin="sk-value\n").returncode == 0
    listed = run(tmp_path, "secret", "list")
    assert "TOOLSCOUT_MODEL_KEY" in listed.stdout and "sk-value" not in listed.stdout
    shown = json.loads(run(tmp_path, "config", "list", "--json").stdout)
    assert next(r for r in shown if r["name"] == "model_key") == {
        "name": "model_key", "value": "(set)", "from": "secret",
    }  # fmt: skip
    assert run(tmp_path, "secret", "remove", "NONE", "--yes").returncode == 3
    assert run(tmp_path, "secret", "remove", "TOOLSCOUT_MODEL_KEY", "--yes").returncode == 0
    assert "No secret" in run(tmp_path, "secret", "list").stdout


def test_connect_keeps_a_rotated_key(tmp_path: Path) -> None:
    client = tmp_path / "client.json"
    entry = {"command": "true", "env": {"GITHUB_TOKEN": "ghp_old0old0old0"}}
    client.write_text(json.dumps({"mcpServers": {"github": entry}}))
    assert run(tmp_path, "import", str(client), "--no-check", "--yes").returncode == 0
    assert run(tmp_path, "secret", "set", "GITHUB_TOKEN", stdin="ghp_new0new0new0\n").returncode == 0
    done = run(tmp_path, "connect", "cursor", "--file", str(client), "--replace", "--yes")
    assert "Of these github list no tools here. Why: toolscout refresh github" in done.stdout
    assert done.returncode == 0 and list(json.loads(client.read_text())["mcpServers"]) == ["toolscout"]
    assert "Kept already with another value than in that file, which stays: GITHUB_TOKEN." in done.stdout
    assert SecretStore(tmp_path, Settings(home=tmp_path).keyring_service)["GITHUB_TOKEN"] == "ghp_new0new0new0"


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_secret_that_is_no_text_is_refused(tmp_path: Path, locale: str) -> None:
    command = [sys.executable, "-m", "toolscout", "secret", "set", "X"]
    env = {**os.environ, "TOOLSCOUT_HOME": str(tmp_path), "LC_ALL": locale, "PYTHONUTF8": "0"}
    done = subprocess.run(command, env=env, input=b"\xff\xfeabc", capture_output=True, timeout=120)
    assert done.returncode == 2 and b"X is not kept: what came on standard input is no UTF-8 text." in done.stderr
    assert not (tmp_path / "secrets.json").exists()
    done = subprocess.run(command, env=env, input="gr\u00fcn\r\n".encode(), capture_output=True, timeout=120)
    assert done.returncode == 0 and SecretStore(tmp_path, "test")["X"] == "gr\u00fcn"


def test_doctor_sees_with_a_clients_eyes(tmp_path: Path) -> None:
    """A key of this shell, and a program that only its PATH has, are not there for a client on the desktop."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "mine").symlink_to(sys.executable)
    entry = {"command": "mine", "args": ["-c", "pass"], "env": {"TOKEN": "${ONLY_HERE}"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"a": entry}}))
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "ONLY_HERE": "x", "TOOLSCOUT_STARTER": "0"}
    asked = ["doctor", "--json"]

    def said(*options: str) -> str:
        done = run(tmp_path, *asked, *options, **environ)
        return next(c for c in json.loads(done.stdout)["checks"] if c["name"] == "server a")["detail"]

    assert "ONLY_HERE" not in said() and "ONLY_HERE not set" in said("--as-client")


def test_connect_leaves_nothing_in_the_shell_or_the_clients_file(tmp_path: Path) -> None:
    """What the client starts works without this shell, and the preview shows no secret."""
    secret = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
    password = "correct-horse-battery"
    client = tmp_path / "mcp.json.client"
    client.write_text(
        json.dumps(
            {
                "mcpServers": {
                    "github": {"command": "true", "env": {"GITHUB_TOKEN": secret}},
                    "db": {"command": "true", "args": [f"postgresql://app:{password}@db.example.com/shop"]},
                }
            }
        )
    )
    taken = run(tmp_path, "import", str(client), "--no-secrets", "--no-check", "--yes", TOOLSCOUT_SANDBOX="on")
    assert taken.returncode == 0, taken.stderr
    entries = json.loads((tmp_path / "mcp.json").read_text())["mcpServers"]
    assert entries["github"]["sandbox"] == {"network": True} and not (tmp_path / "secrets.json").exists()
    command = ["connect", "cursor", "--file", str(client), "--replace", "--yes"]
    shell = {"TOOLSCOUT_SANDBOX": "on", "TOOLSCOUT_MODEL_KEY": "sk-model-value"}
    dry = run(tmp_path, *command, "--dry-run", **shell)
    assert f"written into {tmp_path / 'config.toml'}: pack, sandbox\n" in dry.stderr
    assert "kept among your secrets: TOOLSCOUT_MODEL_KEY\n" in dry.stderr
    listed = json.loads(run(tmp_path, *command, "--dry-run", "--json", **shell).stdout)
    assert listed["settings"] == ["pack", "sandbox"] and len(listed["secrets"]) == 3
    assert listed["secrets"][-1] == "TOOLSCOUT_MODEL_KEY" and not (tmp_path / "config.toml").exists()
    done = run(tmp_path, *command, **shell)
    assert done.returncode == 0, done.stderr
    assert not [value for value in (secret, password, "sk-model-value") if value in done.stdout + done.stderr]
    assert list(json.loads(client.read_text())["mcpServers"]) == ["toolscout"]
    assert (tmp_path / "config.toml").read_text() == 'pack = "off"\nsandbox = "on"\n'
    store = SecretStore(tmp_path, Settings(home=tmp_path).keyring_service)
    assert sorted(store.values()) == sorted([secret, password, "sk-model-value"])
    assert checked_settings(home=tmp_path).sandbox == "on"
    listed = json.loads(run(tmp_path, "list", "--json").stdout)
    assert {row["state"] for row in listed} <= {"unavailable"}  # never listed, but no key is missing


def test_who_uses_a_secret_is_said_before_it_is_forgotten(tmp_path: Path) -> None:
    entries = {"gh": {"command": "x", "env": {"A": "${SHARED}"}}, "far": {"url": "http://x/?k=${SHARED:-none}"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    for name in ("SHARED", "ALONE"):
        run(tmp_path, "secret", "set", name, stdin="value")
    done = run(tmp_path, "secret", "remove", "SHARED", "ALONE")
    assert done.returncode == 1 and "SHARED is used by gh, far." in done.stderr and "ALONE is" not in done.stderr
    assert run(tmp_path, "secret", "remove", "SHARED", "--yes").returncode == 0
