"""Any OpenAI-compatible chat endpoint: vLLM, Ollama, the llama.cpp server, OpenAI.

What an endpoint can do is found out by asking, once: a constraint it silently ignores is worse than none, so the
probe checks that the answer obeys. In this order: ``response_format: json_schema`` (OpenAI, llama.cpp, Ollama, vLLM),
``structured_outputs`` (vLLM of late; its older ``guided_json`` is ignored without a word by current versions),
``response_format: json_object``, and plain text.

vLLM and llama.cpp can do better, and are asked first whether they do: go on from an answer's beginning, under the same
grammar as the model in process. A JSON Schema forces the schema's order of members there, so that a model that has
passed an optional argument over cannot come back to it; it lets an untuned model spend half its tokens on line breaks;
and the answer's fixed beginning is written token by token.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from toolscout.chat_endpoint import base_url, error_text, first_choice, json_object, said_of
from toolscout.errors import ModelError
from toolscout.prompt import Style
from toolscout.records import JsonObject
from toolscout.server.backends.base import ContextOverflow, Generation, Messages, Token
from toolscout.server.backends.streamed import ASKED, FIRST, collected
from toolscout.server.backends.tuning import Tuning, bare_name, tuning_of_name
from toolscout.server.calling.constrain import parse_answer

if TYPE_CHECKING:
    import httpx

_RETRIES = 3
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


def _json_schema(schema: JsonObject) -> JsonObject:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def _structured_outputs(schema: JsonObject) -> JsonObject:
    return {"structured_outputs": {"json": schema}}


def _json_object(schema: JsonObject) -> JsonObject:
    return {"response_format": {"type": "json_object"}}


def _text(schema: JsonObject) -> JsonObject:
    return {}


_MODES: dict[str, Callable[[JsonObject], JsonObject]] = {
    "json_schema": _json_schema,
    "structured_outputs": _structured_outputs,
    "json_object": _json_object,
    "text": _text,
}
_PREFILL: JsonObject = {"add_generation_prompt": False, "continue_final_message": True}
"""vLLM's; llama.cpp goes on from the assistant's last message unasked, and repeats it."""
_GRAMMAR: dict[str, Callable[[str], JsonObject]] = {
    "vllm": lambda grammar: {"structured_outputs": {"grammar": grammar}},
    "llamacpp": lambda grammar: {"grammar": grammar},
}
"""By what a list of models says of its owner: the field that a grammar goes into."""
# The request asks for one thing and the schema allows only another: an answer that obeys proves the constraint.
_PROBE: Messages = [{"role": "user", "content": 'Answer with the JSON object {"colour": "red"} and nothing else.'}]
_PROBE_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"toolscout_probe": {"type": "string", "enum": ["q7"]}},
    "required": ["toolscout_probe"],
    "additionalProperties": False,
}
_PROBE_PREFIX = '{"toolscout_probe":'
_PROBE_GRAMMAR = r'root ::= " \"q7\"}"'


class OpenAIBackend:
    """One endpoint. ``url`` is its base (``http://host:8000/v1``).

    Without ``model`` it is the first one listed whose name says that it was trained for this, else the first one.

    :param tuning: how it wants to be asked; by default what its name says (:mod:`toolscout.server.backends.tuning`).
    :param chooses: see :class:`~toolscout.server.backends.base.Backend`; by default what the tuning says, else true.
    :param streams: ask for answers in pieces, to know when the first token came; where refused, whole.
    """

    prefills = False
    queues = False
    chooses = True
    none_at = 0.5
    style: Style = "full"
    budget = 0

    def __init__(
        self,
        url: str,
        *,
        model: str = "",
        key: str = "",
        timeout: float = 60.0,
        temperature: float = 0.0,
        tuning: Tuning | None = None,
        chooses: bool | None = None,
        streams: bool = False,
    ) -> None:
        self.url = base_url(url)
        self.model = ""
        self.name = urlsplit(url).netloc
        self.timeout = timeout
        self.temperature = temperature
        self._tuning = tuning
        self._chooses = chooses
        self._use(model)
        self.mode = ""
        self._owner = ""
        self._key = key
        self._streams = streams
        self._logprobs = True
        self._token_field = "max_tokens"
        self._temperature = True
        self._client: httpx.AsyncClient | None = None
        self._probing = asyncio.Lock()

    async def generate(
        self,
        messages: Messages,
        *,
        prefix: str = "",
        grammar: str = "",
        schema: JsonObject | None = None,
        max_tokens: int = 512,
        top: int = 0,
    ) -> Generation:
        """See :class:`~toolscout.server.backends.base.Backend`; ``schema`` is not used where ``prefills`` is true."""
        await self.probe()
        if self.prefills and (grammar or prefix):
            return await self._continue(messages, prefix, grammar, max_tokens, top)
        form = _MODES.get(self.mode, _json_schema)(schema) if schema is not None else {}
        return await self._chat(messages, form, max_tokens, top)

    async def prepare(self) -> None:
        """Which model it is, and how it can be constrained."""
        await self.probe()

    async def probe(self) -> str:
        """Which of the ways to constrain this endpoint obeys; asked once, then remembered."""
        async with self._probing:
            if self.mode:
                return self.mode
            self._owner = await self._look()
            if self._owner in _GRAMMAR and await self._obeys_grammars():
                self.prefills = True
                self.mode = "grammar"
                return self.mode
            for mode in ("json_schema", "structured_outputs", "json_object"):
                try:
                    given = await self._chat(_PROBE, _MODES[mode](_PROBE_SCHEMA), 32, 0)
                except _Refused:
                    continue
                value = parse_answer(given.text)
                if value == {"toolscout_probe": "q7"} or (mode == "json_object" and value is not None):
                    self.mode = mode
                    return mode
            self.mode = "text"
            return self.mode

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _look(self) -> str:
        """Look at the list of models, and take one if none was named. Who the list says owns them, or nothing."""
        try:
            listed = (await self._request("GET", "/models", None)).get("data")
        except _Unreachable:
            raise
        except ModelError:
            if not self.model:
                raise
            return ""  # some endpoints list nothing, and a key may be good for one model only
        rows = [r for r in listed if isinstance(r, dict)] if isinstance(listed, list) else []
        ids = [r["id"] for r in rows if isinstance(r.get("id"), str)]
        if not self.model:
            if not ids:
                raise ModelError(f"{self.url} lists no model.", "Name one: set TOOLSCOUT_MODEL.")
            self._use(next((i for i in ids if (tuning_of_name(i) or Tuning()).trained), ids[0]))
        elif self.model not in ids:
            # Named without what it says about asking: one and the same model.
            self._use(next((i for i in ids if tuning_of_name(i) and bare_name(i) == self.model), self.model))
        return next((r["owned_by"] for r in rows if r.get("owned_by") in _GRAMMAR), "")

    def _use(self, model: str) -> None:
        self.model, self.name = model, bare_name(model) or self.name
        tuning = self._tuning or tuning_of_name(model) or Tuning()
        self.style, self.budget, self.none_at = tuning.style, tuning.budget, tuning.none_at
        chooses = tuning.chooses if self._chooses is None else self._chooses
        self.chooses = chooses is not False

    async def _obeys_grammars(self) -> bool:
        try:
            given = await self._continue(_PROBE, _PROBE_PREFIX, _PROBE_GRAMMAR, 32, 0)
        except _Refused:
            return False
        return bool(parse_answer(_PROBE_PREFIX + given.text) == {"toolscout_probe": "q7"})

    async def _continue(self, messages: Messages, prefix: str, grammar: str, max_tokens: int, top: int) -> Generation:
        """vLLM or llama.cpp goes on from ``prefix`` under ``grammar``."""
        form = _GRAMMAR[self._owner](grammar) if grammar else {}
        if prefix:
            if self._owner == "vllm":
                form = {**form, **_PREFILL}
            messages = [*messages, {"role": "assistant", "content": prefix}]
        given = await self._chat(messages, form, max_tokens, top)
        return replace(given, text=given.text.removeprefix(prefix)) if self._owner == "llamacpp" else given

    async def _chat(self, messages: Messages, form: JsonObject, max_tokens: int, top: int) -> Generation:
        # An endpoint may refuse a field (newer OpenAI models: max_tokens, temperature; many: logprobs). Each is
        # left out once it has been named in a refusal, and stays out.
        for _ in range(5):
            body: JsonObject = {"model": self.model, "messages": list(messages), self._token_field: max_tokens, **form}
            if self._temperature:
                body["temperature"] = self.temperature
            if top and self._logprobs:
                body |= {"logprobs": True, "top_logprobs": min(top, 20)}
            if self._streams:
                body |= ASKED
            try:
                return self._read(await self._request("POST", "/chat/completions", body))
            except _Refused as refusal:
                said = str(refusal).lower()
                if "max_completion_tokens" in said and self._token_field == "max_tokens":
                    self._token_field = "max_completion_tokens"
                elif "logprob" in said and "logprobs" in body:
                    self._logprobs = False
                elif "temperature" in said and self._temperature:
                    self._temperature = False
                elif "stream" in said and self._streams:
                    self._streams = False
                else:
                    raise
        raise ModelError(f"{self.url} refuses every form of the request.", "Is it an OpenAI-compatible endpoint?")

    def _read(self, answer: JsonObject) -> Generation:
        read = first_choice(answer)
        if read is None:
            raise ModelError(
                f"The model endpoint {self.url} did not answer as a chat endpoint does.",
                "Check that TOOLSCOUT_MODEL_URL ends in /v1.",
            )
        text, choice = read
        usage = answer.get("usage") or {}
        return Generation(
            text=text,
            tokens=_tokens(choice.get("logprobs")),
            complete=choice.get("finish_reason") != "length",
            prompt_tokens=usage.get("prompt_tokens") or 0,
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            completion_tokens=usage.get("completion_tokens") or 0,
            first_token_seconds=answer.get(FIRST),
        )

    async def _request(self, method: str, path: str, body: JsonObject | None) -> JsonObject:
        """One request; retried with growing pauses while the endpoint is busy or away."""
        import httpx

        if self._client is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._client = httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(self.timeout, connect=5.0))
        failure = ModelError(f"{self.url} does not answer.")
        sent = time.perf_counter()
        for attempt in range(_RETRIES):
            if attempt:
                await asyncio.sleep(0.3 * 2**attempt * (0.5 + random.random()))
            try:
                async with self._client.stream(method, self.url + path, json=body) as response:
                    if response.is_success and response.headers.get("content-type", "").startswith("text/event-stream"):
                        answer = await collected(response, sent)
                        if answer is not None and "error" in answer:
                            raise self._refusal(said_of(answer))
                        if answer is not None:
                            return answer
                        failure = ModelError(f"The model endpoint {self.url} broke off its answer.")
                        continue
                    await response.aread()
            except httpx.ConnectError as error:
                failure = _Unreachable(
                    f"Nothing answers at {self.url}: {error}.", "Start the model server, or check TOOLSCOUT_MODEL_URL."
                )
                continue
            except httpx.TimeoutException:
                raise _Unreachable(
                    f"The model endpoint {self.url} did not answer within {self.timeout:g} s.",
                    "Raise TOOLSCOUT_MODEL_TIMEOUT.",
                ) from None
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = ModelError(
                    f"The model endpoint {self.url} broke off the request: {error or type(error).__name__}."
                )
                continue
            if response.status_code in _RETRIED:
                failure = ModelError(
                    f"The model endpoint {self.url} answered {response.status_code}: {error_text(response)}."
                )
                continue
            return self._checked(response, path)
        raise failure

    def _refusal(self, said: str) -> ModelError:
        """What an endpoint that does not take a request means."""
        lowered = said.lower()
        if "context" in lowered and any(w in lowered for w in ("exceed", "length", "maximum", "too long")):
            return ContextOverflow(f"The request is too long for {self.model or self.url}: {said}.", 0.6)
        if "model" in lowered and any(w in lowered for w in ("not found", "not exist", "unknown model")):
            return ModelError(
                f"The model endpoint {self.url} does not know the model {self.model!r}: {said}.",
                "Set TOOLSCOUT_MODEL.",
            )
        return _Refused(f"The model endpoint {self.url} refused the request: {said}.")

    def _checked(self, response: httpx.Response, path: str) -> JsonObject:
        code, said = response.status_code, error_text(response)
        if code in (401, 403):
            raise ModelError(f"The model endpoint {self.url} refused the key ({code}).", "Set TOOLSCOUT_MODEL_KEY.")
        if code == 404:
            if "model" in said.lower():
                raise ModelError(
                    f"The model endpoint {self.url} does not know the model {self.model!r}: {said}.",
                    "Set TOOLSCOUT_MODEL.",
                )
            raise ModelError(f"{self.url}{path} does not exist.", "Check that TOOLSCOUT_MODEL_URL ends in /v1.")
        if code in (400, 413, 422):
            raise self._refusal(said)
        if code >= 300:
            raise ModelError(f"The model endpoint {self.url} answered {code}: {said}.")
        value = json_object(response)
        if value is None:
            raise ModelError(
                f"The model endpoint {self.url} did not answer with JSON.",
                "Check that TOOLSCOUT_MODEL_URL is a chat endpoint's /v1.",
            )
        return value


class _Refused(ModelError):
    """The endpoint does not take a request of this form."""


class _Unreachable(ModelError):
    """Nothing answers: there is no use in asking anything else."""


def _tokens(logprobs: object) -> tuple[Token, ...]:
    rows = logprobs.get("content") if isinstance(logprobs, dict) else None
    try:
        return tuple(
            Token(
                str(r["token"]),
                float(r["logprob"]),
                tuple((str(t["token"]), float(t["logprob"])) for t in r.get("top_logprobs") or ()),
            )
            for r in rows or ()
        )
    except (KeyError, TypeError, ValueError):
        return ()
