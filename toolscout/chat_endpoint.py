"""An OpenAI-compatible chat endpoint's address and answers, read alike by server, synthesis and web agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolscout.errors import BadInput
from toolscout.records import JsonObject

if TYPE_CHECKING:
    import httpx


def base_url(url: str) -> str:
    """An endpoint's base (``http://host:8000/v1``), without a slash at its end. Raises BadInput for what is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadInput(f"{url} is not the address of a model endpoint.", "It looks like http://localhost:8000/v1")
    return url.rstrip("/").removesuffix("/chat/completions")


def json_object(response: httpx.Response) -> JsonObject | None:
    """The object that was answered; None if it was something else."""
    try:
        value = response.json()
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def first_choice(answer: JsonObject) -> tuple[str, JsonObject] | None:
    """Text of a chat completion's first choice, and that choice; None for what is no chat completion."""
    try:
        choice = answer["choices"][0]
        text = choice["message"].get("content") or ""
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    return (text, choice) if isinstance(text, str) else None


def error_text(response: httpx.Response) -> str:
    """What an error answer says, in at most 300 characters."""
    try:
        return said_of(response.json())
    except ValueError:
        return said_of(response.text)


def said_of(value: Any) -> str:
    """What an error says, from its JSON or text, in at most 300 characters."""
    said = value.get("error", value.get("detail", value)) if isinstance(value, dict) else value
    said = said.get("message", said) if isinstance(said, dict) else said
    return " ".join(str(said).split())[:300].rstrip(".") or "no message"
