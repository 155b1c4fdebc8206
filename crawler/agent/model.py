"""The agent's model: any OpenAI-compatible chat endpoint, asked for short answers under a JSON schema.

A thin client of its own: the server's is a sibling that the crawler may not import, and does much that is not needed.
"""

from __future__ import annotations

import asyncio
import json
import random

import httpx

from toolscout.chat_endpoint import base_url, json_object
from toolscout.crawler.agent.costs import Spent
from toolscout.errors import ModelError
from toolscout.records import JsonObject

_RETRIES = 3
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


class ChatModel:
    """One endpoint. ``url`` is its base (``http://host:8000/v1``); what it spends is added to ``spent``."""

    def __init__(self, url: str, *, model: str = "", key: str = "", timeout: float = 120.0) -> None:
        self.url = base_url(url)
        self.name = model
        self.spent = Spent()
        self._constrained = True
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.AsyncClient(timeout=timeout, headers=headers)

    async def answer(self, system: str, user: str, schema: JsonObject, max_tokens: int = 200) -> JsonObject:
        """The model's answer as a JSON object; {} if it wrote none. Greedy.

        Raises:
            ModelError: the endpoint is missing, refuses, or answers nonsense.
        """
        if not self.name:
            self.name = await self._first_model()
        body: JsonObject = {
            "model": self.name,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "temperature": 0,
            "max_tokens": max_tokens,
        }
        form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        if self._constrained:
            try:
                reply = await self._send("POST", "/chat/completions", {**body, "response_format": form})
            except _Refused:
                self._constrained = False  # an endpoint without constraints: the words have to do
                reply = await self._send("POST", "/chat/completions", body)
        else:
            reply = await self._send("POST", "/chat/completions", body)
        usage = reply.get("usage") if isinstance(reply.get("usage"), dict) else {}
        self.spent.requests += 1
        self.spent.prompt_tokens += int((usage or {}).get("prompt_tokens") or 0)
        self.spent.completion_tokens += int((usage or {}).get("completion_tokens") or 0)
        try:
            text = reply["choices"][0]["message"]["content"] or ""
        except (KeyError, IndexError, TypeError):
            raise ModelError(f"{self.url} answers in a form that no chat endpoint has.") from None
        return _first_object(str(text))

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def _first_model(self) -> str:
        listed = await self._send("GET", "/models", None)
        try:
            return str(listed["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise ModelError(f"{self.url} lists no model.", "Set TOOLSCOUT_CRAWL_MODEL.") from None

    async def _send(self, method: str, path: str, body: JsonObject | None) -> JsonObject:
        for attempt in range(_RETRIES + 1):
            try:
                answer = await self._client.request(method, self.url + path, json=body)
            except httpx.HTTPError as error:
                failure = ModelError(f"The model endpoint {self.url} does not answer: {type(error).__name__}.")
            else:
                if answer.status_code < 400:
                    return _object(answer)
                if answer.status_code in (400, 422) and body is not None and "response_format" in body:
                    raise _Refused
                failure = ModelError(
                    f"The model endpoint {self.url} answers with status {answer.status_code}.",
                    "Set TOOLSCOUT_CRAWL_MODEL_KEY." if answer.status_code in (401, 403) else "",
                )
                if answer.status_code not in _RETRIED:
                    raise failure
            if attempt == _RETRIES:
                raise failure
            await asyncio.sleep(0.5 * 2**attempt * (0.5 + random.random()))
        raise AssertionError("unreachable")


class _Refused(Exception):
    """The endpoint does not take the constraint."""


def _object(answer: httpx.Response) -> JsonObject:
    value = json_object(answer)
    if value is None:
        raise ModelError(f"{answer.request.url} does not answer with a JSON object.")
    return value


def _first_object(text: str) -> JsonObject:
    """The first JSON object in a text that may hold prose or a code fence around it."""
    at = text.find("{")
    while at >= 0:
        try:
            value, _ = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        return value if isinstance(value, dict) else {}
    return {}
