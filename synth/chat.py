"""One OpenAI-compatible chat endpoint, asked patiently: retries, back-off that all requests share, clear refusals.

A client of its own: the server's answers one person at once and gives up soon, and is a sibling that this room may
not import.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx

from toolscout.chat_endpoint import base_url, error_text, first_choice, json_object
from toolscout.errors import BadInput, ModelError, NotAllowed
from toolscout.records import JsonObject

Message = dict[str, str]

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_FIRST_PAUSE = 0.5
_SLOW = 2
"""Times that a request is waited for in vain before it is left out: what takes so long once mostly does again."""
_SLOW_IN_ROW = 8
"""With so many of them and no answer between, it is the endpoint that is slow."""
_TOO_LONG = ("context", "too long", "maximum length", "too many tokens", "exceed")


@dataclass(frozen=True)
class Reply:
    """What a model wrote, and what it took. ``complete`` is false where it was cut off at ``max_tokens``, ``counted``
    where the endpoint does not say how many tokens it took."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    complete: bool = True
    retries: int = 0
    counted: bool = True


class TooLong(ModelError):
    """The request does not fit the model's context: this one is left out, others go on."""


class Refused(ModelError):
    """The endpoint takes the request in none of its forms: this one is left out, others go on."""


class TookTooLong(ModelError):
    """No answer came in time, twice: this request is left out, others go on."""


class Unreachable(ModelError):
    """No answer came in time, or none but errors that pass, in all tries: elsewhere one may."""


