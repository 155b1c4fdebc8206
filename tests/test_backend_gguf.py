"""The in-process model: real SmolLM2 through real llama.cpp."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from odd_schemas import ODD

from toolscout.errors import ModelError, NotFound
from toolscout.server.backends import ContextOverflow, make_backend
from toolscout.server.backends.gguf import GgufBackend
from toolscout.server.backends.llama import free_cores
from toolscout.server.calling.choice import choice_probabilities
from toolscout.server.calling.constrain import arguments_grammar, choice_grammar
from toolscout.server.models import InstalledModel
from toolscout.settings import Settings

ASK = [
    {"role": "system", "content": "You choose tools. " * 30},
    {"role": "user", "content": "What is the weather in Oslo?"},
]


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Iterator[GgufBackend]:
    backend = GgufBackend(smollm2, threads=1, context=1024)
    yield backend
    asyncio.run(backend.close())


async def test_the_answer_obeys_and_brings_probabilities(model: GgufBackend) -> None:
    options = ["get_weather", "get_time", "none"]
    given = await model.generate(ASK, prefix='{"name": "', grammar=choice_grammar(options), max_tokens=16, top=50)
    assert given.complete and any(given.text.startswith(f'{o}"') for o in options)
    odds = choice_probabilities(given.tokens, options)
    assert sum(odds.values()) == pytest.approx(1.0, abs=0.01)


async def test_the_second_phase_finds_the_first_ones_prompt_computed(model: GgufBackend) -> None:
    first = await model.generate(ASK, prefix='{"name": "', grammar=choice_grammar(["get_weather"]), max_tokens=16)
    grammar = arguments_grammar({"properties": {"city": {"type": "string", "maxLength": 12}}})
    second = await model.generate(ASK, prefix='{"name": "get_weather", "arguments":', grammar=grammar, max_tokens=40)
    assert second.cached_tokens >= first.prompt_tokens - 8 > 100
    assert second.text.startswith(" {")


async def test_other_work_goes_on_while_it_generates(model: GgufBackend) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.001)

    heart = asyncio.create_task(beat())
    await model.generate([{"role": "user", "content": "Count to a hundred."}], max_tokens=40)
    heart.cancel()
    assert beats > 10


async def test_many_at_once_queue_up_and_each_gets_its_own_answer(model: GgufBackend) -> None:
    words = ["alpha", "beta", "gamma", "delta"]
    asks = [model.generate(ASK, grammar=f'root ::= "{w}"', max_tokens=8) for w in words]
    assert [g.text for g in await asyncio.gather(*asks)] == words


@pytest.mark.parametrize("name", ODD)
async def test_llama_cpp_takes_the_grammar_of_every_odd_schema(model: GgufBackend, name: str) -> None:
    for references in (False, True):
        grammar = arguments_grammar(ODD[name], references=references)
        given = await model.generate(ASK, prefix='{"arguments":', grammar=grammar, max_tokens=2)
        assert " {".startswith(given.text[:2])


async def test_a_prompt_beyond_the_context_says_how_much_would_fit(model: GgufBackend) -> None:
    with pytest.raises(ContextOverflow) as caught:
        await model.generate([{"role": "user", "content": "word " * 4000}])
    assert 0 < caught.value.ratio < 0.5


async def test_a_broken_grammar_is_an_error_and_the_model_goes_on_serving(model: GgufBackend) -> None:
    with pytest.raises(ModelError, match="grammar"):
        await model.generate(ASK, grammar="root ::= missing-rule")
    assert (await model.generate(ASK, max_tokens=2)).completion_tokens == 2


async def test_its_port_is_shut_to_strangers(model: GgufBackend) -> None:
    await model.generate(ASK, max_tokens=1)
    for path in ("/v1/models", "/completion", "/slots", "/props"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            await asyncio.to_thread(urllib.request.urlopen, model._server.listening_address + path, b"{}", 5)
        assert caught.value.code in (401, 404, 501)


async def test_a_missing_and_a_damaged_file_are_clear_errors(tmp_path: Path, smollm2: Path) -> None:
    gone = GgufBackend(tmp_path / "gone.gguf")
    with pytest.raises(ModelError, match="is gone"):
        await gone.generate(ASK)
    await gone.close()
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(await asyncio.to_thread(smollm2.read_bytes))
    os.truncate(damaged, 100_000)
    backend = GgufBackend(damaged)
    with pytest.raises(ModelError, match="cannot be loaded"):
        await backend.generate(ASK)
    await backend.close()


def test_nothing_reaches_stdout_which_belongs_to_the_protocol(tmp_path: Path, smollm2: Path) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from toolscout.server.backends.gguf import GgufBackend
async def main():
    for path in sys.argv[1:]:
        backend = GgufBackend(Path(path), threads=1, context=512)
        for grammar in ("", "root ::= oops", 'root ::= "yes"'):
            try:
                await backend.generate([{"role": "user", "content": "Hi"}], grammar=grammar, max_tokens=4)
            except Exception as error:
                print(type(error).__name__, file=sys.stderr)
        await backend.close()
asyncio.run(main())
"""
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(1000))
    done = subprocess.run(
        [sys.executable, "-c", script, str(smollm2), str(damaged)], capture_output=True, timeout=240, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == ""
    assert done.stderr.count("ModelError") == 4, "one broken grammar, three requests to a broken file"


def test_an_installed_known_model_is_the_default_and_loads_lazily(
    settings: Settings, small_model: InstalledModel
) -> None:
    backend = make_backend(settings)
    assert isinstance(backend, GgufBackend) and backend.name == "toolscout-smollm2-135m" and backend._server is None


def test_a_model_that_is_not_installed_is_named(settings: Settings) -> None:
    with pytest.raises(NotFound) as caught:
        make_backend(settings.model_copy(update={"model": "qwen2.5-coder-0.5b"}))
    assert "toolscout model pull qwen2.5-coder-0.5b" in caught.value.hint


def test_free_cores_is_at_least_one() -> None:
    assert free_cores() >= 1


@pytest.mark.parametrize(
    "answer", [{}, {"choices": []}, {"choices": [{}]}, {"error": {"type": "exceed_context_size_error"}}]
)
async def test_an_answer_of_an_unknown_form_is_a_model_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    backend = GgufBackend(tmp_path / "none.gguf")
    monkeypatch.setattr(backend, "_ask", lambda request: answer)
    with pytest.raises(ModelError, match="form that is not known"):
        await backend.generate([{"role": "user", "content": "x"}])
    await backend.close()
