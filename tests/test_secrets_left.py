"""What a whole run leaves behind: secrets planted everywhere, real processes, and then every byte is looked at."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from fuzzing.engine import HELLO, Conversation, LineReader
from otlp_collector import collecting

from toolscout.server.model_serving.run import free_port

LEAKY = Path(__file__).parent / "upstreams" / "leaky.py"
PLANTED = {
    "environment": "tok/en+9fQ2 kZ81LmPx0Tt",
    "literal": "lit-Zx81kQ0aPw77Tr",
    "argument of the upstream": "pw-7hGq20LmXc5",
    "argument of a call": "sk-live-Ab12Cd34Ef56Gh78Ij90",
    "header": "hdr-Qw98Er76Ty54Ui32",
    "token of the HTTP face": "tok-Mn43Bv21Cx09Za87",
    "database of a client's server": "cli-Jk65Hg43Fd21Sa09",
    "long token": "".join(f"{n:04x}w" for n in range(400)),
    "private key": "MIIEvQIBADANBgkqhkiG9w0B\n/KcwggSjAgEAAoIBAQC7VJTU\n",
    "word of a query": "qry-Bn56Vm47Cx38",
    "line of a file": "lin-Pq10Wo29Ei38Ru47",
    "password of a DSN": "dsn-Al10Sk29Dj38Fh47",
}
POLICY = '[audit]\nvalues = "hash"\n[[audit.rules]]\nkeep = "clear"\ntool = "*"\n'


def forms(secret: str) -> set[bytes]:
    """The secret as it may be written: plain, URL-encoded, JSON-escaped, in base64 at each of three offsets."""
    plain = secret.encode()
    found = {
        plain,
        quote(secret, safe="").encode(),
        json.dumps(secret)[1:-1].encode(),
        secret.replace("/", "\\/").encode(),
    }
    for offset in range(3):
        text = base64.b64encode(b"\0" * offset + plain)
        found.add(text[4 if offset else 0 : -4])
    return found


def found_in(data: bytes) -> set[str]:
    """Names of the planted secrets that the bytes hold."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return {
        name
        for name, secret in PLANTED.items()
        if any(form in data for piece in pieces(secret) for form in forms(piece))
    }


def pieces(secret: str) -> list[str]:
    """What must not be found of a secret: its lines, and of a long one every part of 20 characters."""
    lines = secret.split()
    if len(lines[0]) < 100:
        return lines if "\n" in secret else [secret]
    return [secret[start : start + 20] for start in range(0, len(secret), 10)]


def test_the_search_itself_finds_them(tmp_path: Path) -> None:
    for name, secret in PLANTED.items():
        for data in (
            secret.encode(),
            gzip.compress(secret.encode()),
            base64.b64encode(b"ab" + secret.encode() + b"cd"),
            repr(secret).encode(),
        ):
            assert found_in(data) == {name}


