"""A GGUF model in this process, through llama.cpp as xllamacpp brings it (extra ``local``).

The model is loaded at the first request, in the one worker thread that also runs every generation: so loading
happens once, generations queue up, and the event loop stays free. The thread's prompt cache makes a second request
over the same candidates, and the argument step after the choice step, cost only their new tokens.
"""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from toolscout.errors import ModelError
from toolscout.prompt import Style
from toolscout.records import JsonObject
from toolscout.server.backends.base import ContextOverflow, Generation, Messages, Token
from toolscout.server.backends.llama import load_server


class GgufBackend:
    """One GGUF file. ``context`` in tokens; ``threads`` 0 means one per free core; ``lora`` is a GGUF adapter."""

    prefills = True
    queues = True

    def __init__(
        self,
        path: Path,
        *,
        name: str = "",
        context: int = 4096,
        threads: int = 0,
        temperature: float = 0.0,
        lora: Path | None = None,
        chooses: bool = False,
        none_at: float = 0.5,
        style: Style = "full",
        budget: int = 0,
    ) -> None:
        self.path = path
        self.name = name or path.stem
        self.context = context
        self.threads = threads
        self.temperature = temperature
        self.lora = lora
        self.chooses = chooses
        self.none_at = none_at
        self.style: Style = style
        self.budget = budget
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toolscout-model")
        self._server: Any = None

    async def prepare(self) -> None:
        """All is known from the start; the model is loaded at the first request."""

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
        """See :class:`~toolscout.server.backends.base.Backend`. ``schema`` is used only without a ``grammar``."""
        request: JsonObject = {
            "messages": [*messages, {"role": "assistant", "content": prefix}] if prefix else list(messages),
            "max_tokens": max_tokens,
            "temperature": self.temperature,
            "cache_prompt": True,
            "logprobs": True,
            "top_logprobs": max(top, 1),
            "chat_template_kwargs": {"enable_thinking": False},
        }
        if grammar:
            request["grammar"] = grammar
        elif schema is not None:
            request["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._worker, self._ask, request)
        try:
            return _generation(answer, prefix)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ModelError(
                "The local model's answer has a form that is not known here.",
                "Install xllamacpp as pinned, or report it.",
            ) from error

    async def close(self) -> None:
        """Unload the model. Waits for a generation that is under way."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._worker, self._unload)
        self._worker.shutdown(wait=False)

    def _ask(self, request: JsonObject) -> JsonObject:
        if self._server is None:
            self._server = self._load()
        answer: JsonObject = self._server.handle_chat_completions(request)
        return answer

    def _load(self) -> Any:
        # The library always opens a loopback port beside its in-process calls: shut for whoever lacks this key.
        return load_server(
            self.path, lora=self.lora, context=self.context, threads=self.threads, key=secrets.token_hex(16)
        )

    def _unload(self) -> None:
        self._server = None


def _generation(answer: JsonObject, prefix: str) -> Generation:
    failure = answer.get("error")
    if failure:
        message = str(failure.get("message", failure)) if isinstance(failure, dict) else str(failure)
        if isinstance(failure, dict) and failure.get("type") == "exceed_context_size_error":
            raise ContextOverflow(f"{message}.", failure["n_ctx"] / max(failure["n_prompt_tokens"], 1))
        raise ModelError(f"The local model refused the request: {message}.")
    choice = answer["choices"][0]
    text = choice["message"].get("content") or ""
    rows = (choice.get("logprobs") or {}).get("content") or []
    tokens = tuple(
        Token(_text(r), r["logprob"], tuple((_text(t), t["logprob"]) for t in r.get("top_logprobs", ()))) for r in rows
    )
    usage = answer.get("usage", {})
    return Generation(
        text=text.removeprefix(prefix),
        tokens=tokens,
        complete=choice.get("finish_reason") != "length",
        prompt_tokens=usage.get("prompt_tokens", 0),
        cached_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
        completion_tokens=usage.get("completion_tokens", 0),
        first_token_seconds=_first_token(answer.get("timings") or {}),
    )


def _first_token(timings: JsonObject) -> float | None:
    """Seconds to read the prompt and to write one token."""
    try:
        return float(timings["prompt_ms"] + timings["predicted_per_token_ms"]) / 1000
    except (KeyError, TypeError):
        return None


def _text(row: JsonObject) -> str:
    """A token's text; a token may end within a character, so its bytes are decoded leniently."""
    return bytes(row["bytes"]).decode("utf-8", "replace") if row.get("bytes") else str(row.get("token", ""))