class ChatEndpoint:
    """``POST <url>/chat/completions``. Safe to use from many tasks of one event loop.

    :param url: base of the endpoint (``http://host:8000/v1``).
    :param model: empty for the first one listed.
    :param longest_pause: most seconds between two tries.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str = "",
        key: str = "",
        timeout: float = 600.0,
        retries: int = 6,
        longest_pause: float = 60.0,
        connections: int = 8,
    ) -> None:
        self.url = base_url(url)
        self.model = model
        self.timeout = timeout
        self.retries = retries
        self.longest_pause = longest_pause
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client = httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(timeout, connect=10.0), limits=limits)
        self._rest_until = 0.0
        self._slow = 0
        self._refused: set[str] = set()
        """Fields that the endpoint does not take: what was refused with them was answered without them. Each is left
        out from then on."""

    async def prepare(self) -> str:
        """The model's name, found out where none was given. Raises as `ask`."""
        if not self.model:
            listed, _ = await self._send("GET", "/models", None)
            try:
                self.model = str(listed["data"][0]["id"])
            except (KeyError, IndexError, TypeError):
                raise ModelError(f"{self.url} lists no model.", "Name one with --model.") from None
        return self.model

    async def ask(
        self,
        messages: list[Message],
        *,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        schema: JsonObject | None = None,
    ) -> Reply:
        """The model's answer; ``schema`` constrains it where the endpoint can.

        Raises:
            TooLong: the request does not fit the model's context.
            Refused: the request is refused in all its forms, as a content filter does.
            TookTooLong: the answer did not come in time, though others do.
            NotAllowed: the key is refused.
            ModelError: the endpoint cannot be reached after all retries, or is no chat endpoint.
        """
        await self.prepare()
        tried: set[str] = set()
        while True:
            left_out = self._refused | tried
            try:
                found, retries = await self._send(
                    "POST", "/chat/completions", self._body(messages, max_tokens, temperature, schema, left_out)
                )
            except Refused as refusal:
                field = _suspect(str(refusal).lower(), schema is not None, left_out)
                if not field:
                    raise
                tried.add(field)
                continue
            reply = self._read(found, retries)
            self._refused |= tried
            return reply

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _body(
        self,
        messages: list[Message],
        max_tokens: int,
        temperature: float,
        schema: JsonObject | None,
        left_out: Collection[str],
    ) -> JsonObject:
        length = "max_completion_tokens" if "max_tokens" in left_out else "max_tokens"
        body: JsonObject = {"model": self.model, "messages": messages, length: max_tokens}
        if "temperature" not in left_out:
            body["temperature"] = temperature
        if schema is not None and "response_format" not in left_out:
            form = {"name": "answer", "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return body

    def _read(self, found: JsonObject, retries: int) -> Reply:
        read = first_choice(found)
        if read is None:
            raise ModelError(
                f"{self.url} did not answer as a chat endpoint does.", "Check that the address ends in /v1."
            )
        text, choice = read
        usage = found.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        prompt = _count(usage.get("prompt_tokens"))
        return Reply(
            text=text,
            prompt_tokens=prompt,
            completion_tokens=_count(usage.get("completion_tokens")),
            counted=prompt > 0 and isinstance(usage.get("completion_tokens"), int),
            complete=choice.get("finish_reason") != "length",
            retries=retries,
        )

    async def _send(self, method: str, path: str, body: JsonObject | None) -> tuple[JsonObject, int]:
        """The JSON object answered and how many tries failed before it."""
        failure = Unreachable(f"{self.url} does not answer.")
        slow = 0
        for attempt in range(self.retries + 1):
            await self._rest()
            pause = min(self.longest_pause, _FIRST_PAUSE * 2**attempt) * (0.5 + random.random() / 2)
            try:
                response = await self._client.request(method, self.url + path, json=body)
            except httpx.InvalidURL as error:
                raise BadInput(f"{self.url} is not the address of a model endpoint: {error}.") from None
            except httpx.ReadTimeout:
                slow += 1
                self._slow += 1
                said = f"{self.url} took more than {self.timeout:g} s for an answer"
                hint = "Raise TOOLSCOUT_SYNTH_TIMEOUT or lower --concurrency, and run the command again to go on."
                failure = Unreachable(f"{said}.", hint)
                if self._slow >= _SLOW_IN_ROW:
                    raise Unreachable(f"{said}, {self._slow} times in a row.", hint) from None
                if slow >= _SLOW:
                    raise TookTooLong(f"{said}, twice.", hint) from None
            except httpx.HTTPError as error:
                said = str(error).rstrip(".") or type(error).__name__
                failure = Unreachable(f"{self.url} cannot be reached: {said}.", "Run the command again to go on.")
            else:
                self._slow = 0
                if response.status_code not in _RETRIED:
                    return self._checked(response, path), attempt
                said = f"{response.status_code}: {error_text(response)}"
                failure = Unreachable(f"{self.url} answered {said}.", "Run the command again to go on.")
                if response.status_code == 429:  # everyone waits: the others would only be turned away as well
                    pause = min(self.longest_pause, max(pause, _retry_after(response)))
                    self._rest_until = max(self._rest_until, time.monotonic() + pause)
                    continue
            if attempt < self.retries:
                await asyncio.sleep(pause)
        raise failure

    def resting(self) -> float:
        """Seconds until the endpoint may be asked again, after it said that it is asked too often."""
        return max(0.0, self._rest_until - time.monotonic())

    async def _rest(self) -> None:
        pause = self.resting()
        if pause > 0:
            await asyncio.sleep(pause * (1 + 0.1 * random.random()))

    def _checked(self, response: httpx.Response, path: str) -> JsonObject:
        code = response.status_code
        if code in (401, 403):
            raise NotAllowed(f"{self.url} refused the key ({code}).", "Set TOOLSCOUT_SYNTH_MODEL_KEY.")
        if code == 404:
            raise ModelError(
                f"{self.url}{path} does not exist, or not the model {self.model!r}: {error_text(response)}.",
                "Check that the address ends in /v1, and the model's name.",
            )
        if code in (400, 413, 422):
            said = error_text(response)
            if code == 413 or any(word in said.lower() for word in _TOO_LONG):
                raise TooLong(f"The request is too long for {self.model}: {said}.")
            raise Refused(f"{self.url} refused the request: {said}.")
        if code >= 300:
            raise ModelError(f"{self.url} answered {code}: {error_text(response)}.")
        value = json_object(response)
        if value is None:
            raise ModelError(
                f"{self.url} did not answer with JSON.", "Check that the address is a chat endpoint's /v1."
            )
        return value


def _suspect(said: str, constrained: bool, left_out: Collection[str]) -> str:
    """The field that a refusal is about, as far as its words tell; empty if there is nothing left to leave out."""
    if "max_completion_tokens" in said and "max_tokens" not in left_out:
        return "max_tokens"
    if "temperature" in said and "temperature" not in left_out:
        return "temperature"
    return "response_format" if constrained and "response_format" not in left_out else ""


def _retry_after(response: httpx.Response) -> float:
    """Seconds that the endpoint asks to wait, given as a number or as a date; 0 if it says nothing."""
    value = response.headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
