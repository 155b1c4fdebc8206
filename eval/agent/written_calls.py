"""Calls that a model wrote as text, made calls again.

Small models know the form of a call and miss the marks around it, so that the endpoint hands their JSON over as text;
llama.cpp does not prevent it even with ``tool_choice: required`` (its issue 27217). Every arm's answers are read so.
"""

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

_ARGUMENTS = ("arguments", "parameters", "args")


def written_call(text: str, names: Collection[str]) -> tuple[str, dict[str, Any]] | None:
    """The first JSON object in ``text`` that names one of the tools, as (name, arguments); None without one."""
    reader = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, end = reader.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found = _as_call(value, names)
            if found is not None:
                return found
        at = text.find("{", end)
    return None


def reading(model: Any) -> Any:
    """The Pydantic AI model, reading calls out of texts that come without any."""
    from pydantic_ai.messages import TextPart, ToolCallPart
    from pydantic_ai.models.wrapper import WrapperModel

    class Reading(WrapperModel):
        async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
            answer = await super().request(messages, model_settings, model_request_parameters)
            if any(isinstance(part, ToolCallPart) for part in answer.parts):
                return answer
            tools = (*model_request_parameters.function_tools, *model_request_parameters.output_tools)
            text = "\n".join(part.content for part in answer.parts if isinstance(part, TextPart))
            found = written_call(text, {tool.name for tool in tools})
            if found is None:
                return answer
            return replace(answer, parts=[ToolCallPart(found[0], found[1])], finish_reason="tool_call")

    return Reading(model)


def _as_call(value: Any, names: Collection[str]) -> tuple[str, dict[str, Any]] | None:
    if not isinstance(value, dict):
        return None
    value = value["function"] if isinstance(value.get("function"), dict) else value
    name = value.get("name")
    if not isinstance(name, str) or name not in names:
        return None
    given = next((value[key] for key in _ARGUMENTS if key in value), None)
    if given is None:
        given = {key: inner for key, inner in value.items() if key not in ("name", "type", "id")}
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    return (name, _whole(given)) if isinstance(given, dict) else None


def _whole(given: dict[str, Any]) -> dict[str, Any]:
    """Without halves of surrogate pairs, which JSON can write and nothing can send."""
    whole: dict[str, Any] = json.loads(json.dumps(given, ensure_ascii=False).encode("utf-8", "replace"))
    return whole
