"""What a whole run leaves behind: secrets planted everywhere, real processes, and then every byte is looked at."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fuzzing.engine import HELLO, Conversation, LineReader

LEAKY = Path(__file__).parent / "upstreams" / "leaky.py"
PLANTED = {
    "environment": "tok/en+9fQ2 kZ81LmPx0Tt",
    "literal": "lit-Zx81kQ0aPw77Tr",
    "argument of the upstream": "pw-7hGq20LmXc5",
    "argument of a call": "sk-live-Ab12Cd34Ef56Gh78Ij90",
    "header": "hdr-Qw98Er76Ty54Ui32",
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
    return {name for name, secret in PLANTED.items() if any(form in data for form in forms(secret))}


def test_the_search_itself_finds_them(tmp_path: Path) -> None:
    for name, secret in PLANTED.items():
        for data in (
            secret.encode(),
            gzip.compress(secret.encode()),
            base64.b64encode(b"ab" + secret.encode() + b"cd"),
        ):
            assert found_in(data) == {name}


def test_a_run_leaves_no_secret_behind(tmp_path: Path) -> None:
    home, work, temporary = tmp_path / "home2", tmp_path / "work", tmp_path / "tmp"
    for folder in (home, work, temporary):
        folder.mkdir()
    entry = {
        "command": sys.executable,
        "args": [str(LEAKY), f"postgresql://app:{PLANTED['argument of the upstream']}@db.example/x"],
        "env": {"LEAKY_TOKEN": "${PLANTED_TOKEN}", "LEAKY_PASSWORD": PLANTED["literal"]},
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

    command("refresh")
    _session(environ, work, said)
    for words in (["list", "--json"], ["doctor"], ["review"], ["audit"], ["catalog", "export", str(work / "out")]):
        command(*words)
    assert (home / "audit.jsonl").exists() and (home / "catalogue.db").exists() and any((work / "out").iterdir())
    left = {
        str(path.relative_to(tmp_path)): names
        for folder in (home, work, temporary)
        for path in folder.rglob("*")
        if path.is_file() and path.name != "mcp.json" and (names := found_in(path.read_bytes()))
    }
    left |= {f"output of {words}": names for words, data in said if (names := found_in(data))}
    assert not left


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

            call("find_tools", query="echo of a text")
            call("suggest_call", task="echo a text", tool_ids=["leaky/echo"])
            given = {"api_key": PLANTED["argument of a call"], "text": f"the key is {PLANTED['argument of a call']}"}
            echoed = call("invoke", tool_id="leaky/echo", arguments=given)
            assert PLANTED["literal"] in echoed, echoed  # it really leaks
            for name in ("leaky/failure", "leaky/refusal", "leaky/crash", "remote/x", "failing/x", "leaky/echo"):
                call("invoke", tool_id=name, arguments=given)
        finally:
            server.kill()
            server.wait(60)
        errors.seek(0)
        said.append(("serve", errors.read()))
