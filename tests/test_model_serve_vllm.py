"""Real vLLM through `toolscout model serve` and `suggest_call`: slow, and only where it is asked for.

    TOOLSCOUT_TEST_VLLM         Python of an environment that has vLLM
    TOOLSCOUT_TEST_VLLM_BASE    checkpoint folder of SmolLM2-135M
    TOOLSCOUT_TEST_VLLM_LORA    adapter folders for it, with ":" between them (one is loaded twice, to have several)

Minutes on two cores. What it wrote when it was last run is in docs/SERVING.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolscout.records import Tool
from toolscout.server.backends.openai import OpenAIBackend
from toolscout.server.calling.caller import Caller
from toolscout.server.calling.constrain import call_schema, choice_schema, parse_answer
from toolscout.server.calling.suggestion import Candidate, Suggestion
from toolscout.server.upstreams.watchdog import group_members
from toolscout.settings import Settings
from toolscout.validation import validate

# Read here: the tests' own fixture takes every TOOLSCOUT_ variable away.
PYTHON, BASE, LORA = (os.environ.get(f"TOOLSCOUT_TEST_VLLM{part}", "") for part in ("", "_BASE", "_LORA"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PYTHON and BASE and LORA), reason="set TOOLSCOUT_TEST_VLLM, _BASE and _LORA to run it"),
]


def tool(name: str, description: str, required: list[str], **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(tool_id=f"acme/{name}", server_id="acme", name=name, description=description, input_schema=schema)


TEXT = {"type": "string"}
TOOLS = [
    tool(
        "get_weather",
        "Weather forecast of a city.",
        ["city"],
        units={"type": "string", "enum": ["metric", "imperial"]},
        days={"type": "integer", "minimum": 1, "maximum": 7},
        city=TEXT,
    ),
    tool("send_mail", "Send an e-mail.", ["to", "body"], to=TEXT, body=TEXT),
    tool("list_files", "List the files in a folder.", ["path"], path=TEXT, recursive={"type": "boolean"}),
]
TASK = "What is the weather in Oslo for the next 3 days, in metric units?"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What `model serve --json` told, while it serves the base and two adapters."""
    folders = [f for f in LORA.split(":") if f] * 2
    words = [f"base={BASE}", "--adapter", f"one={folders[0]}", "--adapter", f"two={folders[1]}"]
    words += ["--python", PYTHON, "--port", "0", "--context", "4096", "--dtype", "float32", "--threads", "1"]
    words += ["--cache-gib", "1", "--wait", "3600", "--json", "--verbose"]
    home = tmp_path_factory.mktemp("home")
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "toolscout", "model", "serve", *words],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "TOOLSCOUT_HOME": str(home)},
        )
        assert process.stdout is not None
        text = ""
        while not text.endswith("\n}\n") and (line := process.stdout.readline()):
            text += line
        assert text, (home / "log").read_text("utf-8", "replace")[-3000:]
        told = json.loads(text)
        print(text)
        yield told
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0
        process.stdout.close()
        assert not group_members(told["pid"]), "nothing of it is left"


def suggest(told: dict[str, Any], model: str, *, chooses: bool | None = None) -> tuple[Caller, Suggestion]:
    settings = Settings(
        model_url=told["settings"]["TOOLSCOUT_MODEL_URL"], model=model, model_timeout=600, model_chooses=chooses
    )
    caller = Caller(settings)

    async def ask() -> Suggestion:
        try:
            return await caller.suggest(TASK, [Candidate(t) for t in TOOLS])
        finally:
            await caller.close()

    answer = asyncio.run(ask())
    print(model, json.dumps(answer.to_answer(), ensure_ascii=False), answer.prompt_tokens, answer.completion_tokens)
    return caller, answer


def test_suggest_call_gives_a_valid_call_by_the_printed_settings(served: dict[str, Any]) -> None:
    assert served["constraint"] == "grammar" and len(served["served"]) == 3
    caller, answer = suggest(served, served["settings"]["TOOLSCOUT_MODEL"])
    backend = caller.backend
    assert backend is not None and backend.prefills and not backend.chooses and backend.name == "one"
    trained = json.loads((Path(LORA.split(":")[0]) / "prompt.json").read_text("utf-8"))
    assert (backend.style, backend.budget) == (trained["style"], trained["budget"])
    [call] = answer.calls
    assert call.tool_id == "acme/get_weather" and call.ready
    assert validate(call.arguments, TOOLS[0].input_schema) == []
    assert call.arguments["city"].strip() == "Oslo" and 0 < call.confidence <= 1 and call.confidence != 0.5


@pytest.mark.parametrize("name", ["two", "base"])
def test_every_model_beside_it_answers_too(served: dict[str, Any], name: str) -> None:
    caller, answer = suggest(served, name)
    assert caller.backend is not None and caller.backend.name == name
    for call in answer.calls:
        chosen = next(t for t in TOOLS if t.tool_id == call.tool_id)
        assert not call.ready or validate(call.arguments, chosen.input_schema) == []
    assert answer.calls or answer.reason


def test_the_model_can_choose_as_well(served: dict[str, Any]) -> None:
    caller, answer = suggest(served, "one", chooses=True)
    assert caller.backend is not None and caller.backend.chooses
    assert answer.calls or "None of the candidate tools" in str(answer.reason)
    assert answer.prompt_tokens > 250, "all candidates are in the prompt"


def test_schemas_are_obeyed_and_probabilities_come(served: dict[str, Any]) -> None:
    """What an endpoint that is not asked by grammar relies on."""

    async def ask() -> None:
        backend = OpenAIBackend(served["url"], model="base", timeout=600)
        await backend.prepare()
        backend.prefills, backend.mode = False, "json_schema"
        messages = [{"role": "user", "content": "Say hello."}]
        options = ["get_weather", "none"]
        given = await backend.generate(messages, schema=choice_schema(options), max_tokens=64, top=20)
        assert parse_answer(given.text)["name"] in options and len(given.tokens[0].top) > 1
        backend.mode = "structured_outputs"
        schema = call_schema("get_weather", TOOLS[0].input_schema)
        given = await backend.generate(messages, schema=schema, max_tokens=300)
        answer = parse_answer(given.text)
        assert not given.complete or (answer["name"] == "get_weather" and isinstance(answer["arguments"], dict))
        await backend.close()

    asyncio.run(ask())
