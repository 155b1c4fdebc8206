"""``toolscout doctor`` over past calls: the log and the metrics of a real server with real faults."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx
import pytest
from fastmcp import Client
from here import over_http

from toolscout.cli import execute
from toolscout.errors import BadInput, NotFound
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.doctor.calls import examine_calls
from toolscout.server.doctor.traffic import Traffic, from_logs, from_metrics
from toolscout.server.engine import Engine
from toolscout.server.telling.metrics import MOST_SERVERS, OTHERS, Metrics
from toolscout.settings import Settings

UPSTREAMS = Path(__file__).parent / "upstreams"
DENY = '[[rules]]\naction = "deny"\ntool = "env"\nreason = "no"\n[rates]\nupstream = "7/h"\n'


async def fill(settings: Settings) -> None:
    servers = ServersFile(settings.servers_file)
    servers.add(UpstreamConfig.stdio("tiny", sys.executable, ["-I", "-S", str(UPSTREAMS / "tiny.py")]))
    async with Engine(settings) as engine:
        await engine.refresh_server("tiny")
    (settings.home / "policy.toml").write_text(DENY)


async def test_metrics_of_a_real_server_and_what_doctor_makes_of_them(settings: Settings, tmp_path: Path) -> None:
    await fill(settings)
    async with over_http(settings) as url, Client(f"{url}/mcp", mode="auto") as client, httpx.AsyncClient() as http:

        async def invoke(tool: str) -> None:
            await client.call_tool_mcp("invoke", {"tool_id": f"tiny/{tool}", "arguments": {}})

        for tool in ("echo", "crash", "crash", "crash", "crash", "fail", "env", "no-such-tool", "echo", "echo"):
            await invoke(tool)
        await client.call_tool_mcp("find_tools", {"query": "echo"})
        assert (await client.call_tool_mcp("such_a_tool_is_not_here", {})).is_error
        page = (await http.get(f"{url}/metrics")).text
        assert 'toolscout_refusals_total{by="policy",reason="policy_denied"} 1.0' in page
        assert 'toolscout_refusals_total{by="rate",reason="rate_limited"}' in page
        assert 'toolscout_call_errors_total{error="not_found",tool="invoke"} 1.0' in page
        # After the second crash in a row it is left alone for a while.
        assert 'toolscout_upstream_calls_total{error="upstream_crashed",server="tiny"}' in page
        assert 'toolscout_upstream_call_seconds_count{server="tiny"} 7.0' in page
        assert "no-such-tool" not in page and "such_a_tool" not in page  # what clients invent is no label
        assert 'toolscout_calls_total{outcome="error",tool="unknown"} 1.0' in page
        assert 'toolscout_call_errors_total{error="unknown_tool",tool="unknown"} 1.0' in page
        assert 'toolscout_call_seconds_count{tool="find_tools"} 1.0' in page
        for name in ("index_age_seconds", "index_servers", "catalogue_tools", 'http_bytes_total{direction="out"}'):
            assert float(page.split(f"\ntoolscout_{name} ")[1].split()[0]) > 0, name
        assert "toolscout_upstream_crashes_total" in page and 'toolscout_upstream_up{server="tiny"}' in page
        found = await asyncio.to_thread(from_metrics, url)
    checks = {check.name: check for check in examine_calls(found)}
    assert checks["server tiny"].status == "fail" and " of 7 calls failed (" in checks["server tiny"].detail
    assert checks["refused by policy"].detail == "policy_denied 1" and checks["refused by rate"].fix
    assert checks["calls"].detail.startswith("12 in ")
    saved = tmp_path / "metrics.txt"
    saved.write_text(page)
    assert examine_calls(from_metrics(str(saved)))[1:] == examine_calls(found)[1:]


def line(**event: object) -> str:
    return json.dumps({"logger": "toolscout.calls", "message": "x", **event}) + "\n"


def test_a_log_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    slow = line(event="call", tool="invoke", server="slow", target="t", outcome="ok", duration_ms=20_000)
    late = line(event="call", tool="invoke", server="late", outcome="error", error="upstream_timeout", duration_ms=9)
    good = line(event="call", tool="invoke", server="good", outcome="ok", duration_ms=3)
    wrong = line(event="call", tool="invoke", server="good", outcome="error", error="tool_error", duration_ms=3)
    held = line(
        event="call", tool="invoke", server="h", outcome="error", error="quarantined", refused_by="guard", duration_ms=1
    )
    fault = line(event="call", tool="find_tools", outcome="error", error="internal", duration_ms=1)
    dead = line(event="upstream_start", server="dead", outcome="error", error="upstream_start_failed", duration_ms=1)
    log.write_text("what another program said\n" + slow * 9 + late * 6 + good * 50 + wrong * 5 + held + fault + dead)
    assert execute(["doctor", "--logs", str(log), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in answer["checks"]}
    assert not answer["ok"]
    assert checks["calls"]["detail"].startswith("72 in ")
    assert (
        checks["server late"]["status"] == "fail" and "TOOLSCOUT_UPSTREAM_CALL_TIMEOUT" in checks["server late"]["fix"]
    )
    assert checks["server slow"]["status"] == "warn" and "20 s" in checks["server slow"]["detail"]
    assert "toolscout review" in checks["refused by guard"]["fix"]
    assert checks["faults"] | {} == checks["faults"] and "find_tools 1" in checks["faults"]["detail"]
    assert "1 starts failed" in checks["server dead"]["detail"]
    assert "server good" not in checks  # a wrong call says nothing against the server


def test_what_is_no_log_and_no_metrics_page_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="cannot be read"):
        from_logs(tmp_path / "none")
    other = tmp_path / "other"
    other.write_text("plain words\n")
    with pytest.raises(BadInput, match="no JSON log"):
        from_logs(other)
    with pytest.raises(BadInput, match="no metrics page"):
        from_metrics(str(other))
    with pytest.raises(NotFound, match="does not answer"):
        from_metrics("http://127.0.0.1:9")
    other.write_text("")
    assert examine_calls(from_logs(other))[0].detail.startswith("0 in ")


def test_labels_of_upstreams_are_bounded(settings: Settings) -> None:
    metrics = Metrics(Engine(settings))
    for n in range(MOST_SERVERS + 50):
        metrics.upstream_call(f"s{n}", "", 0.1)
    labels = {s.labels["server"] for f in metrics.registry.collect() for s in f.samples if "server" in s.labels}
    assert len(labels) == MOST_SERVERS + 1 and OTHERS in labels


def test_percentiles_come_from_buckets() -> None:
    upstream = Traffic("x").of("s")
    upstream.buckets = {0.1: 50.0, 1.0: 96.0, float("inf"): 100.0}
    assert upstream.slow() == 1.0


@pytest.mark.parametrize("bound", ["", ',le="abc"'])
def test_odd_metrics_are_passed_over(tmp_path: Path, bound: str) -> None:
    odd = f'toolscout_upstream_call_seconds_bucket{{server="a"{bound}}} 3'
    (tmp_path / "page").write_text(f'{odd}\ntoolscout_calls_total{{tool="invoke",outcome="ok"}} 2\n')
    assert from_metrics(str(tmp_path / "page")).calls == 2


def test_odd_logs_and_addresses(tmp_path: Path) -> None:
    entry = {"logger": "l", "message": "m", "event": "call", "tool": "invoke", "server": "s", "duration_ms": 1}
    huge = json.dumps(entry).replace('"duration_ms": 1', f'"duration_ms": 1{"0" * 400}')
    (tmp_path / "log").write_text(f"{huge}\n{json.dumps(entry)}\n")
    assert from_logs(tmp_path / "log").calls == 2
    for address in ("http://[::1", "http://ann:passw0rd@127.0.0.1:1/metrics"):
        with pytest.raises(NotFound) as caught:
            from_metrics(address)
        assert "passw0rd" not in str(caught.value) and "does not answer" in str(caught.value)
