"""``serve``, ``doctor``, ``demo``: run it, check it, show it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolscout.commands.output import AsJson, emit, progress, say
from toolscout.errors import BadInput
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.server.doctor.examine import Check


def serve(
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve streamable HTTP there.", show_default="stdio")
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Processes behind the HTTP port (docs/HTTP.md).")] = 1,
    log_format: Annotated[
        str, typer.Option(metavar="plain|json", help="How the log is written to stderr.", show_default="plain")
    ] = "",
) -> None:
    """Run the MCP server: over stdio for a client that starts it, or over HTTP.

    Beyond loopback the HTTP face needs a bearer token in TOOLSCOUT_AUTH_TOKEN. Instead of --log-format, which makes
    the start a little slower, a client's configuration may set TOOLSCOUT_LOG_FORMAT.
    """
    from toolscout.server.serve import run

    if log_format:
        os.environ["TOOLSCOUT_LOG_FORMAT"] = log_format  # for workers, too
    run(http, workers)


def doctor(
    upstreams: Annotated[bool, typer.Option(help="Start each configured server and list its tools.")] = True,
    logs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read a log of serve --log-format json instead.")
    ] = None,
    metrics: Annotated[str | None, typer.Option(metavar="URL|FILE", help="Read a server's /metrics instead.")] = None,
    as_client: Annotated[
        bool, typer.Option("--as-client", help="Check what a client on the desktop would start: without your shell.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the installation, each configured server and the model; say what to do.

    A client that is started from the desktop has none of your shell's variables and a short PATH: --as-client checks
    with those alone, so that what works here and not there is seen.
    With --logs or --metrics it says instead what past calls show: failing and slow servers, refusals, faults.
    Exits with 1 if something is broken.
    """
    if as_client:
        if logs is not None or metrics is not None:
            raise BadInput("--as-client takes no --logs or --metrics.")
        raise typer.Exit(_as_client([*([] if upstreams else ["--no-upstreams"]), *(["--json"] if as_json else [])]))
    if logs is not None or metrics is not None:
        checks = _past_calls(logs, metrics)
    else:
        from toolscout.server.doctor.examine import examine

        with progress("Checking") as tick:
            checks = asyncio.run(examine(load_settings(), upstreams=upstreams, progress=tick))
    broken = [c for c in checks if c.status == "fail"]
    if as_json:
        emit({"ok": not broken, "checks": [c.as_json() for c in checks]})
    else:
        signs = {"ok": "ok  ", "warn": "note", "fail": "FAIL"}
        for check in checks:
            took = f" ({check.seconds:.1f} s)" if check.seconds is not None else ""
            say(f"{signs[check.status]}  {check.name}: {check.detail}{took}")
            if check.fix:
                say(f"      -> {check.fix}")
        fine = "Everything works." if logs is None and metrics is None else "No server is broken."
        say(fine if not broken else f"{len(broken)} of {len(checks)} checks failed.")
    if broken:
        raise typer.Exit(1)


_OF_THE_DESKTOP = (
    "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS", "SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP", "PATHEXT",
    "TOOLSCOUT_HOME",
)  # fmt: skip
"""Variables that a program has which was started from the desktop, and the one that stands in the client's entry."""


def _as_client(options: list[str]) -> int:
    """Run doctor as a client on the desktop would start this installation; its exit code."""
    from toolscout.server.clients.connect import own_command

    command, arguments = own_command()
    env = {name: os.environ[name] for name in _OF_THE_DESKTOP if name in os.environ}
    env["PATH"] = os.environ.get("PATH", "") if sys.platform == "win32" else "/usr/local/bin:/usr/bin:/bin"
    return subprocess.run([command, *arguments[:-1], "doctor", *options], env=env, check=False).returncode


def _past_calls(logs: Path | None, metrics: str | None) -> list[Check]:
    from toolscout.server.doctor.calls import examine_calls
    from toolscout.server.doctor.traffic import from_logs, from_metrics

    checks = examine_calls(from_logs(logs)) if logs is not None else []
    if metrics is not None:
        token = load_settings().auth_token
        headers = {"authorization": f"Bearer {token}"} if token else {}
        checks += examine_calls(from_metrics(metrics, headers))
    return checks


def demo(as_json: AsJson = False) -> None:
    """Show the main job: a real client finds, suggests and invokes against real servers, in a temporary home."""
    from toolscout.server.demo import run_demo

    result = run_demo(quiet=as_json)
    if as_json:
        emit(result.as_json())
    if not result.passed:
        raise typer.Exit(1)