def test_a_run_leaves_no_secret_behind(tmp_path: Path) -> None:
    home, work, temporary = tmp_path / "home2", tmp_path / "work", tmp_path / "tmp"
    for folder in (home, work, temporary):
        folder.mkdir()
    entry = {
        "command": sys.executable,
        "args": [str(LEAKY), f"postgresql://app:{PLANTED['argument of the upstream']}@db.example/x"],
        "env": {
            "LEAKY_TOKEN": "${PLANTED_TOKEN}",
            "LEAKY_PASSWORD": PLANTED["literal"],
            "LEAKY_LONG": "${PLANTED_LONG}",
            "LEAKY_PEM": "${PLANTED_PEM}",
            "LEAKY_LINE": "${PLANTED_LINE}",
            "LEAKY_DSN": "${PLANTED_DSN}",
        },
    }
    remote = {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": f"Bearer {PLANTED['header']}"}}
    failing = {**entry, "command": "/nonexistent/server"}
    servers = {"leaky": entry, "remote": remote, "failing": failing}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (home / "policy.toml").write_text(POLICY)
    environ = {
        **os.environ,
        "TOOLSCOUT_HOME": str(home),
        "TOOLSCOUT_STARTER": "0",
        "TOOLSCOUT_DEBUG": "1",
        "PLANTED_TOKEN": PLANTED["environment"],
        "PLANTED_LONG": PLANTED["long token"],
        "PLANTED_PEM": PLANTED["private key"],
        "PLANTED_LINE": PLANTED["line of a file"] + "\n",
        "PLANTED_DSN": f"postgresql://app:{PLANTED['password of a DSN']}@db.example/x",
        "TMPDIR": str(temporary),
        "PYTHONPYCACHEPREFIX": str(temporary),
    }
    said: list[tuple[str, bytes]] = []

    def command(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "toolscout", *words], env=environ, cwd=work, capture_output=True, timeout=300
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        said.append((" ".join(words), done.stdout + done.stderr))

    password = PLANTED["database of a client's server"]
    client = {"env": {"DATABASE_URL": f"postgresql://app:{password}@db.example/x"}}
    (work / "client.json").write_text(json.dumps({"mcpServers": {"theirs": {**entry, **client}}}))
    command("import", str(work / "client.json"), "--yes", "--no-check")
    assert "theirs" in (home / "mcp.json").read_text()
    command("refresh")
    _session(environ, work, said)
    _over_http(environ, work, said)
    for words in (["list", "--json"], ["doctor"], ["review"], ["audit"], ["catalog", "export", str(work / "out")]):
        command(*words)
    assert (home / "audit.jsonl").exists() and (home / "catalogue.db").exists() and any((work / "out").iterdir())
    left = {
        str(path.relative_to(tmp_path)): names
        for folder in (home, work, temporary)
        for path in folder.rglob("*")
        if path.is_file()
        and path.name not in ("mcp.json", "client.json", "secrets.json")
        and (names := found_in(path.read_bytes()))
    }
    # In the person's own configuration is what they put there, and nothing that was taken over from a client's.
    assert found_in((home / "mcp.json").read_bytes()) == {"literal", "argument of the upstream", "header"}
    left |= {f"output of {words}": names for words, data in said if (names := found_in(data))}
    assert not left


def _over_http(environ: dict[str, str], work: Path, said: list[tuple[str, bytes]]) -> None:
    """The HTTP face with all that tells of calls switched on, killed without warning in the middle of one."""
    token, port = PLANTED["token of the HTTP face"], free_port("127.0.0.1", 0)
    head = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    given = {"text": PLANTED["argument of a call"]}
    with (
        (work.parent / "stderr-http").open("w+b") as errors,
        collecting() as collected,
        httpx.Client(timeout=60) as web,
    ):
        told = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collected.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "TOOLSCOUT_LOG_FORMAT": "json",
            "TOOLSCOUT_LOG_LEVEL": "debug",
        }
        server = subprocess.Popen(
            [sys.executable, "-m", "toolscout", "serve", "--http", f"127.0.0.1:{port}"],
            stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, cwd=work,
            env={**environ, **told, "TOOLSCOUT_AUTH_TOKEN": token},
        )  # fmt: skip
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline:
                with contextlib.suppress(httpx.TransportError):
                    web.get(f"{address}/health")
                    break
                time.sleep(0.1)

            def call(name: str, seconds: float = 60) -> bytes:
                params = {"name": "invoke", "arguments": {"tool_id": name, "arguments": given}}
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                return web.post(f"{address}/mcp", json=message, headers=head, timeout=seconds).content

            assert b"noise" not in call("leaky/failure")
            assert PLANTED["literal"].encode() in call("leaky/echo")
            call("leaky/crash")
            assert web.get(f"{address}/metrics").status_code == 401
            said.append(("/metrics", web.get(f"{address}/metrics", headers=head).content))
            assert b"toolscout_calls_total" in said[-1][1]
            collected.wait(lambda spans: any(span["name"] == "tools/call invoke" for span in spans))
            with contextlib.suppress(httpx.TransportError):
                call("leaky/sleep", 0.5)
        finally:
            server.kill()
            server.wait(60)
        said.append(("traces", collected.raw))
        errors.seek(0)
        said.append(("serve --http", errors.read()))
    assert b'"event"' in said[-1][1], said[-1][1]


def _session(environ: dict[str, str], work: Path, said: list[tuple[str, bytes]]) -> None:
    """A client that calls everything, and a server that is killed without warning. The answers are the caller's own."""
    with (work.parent / "stderr").open("w+b") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", "toolscout", "serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environ, cwd=work, bufsize=0,
        )  # fmt: skip
        assert server.stdin is not None and server.stdout is not None
        client = Conversation(server.stdin.write, LineReader(server.stdout.fileno()))  # type: ignore[arg-type]
        try:
            client.request("initialize", HELLO)

            def call(name: str, **arguments: Any) -> str:
                return json.dumps(client.request("tools/call", {"name": name, "arguments": arguments}))

            asked = PLANTED["word of a query"]
            call("find_tools", query=f"echo of a text, password={asked}")
            call("suggest_call", task=f"echo a text with the token: {asked}", tool_ids=["leaky/echo"])
            call("invoke", tool_id=f"leaky/echo password={asked}", arguments={})
            time.sleep(3)  # the call log is written soon, not at once
            given = {"api_key": PLANTED["argument of a call"], "text": f"the key is {PLANTED['argument of a call']}"}
            echoed = call("invoke", tool_id="leaky/echo", arguments=given)
            assert PLANTED["literal"] in echoed, echoed  # it really leaks
            for name in ("leaky/failure", "leaky/refusal", "remote/x", "failing/x", "leaky/echo"):
                call("invoke", tool_id=name, arguments=given)
            for name in ("leaky/refusal", "leaky/crash", "leaky/echo", "leaky/forms"):
                if name == "leaky/echo":
                    call("invoke", tool_id=name, arguments=given)  # or it counts as one that crashes in a row
                    continue
                # Its last words are not what was asked for.
                answer = call("invoke", tool_id=name, arguments=given)
                assert "leaky" in answer and "[hidden]" in answer
                assert found_in(answer.encode()) <= {"argument of a call"}, answer
        finally:
            server.kill()
            server.wait(60)
        errors.seek(0)
        said.append(("serve", errors.read()))
