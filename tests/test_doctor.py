"""The doctor: finds what is really broken, says what to do, and leaves a healthy machine in peace."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from toolscout.cli import execute
from toolscout.index.asset import DEFAULT_ENCODER, MODEL, encoders_folder
from toolscout.index.catalogue import Catalogue
from toolscout.index.pack.current import CURRENT, packs_folder
from toolscout.index.pack.file import PackFile, write_pack
from toolscout.index.pack.signature import make_key, sign
from toolscout.records import Server, Tool
from toolscout.server.clients.connect import apply_connect, plan_connect
from toolscout.server.clients.known import Machine, get_client
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.doctor.examine import Check, examine
from toolscout.server.starter import STARTERS, starter_config
from toolscout.settings import Settings


async def checks_of(settings: Settings, **options: bool) -> dict[str, Check]:
    machine = Machine(settings.home.parent / "user", "linux", {}, None)
    return {check.name: check for check in await examine(settings, machine=machine, **options)}


def cut_off(pack: Path, copy: Path) -> str:
    copy.write_bytes(pack.read_bytes()[:1_000_000])
    return str(copy)


def contents(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_fresh_machine_is_well(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolscout.server.models.packaged_model", lambda: None)
    checks = await checks_of(Settings(home=home))
    # Without a model and in no client's configuration Toolscout works, but could do more.
    assert {name: c.status for name, c in checks.items() if c.status != "ok"} == {"model": "warn", "clients": "warn"}
    assert "model pull toolscout-smollm2-135m" in checks["model"].fix, "as model list names it"
    assert contents(home) == []
    everything = ["installation", "packages", "home", "encoder", "catalogue", "index", "pack"]
    everything += ["sandbox", "servers", "policy", "model", "clients"]
    assert list(checks) == everything


async def test_each_upstream_is_started_and_each_failure_says_what_to_do(settings: Settings) -> None:
    servers = ServersFile(settings.servers_file)
    servers.add(starter_config(STARTERS[0]))
    servers.add(UpstreamConfig.stdio("gone", "/no/such/program"))
    servers.add(UpstreamConfig.stdio("node", "npx-of-another-name"))
    crash = "import sys; sys.exit('licence file not found')"
    servers.add(UpstreamConfig.stdio("crash", sys.executable, ["-c", crash]))
    servers.add(UpstreamConfig.stdio("keyed", sys.executable, ["-c", "pass"], {"KEY": "${A_VARIABLE_NOBODY_SET}"}))
    servers.add(UpstreamConfig.remote("away", "http://127.0.0.1:9/mcp?key=${UNSET_KEY:-x}"))
    document = json.loads(settings.servers_file.read_text())
    document["mcpServers"]["broken"] = {"args": ["x"]}
    document["mcpServers"]["off"] = {"command": "whatever", "disabled": True}
    settings.servers_file.write_text(json.dumps(document))

    checks = await checks_of(settings)
    assert checks["server time"].status == "ok"
    assert checks["server time"].detail == "2 tools"
    assert checks["server time"].seconds is not None
    assert checks["server gone"].status == "fail"
    assert "moved" in checks["server gone"].fix
    assert "npx-of-another-name is not on the PATH" in checks["server node"].detail
    assert checks["server crash"].status == "fail"
    assert "licence file not found" in checks["server crash"].detail + checks["server crash"].fix
    assert checks["server keyed"].detail == "A_VARIABLE_NOBODY_SET not set"
    assert "toolscout secret set A_VARIABLE_NOBODY_SET" in checks["server keyed"].fix
    assert checks["server away"].status == "fail"
    assert checks["server away"].fix
    assert checks["server broken"].status == "fail"
    assert "toolscout remove broken" in checks["server broken"].fix
    assert checks["server off"].status == "warn"
    quick = await checks_of(settings, upstreams=False)
    assert (quick["server time"].status, quick["server time"].detail) == ("ok", "configured")
    assert quick["server crash"].status == "fail", "as it was when it was last started"
    assert "licence file not found" in quick["server crash"].detail


@pytest.mark.parametrize(("runner", "installer"), [("uvx", None), ("npx", "npm")])
async def test_what_toolscout_installs_into_a_sandbox_needs_no_runner_on_the_path(
    home: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any,
    runner: str, installer: str | None,
) -> None:  # fmt: skip
    async def told(name: str) -> tuple[str, str]:
        assert execute(["list", "--json"]) == 0
        (row,) = [row for row in json.loads(capsys.readouterr().out) if row["name"] == name]
        return row["why"], (await checks_of(settings, upstreams=False))[f"server {name}"].detail

    servers = ServersFile(settings.servers_file)
    servers.add(UpstreamConfig.parse("boxed", {"command": runner, "args": ["weather-mcp"], "sandbox": True}))
    servers.add(UpstreamConfig.parse("free", {"command": runner, "args": ["weather-mcp"], "sandbox": False}))
    servers.add(UpstreamConfig.parse("image", {"command": "docker", "args": ["run", "x"], "sandbox": True}))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await told("image") == ("docker is not on the PATH", "docker is not on the PATH.")
    assert await told("free") == (f"{runner} is not on the PATH", f"{runner} is not on the PATH.")
    if installer is not None:
        assert await told("boxed") == (f"{runner} is not on the PATH", f"{runner} is not on the PATH.")
        (tmp_path / installer).write_text("#!/bin/sh\n")
        (tmp_path / installer).chmod(0o755)
    assert await told("boxed") == ("its tools were never listed: toolscout refresh", "configured")


async def test_an_index_behind_its_catalogue_is_noticed(settings: Settings) -> None:
    from toolscout.index.build import build_index

    def put(name: str) -> None:
        tool = Tool(tool_id=f"srv/{name}", server_id="srv", name=name, description=f"Does {name}.", input_schema={})
        catalogue.put_server(Server(server_id="srv", name="srv"), [tool])

    with Catalogue(settings.database_url) as catalogue:
        put("one")
        assert (await checks_of(settings))["index"].fix == "Run: toolscout index build"
        build_index(catalogue, settings)
        fresh = (await checks_of(settings))["index"]
        assert (fresh.status, fresh.detail) == ("ok", "1 tools, up to date")
        put("two")
    assert (await checks_of(settings))["index"].status == "warn"


async def test_the_pack_in_use_is_told_and_what_is_wrong_with_it(
    settings: Settings, with_pack: Path, tmp_path: Path
) -> None:
    async def told(pack: str) -> Check:
        return (await checks_of(settings.model_copy(update={"pack": pack})))["pack"]

    def changed(**values: Any) -> str:
        shipped = PackFile.open(with_pack)
        write_pack(tmp_path / "changed.pack", shipped.arrays, replace(shipped.manifest, **values))
        return str(tmp_path / "changed.pack")

    today = datetime.now(UTC).date()
    manifest = PackFile.open(with_pack).manifest
    fresh = await told(changed(date=str(today - timedelta(days=120))))
    assert (fresh.status, fresh.fix) == ("ok", "")
    assert f"{manifest.servers:,} servers, {manifest.tools:,} tools, 120 days old" in fresh.detail
    old = await told(changed(date=str(today - timedelta(days=121))))
    assert old.status == "warn" and "121 days old" in old.detail and "toolscout catalog update" in old.fix
    other = await told(changed(encoder="another"))
    assert other.status == "warn" and "another encoder" in other.detail and "TOOLSCOUT_ENCODER" in other.fix
    cut = await told(cut_off(with_pack, tmp_path / "cut.pack"))
    assert cut.status == "warn" and "damaged" in cut.detail and "toolscout catalog update" in cut.fix
    off = await told("off")
    assert (off.status, off.fix) == ("ok", "") and "switched off" in off.detail

    # A fetched pack that is damaged, or was changed since it was signed: search goes on with the shipped one.
    packs_folder(settings).mkdir()
    cut_off(with_pack, packs_folder(settings) / "cut.pack")
    (packs_folder(settings) / CURRENT).write_text("cut.pack\n")
    instead = await told("default")
    assert instead.status == "warn" and manifest.date in instead.detail and "cut.pack is damaged" in instead.detail
    (packs_folder(settings) / CURRENT).write_text("../nothing\n")
    assert "names no built-in catalog" in (await told("default")).detail
    signed = tmp_path / "changed.pack"
    make_key(tmp_path / "key")
    settings.pack_keys = [sign(signed, tmp_path / "key")]
    changed(servers=manifest.servers, date=str(today))
    assert "changed or damaged after it was signed" in (await told(str(signed))).detail


async def test_damaged_files_are_named(settings: Settings, tmp_path: Path) -> None:
    settings.servers_file.write_text("{ not json")
    (settings.home / "catalogue.db").write_bytes(b"this is no database" * 100)
    folder = tmp_path / "encoder"
    shutil.copytree(encoders_folder() / DEFAULT_ENCODER, folder)
    data = bytearray((folder / MODEL).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / MODEL).write_bytes(data)
    settings.encoder = str(folder)
    checks = await checks_of(settings)
    for name in ("servers", "catalogue", "encoder"):
        assert checks[name].status == "fail", name
        assert checks[name].fix, name
    assert "SHA-256" in checks["encoder"].detail


@pytest.mark.parametrize(
    ("status", "models", "wanted", "expected"),
    [
        (200, ["qwen"], "qwen", ("ok", "qwen")),
        (200, ["qwen"], "llama", ("fail", "no llama")),
        (401, [], "qwen", ("fail", "401")),
        (200, ["base@chooses=no", "run@style=compact"], "run", ("ok", "run at")),
    ],
)
async def test_a_model_endpoint_is_asked(
    settings: Settings, status: int, models: list[str], wanted: str, expected: tuple[str, str]
) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps({"data": [{"id": m} for m in models]}).encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            settings.model_url, settings.model = f"http://127.0.0.1:{server.server_address[1]}/v1", wanted
            check = (await checks_of(settings))["model"]
        finally:
            server.shutdown()
            thread.join()
    assert check.status == expected[0]
    assert expected[1] in check.detail


async def test_a_client_that_starts_a_moved_installation_is_noticed(settings: Settings) -> None:
    machine = Machine(settings.home.parent / "user", "linux", {}, None)
    change = plan_connect(get_client("cursor"), machine)
    apply_connect(change, settings.home)
    check = (await checks_of(settings))["clients"]
    assert (check.status, check.detail) == ("ok", "Cursor")
    text = change.path.read_text()
    change.path.write_text(text.replace(json.loads(text)["mcpServers"]["toolscout"]["command"], "/gone/bin/toolscout"))
    check = (await checks_of(settings))["clients"]
    assert (check.status, check.fix) == ("fail", "Run: toolscout connect cursor")


async def test_a_dead_model_endpoint_and_an_unknown_model_fail(settings: Settings) -> None:
    settings.model_url = "http://127.0.0.1:9/v1"
    assert (await checks_of(settings))["model"].status == "fail"
    settings.model_url, settings.model = "", "no-such-model"
    assert (await checks_of(settings))["model"].status == "fail"


def test_the_command_exits_with_one_when_something_is_broken(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert execute(["doctor"]) == 0
    assert "Everything works." in capsys.readouterr().out
    (home / "mcp.json").write_text("{ not json")
    assert execute(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert [c["name"] for c in report["checks"] if c["status"] == "fail"] == ["servers"]
