"""OpenAI-compatible endpoints: a real llama.cpp server, and a small one that misbehaves as real ones do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_endpoint import ChatEndpoint as Endpoint
from chat_endpoint import Reply, obeying, refused, said, schema_of
from weights import llama_server

from toolscout.errors import BadInput, ModelError
from toolscout.records import Tool
from toolscout.server.backends import ContextOverflow, make_backend
from toolscout.server.backends.openai import OpenAIBackend
from toolscout.server.calling.caller import Caller
from toolscout.server.calling.constrain import choice_schema, parse_answer
from toolscout.server.calling.suggestion import Candidate
from toolscout.settings import Settings
from toolscout.validation import validate

ASK = [{"role": "user", "content": "Weather in Oslo?"}]
FORECAST = Tool(
    tool_id="acme/get_weather",
    server_id="acme",
    name="get_weather",
    description="Weather of a city.",
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "maximum": 3}},
        "required": ["city"],
    },
)

# -- a real server


@pytest.fixture(scope="module")
def llama(smollm2: Path) -> Iterator[str]:
    with llama_server(smollm2, context=2048, key="sesame") as url:
        yield url


async def test_against_a_real_llama_cpp_server(llama: str) -> None:
    settings = Settings(model_url=llama, model_key="sesame", model_timeout=300)
    backend = make_backend(settings)
    assert isinstance(backend, OpenAIBackend)
    caller = Caller(settings, backend=backend)
    answer = await caller.suggest("What is the weather in Oslo?", [Candidate(FORECAST, 1.0)])
    assert backend.mode == "grammar" and backend.model
    for call in answer.calls:
        assert call.tool_id == FORECAST.tool_id and set(call.arguments) <= {"city", "days"}
        assert call.ready == (not call.missing) and call.confidence != 0.5
        assert not call.ready or validate(call.arguments, FORECAST.input_schema) == []
    given = await backend.generate(ASK, schema=choice_schema(["get_weather", "none"]), max_tokens=64, top=20)
    assert parse_answer(given.text)["name"] in ("get_weather", "none")
    assert given.tokens and len(given.tokens[0].top) > 1 and given.prompt_tokens > 0
    pieces = make_backend(settings, streams=True)
    assert isinstance(pieces, OpenAIBackend)
    asked = {"prefix": '{"name": "', "grammar": 'root ::= "get_weather" | "none"', "max_tokens": 16, "top": 5}
    whole, streamed = await backend.generate(ASK, **asked), await pieces.generate(ASK, **asked)
    assert streamed.text == whole.text in ("get_weather", "none")
    # llama.cpp leaves the token that ends an answer out of the pieces.
    assert streamed.tokens and [t.text for t in whole.tokens][: len(streamed.tokens)] == [
        t.text for t in streamed.tokens
    ]
    assert whole.first_token_seconds is None and streamed.first_token_seconds and streamed.prompt_tokens > 0
    await pieces.close()
    with pytest.raises(ContextOverflow):
        await backend.generate([{"role": "user", "content": "word " * 5000}])
    await caller.close()


async def test_a_real_server_refuses_a_wrong_key(llama: str) -> None:
    backend = OpenAIBackend(llama, key="wrong")
    with pytest.raises(ModelError, match="refused the key") as caught:
        await backend.generate(ASK)
    assert "TOOLSCOUT_MODEL_KEY" in caught.value.hint
    await backend.close()


# -- what an endpoint can do is found out by asking, once


async def test_an_endpoint_that_obeys_json_schema(serve: Callable[..., Endpoint]) -> None:
    endpoint = serve(lambda body: said(obeying(schema_of(body))))
    backend = OpenAIBackend(endpoint.url, model="m", key="k1")
    answer = await Caller(Settings(), backend=backend).suggest("Weather in Oslo", [Candidate(FORECAST, 1.0)])
    assert backend.mode == "json_schema" and answer.calls[0].ready and answer.calls[0].arguments == {"city": "Oslo"}
    assert answer.calls[0].confidence == 0.5, "no probabilities: not known"
    assert len(endpoint.asked) == 3, "one probe and two phases"
    assert endpoint.headers[0]["Authorization"] == "Bearer k1"
    await backend.probe()
    assert len(endpoint.asked) == 3
    await backend.close()


async def test_one_that_silently_ignores_json_schema_is_seen_through(serve: Callable[..., Endpoint]) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        if "structured_outputs" in body:
            return said(obeying(body["structured_outputs"]["json"]))
        return said('{"colour": "red"}')

    backend = OpenAIBackend(serve(reply).url, model="m")
    assert await backend.probe() == "structured_outputs"
    await backend.close()


async def test_one_that_knows_only_json_objects(serve: Callable[..., Endpoint]) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        kind = body.get("response_format", {}).get("type")
        return said('{"colour": "red"}') if kind == "json_object" else refused("unknown field")

    backend = OpenAIBackend(serve(reply).url, model="m")
    assert await backend.probe() == "json_object"
    await backend.close()


async def test_one_that_only_talks_still_gives_checked_calls(serve: Callable[..., Endpoint]) -> None:
    answers = iter(
        [
            "I would use `get_weather` for that.",
            'Sure!\n```json\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": [3], "mood": "good"}}\n```',
            '{"name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\", \\"days\\": 3}"}',
        ]
    )

    def reply(body: dict[str, Any]) -> Reply:
        if "toolscout_probe" in json.dumps(body):
            return refused("response_format is not supported")
        return said(next(answers, "hello")) if "colour" not in str(body["messages"]) else said("red!")

    endpoint = serve(reply)
    backend = OpenAIBackend(endpoint.url, model="m")
    answer = await Caller(Settings(), backend=backend).suggest("Oslo, 3 days", [Candidate(FORECAST, 1.0)])
    assert backend.mode == "text"
    assert answer.calls[0].ready and answer.calls[0].arguments == {"city": "Oslo", "days": 3}
    assert "response_format" not in endpoint.asked[-1]
    await backend.close()


@pytest.mark.parametrize("temperature", [0.0, 0.7])
async def test_the_temperature_is_the_settings(serve: Callable[..., Endpoint], temperature: float) -> None:
    endpoint = serve(lambda body: said("hello"))
    backend = make_backend(Settings(model_url=endpoint.url, model="m", model_temperature=temperature))
    assert backend is not None
    await backend.generate(ASK)
    assert endpoint.asked[-1]["temperature"] == temperature
    await backend.close()


async def test_fields_that_an_endpoint_refuses_are_left_out_from_then_on(serve: Callable[..., Endpoint]) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        if "max_tokens" in body:
            return refused("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        if "temperature" in body:
            return refused("Unsupported value: 'temperature'")
        if "logprobs" in body:
            return refused("logprobs are not available")
        return said(obeying(schema_of(body)))

    endpoint = serve(reply)
    backend = OpenAIBackend(endpoint.url, model="m")
    for _ in range(2):
        given = await backend.generate(ASK, schema=choice_schema(["a", "none"]), top=5)
        assert parse_answer(given.text) == {"name": "a"} and given.tokens == ()
    refusals = sum(1 for b in endpoint.asked if {"max_tokens", "temperature", "logprobs"} & set(b))
    assert refusals == 3
    await backend.close()


def pieces(*texts: str, end: str = "stop", tail: str = "data: [DONE]\n\n") -> Reply:
    """A completion as endpoints stream it."""
    rows: list[dict[str, Any]] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    rows += [
        {"choices": [{"delta": {"content": t}, "logprobs": {"content": [{"token": t, "logprob": -0.5}]}}]}
        for t in texts
    ]
    rows += [{"choices": [{"delta": {}, "finish_reason": end}]}] if end else []
    rows += [{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": len(texts)}}]
    data = "".join(f": ping\n\ndata: {json.dumps(row)}\n\n" for row in rows) + tail
    return 200, data.encode(), {"Content-Type": "text/event-stream; charset=utf-8"}


async def test_asked_in_pieces_an_answer_is_whole_and_its_first_token_timed(serve: Callable[..., Endpoint]) -> None:
    whole = said('{"toolscout_probe": "q7"}', prompt_tokens=9, completion_tokens=2)
    endpoint = serve(lambda body: pieces('{"toolscout_probe"', ': "q7"}') if body.get("stream") else whole)
    given = {}
    for streams in (False, True):
        backend = OpenAIBackend(endpoint.url, model="m", streams=streams)
        given[streams] = await backend.generate([{"role": "user", "content": "x"}], top=1)
        await backend.close()
    assert given[True].text == given[False].text == '{"toolscout_probe": "q7"}'
    assert [(t.text, t.logprob) for t in given[True].tokens] == [('{"toolscout_probe"', -0.5), (': "q7"}', -0.5)]
    assert given[True].prompt_tokens == 9 and given[True].completion_tokens == 2 and given[True].complete
    assert given[False].first_token_seconds is None
    assert 0 < (given[True].first_token_seconds or 0) < 60


async def test_pieces_that_end_before_the_answer_does_are_no_answer(
    serve: Callable[..., Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolscout.server.backends.openai.random.random", lambda: -0.5)
    odd = 'data: {"choices": ["x"]}\n\n'
    for broken in (
        pieces("{", end="", tail=""),
        pieces(tail="data: {\n\n"),
        pieces(tail=odd),
        pieces(tail="data: 1\n\n"),
    ):
        endpoint = serve(lambda body, broken=broken: broken)
        backend = OpenAIBackend(endpoint.url, model="m", streams=True)
        with pytest.raises(ModelError, match="broke off"):
            await backend.generate([{"role": "user", "content": "x"}])
        await backend.close()


async def test_an_error_in_the_midst_of_pieces_is_said(serve: Callable[..., Endpoint]) -> None:
    long = 'data: {"error": {"message": "the context of 2048 is exceeded"}}\n\n'
    for tail, kind in ((long, ContextOverflow), ('data: {"error": {"message": "out of paper"}}\n\n', ModelError)):
        endpoint = serve(lambda body, tail=tail: pieces("{", end="", tail=tail))
        backend = OpenAIBackend(endpoint.url, model="m", streams=True)
        with pytest.raises(kind, match="exceeded" if kind is ContextOverflow else "out of paper"):
            await backend.generate([{"role": "user", "content": "x"}])
        await backend.close()
    fine = pieces("fi", "ne", tail='data: {"error": null}\n\n')
    backend = OpenAIBackend(serve(lambda body: fine).url, model="m", streams=True)
    assert (await backend.generate([{"role": "user", "content": "x"}])).text == "fine"
    await backend.close()


async def test_an_endpoint_that_refuses_pieces_answers_whole(serve: Callable[..., Endpoint]) -> None:
    endpoint = serve(lambda body: refused("Unknown field: stream_options") if "stream" in body else said("fine"))
    backend = OpenAIBackend(endpoint.url, model="m", streams=True)
    given = await backend.generate([{"role": "user", "content": "x"}])
    assert (given.text, given.first_token_seconds) == ("fine", None)
    asked = len(endpoint.asked)
    await backend.generate([{"role": "user", "content": "x"}])
    assert len(endpoint.asked) == asked + 1, "asked for pieces once only"
    await backend.close()


async def test_without_a_name_the_first_listed_model_is_used(serve: Callable[..., Endpoint]) -> None:
    endpoint = serve(lambda body: said(obeying(schema_of(body))))
    backend = OpenAIBackend(endpoint.url)
    await backend.generate(ASK, schema=choice_schema(["a"]))
    assert backend.name == "first-model" and endpoint.asked[-1]["model"] == "first-model"
    await backend.close()


# -- failures


async def test_a_busy_endpoint_is_tried_again(serve: Callable[..., Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolscout.server.backends.openai.random.random", lambda: -0.5)
    replies = iter([refused("overloaded", 503), refused("slow down", 429)])
    endpoint = serve(lambda body: next(replies, None) or said(obeying(schema_of(body))))
    backend = OpenAIBackend(endpoint.url, model="m")
    assert await backend.probe() == "json_schema" and len(endpoint.asked) == 3
    await backend.close()


@pytest.mark.parametrize(
    ("reply", "sentence", "hint"),
    [
        (refused("bad key", 401), "refused the key", "TOOLSCOUT_MODEL_KEY"),
        (refused("The model `m` does not exist", 404), "does not know the model 'm'", "TOOLSCOUT_MODEL"),
        ((404, b"<html>not here</html>"), "does not exist", "/v1"),
        ((200, b"<html>welcome</html>"), "did not answer with JSON", "/v1"),
        ((200, {"hello": "world"}), "did not answer as a chat endpoint", "/v1"),
        ((200, {"choices": []}), "did not answer as a chat endpoint", "/v1"),
        ((200, {"choices": [{"message": {"content": [1]}}]}), "did not answer as a chat endpoint", "/v1"),
        ((500, b"oops"), "answered 500: oops", ""),
        ((301, b""), "answered 301", ""),
    ],
)
async def test_failures_are_one_clear_sentence(
    serve: Callable[..., Endpoint], monkeypatch: pytest.MonkeyPatch, reply: Reply, sentence: str, hint: str
) -> None:
    monkeypatch.setattr("toolscout.server.backends.openai.random.random", lambda: -0.5)
    backend = OpenAIBackend(serve(lambda body: reply).url, model="m", key="top-secret")
    with pytest.raises(ModelError) as caught:
        await backend.generate(ASK, schema=choice_schema(["a"]))
    assert sentence in str(caught.value) and hint in caught.value.hint
    assert "top-secret" not in caught.value.sentence()
    await backend.close()


async def test_nothing_listening_is_said_so(monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Endpoint]) -> None:
    monkeypatch.setattr("toolscout.server.backends.openai.random.random", lambda: -0.5)
    endpoint = Endpoint(lambda body: said(""))
    endpoint.close()
    backend = OpenAIBackend(endpoint.url)
    with pytest.raises(ModelError, match="Nothing answers at") as caught:
        await backend.generate(ASK)
    assert "TOOLSCOUT_MODEL_URL" in caught.value.hint
    await backend.close()


async def test_an_endpoint_that_hangs_is_given_up(serve: Callable[..., Endpoint]) -> None:
    release = threading.Event()
    endpoint = serve(lambda body: (release.wait(30), said(""))[1])
    backend = OpenAIBackend(endpoint.url, model="m", timeout=0.2)
    with pytest.raises(ModelError, match=r"did not answer within 0\.2 s"):
        await backend.generate(ASK)
    release.set()
    await backend.close()


async def test_too_long_a_request_is_told_apart(serve: Callable[..., Endpoint]) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        if "colour" in str(body["messages"]):
            return said(obeying(schema_of(body)))
        return refused("This model's maximum context length is 4096 tokens.")

    backend = OpenAIBackend(serve(reply).url, model="m")
    with pytest.raises(ContextOverflow):
        await backend.generate(ASK)
    await backend.close()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host/v1", "http://"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadInput):
        OpenAIBackend(url)
