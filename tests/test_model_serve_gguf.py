"""``model serve`` with a GGUF model: real SmolLM2 behind an address of our own, asked as Toolscout asks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from toolscout.cli import app
from toolscout.errors import NotAllowed, NotFound
from toolscout.server.backends.llama import own_cores
from toolscout.server.backends.openai import OpenAIBackend
from toolscout.server.backends.tuning import tuning_of_name
from toolscout.server.model_serving.gguf import GgufPlan, gguf_plan
from toolscout.server.models import KNOWN
from toolscout.settings import Settings


def serve(*words: str, **env: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "toolscout", "model", "serve", *words, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    assert process.stdout is not None
    text = ""
    while line := process.stdout.readline():
        text += line
        if line == "}\n":
            break
    return process, json.loads(text)


@pytest.mark.skipif(os.name != "posix", reason="signals")
async def test_a_gguf_model_is_served_and_obeys_grammars_until_a_signal(smollm2: Path, home: Path) -> None:
    process, told = serve(f"small={smollm2}", "--slots", "2", "--context", "512", TOOLSCOUT_MODEL_KEY="k3y")
    try:
        settings = told["settings"]
        assert told["constraint"] == "grammar" and settings["TOOLSCOUT_MODEL_KEY"] == "$TOOLSCOUT_MODEL_KEY"
        backend = OpenAIBackend(settings["TOOLSCOUT_MODEL_URL"], model=settings["TOOLSCOUT_MODEL"], key="k3y")
        given = await backend.generate([{"role": "user", "content": "Hi"}], grammar='root ::= "yes"', max_tokens=4)
        assert given.text == "yes"
        await backend.close()
        closed = OpenAIBackend(settings["TOOLSCOUT_MODEL_URL"], model=settings["TOOLSCOUT_MODEL"], key="other")
        with pytest.raises(Exception, match="key"):
            await closed.generate([{"role": "user", "content": "Hi"}], max_tokens=4)
        await closed.close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout is not None
        process.stdout.close()


def test_the_served_name_says_how_the_model_is_asked(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    (tmp_path / "base.gguf").write_bytes(b"GGUF")
    beside = {"style": "compact", "budget": 4000, "base": str(tmp_path / "base.gguf")}
    (tmp_path / "mine.json").write_text(json.dumps(beside))
    plan = gguf_plan(f"own={tmp_path / 'mine.gguf'}", settings)
    assert plan is not None and plan.lora == tmp_path / "mine.gguf" and plan.path == tmp_path / "base.gguf"
    tuning = tuning_of_name(plan.served)
    assert plan.served.startswith("own@") and tuning is not None
    assert (tuning.style, tuning.budget, tuning.chooses) == ("compact", 4000, False)
    bare = gguf_plan(str(tmp_path / "base.gguf"), settings)
    assert bare is not None and bare.served == "base@chooses=no" and bare.lora is None


def test_what_is_no_gguf_model_goes_to_vllm_and_what_is_not_here_is_said(tmp_path: Path, settings: Settings) -> None:
    assert gguf_plan(str(tmp_path), settings) is None
    assert gguf_plan("OWNER/NAME", settings) is None
    with pytest.raises(NotFound, match="not installed"):
        gguf_plan(next(iter(KNOWN)), settings)
    with pytest.raises(NotFound, match="no file"):
        gguf_plan(str(tmp_path / "none.gguf"), settings)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(NotAllowed, match="everybody"):
        gguf_plan(str(tmp_path / "m.gguf"), settings, host="0.0.0.0")


def test_options_of_the_other_server_are_refused(tmp_path: Path, home: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    given = CliRunner().invoke(app, ["model", "serve", str(tmp_path / "m.gguf"), "--dtype", "float32"])
    assert "--dtype is for vLLM" in str(given.exception)
    given = CliRunner().invoke(app, ["model", "serve", str(tmp_path), "--slots", "2"])
    assert "how many requests" in str(given.exception)


@pytest.mark.parametrize(("asked", "given"), [(0, own_cores()), (3, 3)])
def test_a_server_has_all_cores_however_busy_they_are_when_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int, given: int
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (99.0, 99.0, 99.0), raising=False)
    started: dict[str, Any] = {}

    def load(path: Path, **options: Any) -> Any:
        started.update(options)
        return SimpleNamespace(listening_address="http://127.0.0.1:1")

    monkeypatch.setattr("toolscout.server.model_serving.gguf.load_server", load)
    GgufPlan(tmp_path / "base.gguf", None, "base", threads=asked).start()
    assert started["threads"] == given
