"""Call: the arguments that an instruction asks for, given the gold tool, asked for as serving does.

A small model that is shown a schema writes parts of it as arguments (``type``, ``required``), and optional arguments
with values that nobody named. Both are taken out, as serving does; what is required and not grounded is left to the
filter.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolscout.errors import InvalidArguments
from toolscout.prompt import NONE, labels, render
from toolscout.records import JsonObject, Tool
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.parsing import Unreadable, read_object
from toolscout.synth.writer import NoAnswer
from toolscout.validation import unwrap_envelope, validate

_PROBLEMS = 3
_OPEN = ("additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref", "if")
"""Where one of these stands the arguments' names may be elsewhere than under ``properties``."""


@dataclass
class Answer:
    """What the model answered. ``arguments`` is None where it refuses or misses something."""

    arguments: JsonObject | None = None
    missing: tuple[str, ...] = ()
    problems: str = ""


class MakeCall:
    """From an instruction to its arguments. One that does not fit the schema is asked for again with what is wrong;
    if that does not help, it goes on to the filter, which counts it."""

    name = "call"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def decides(self) -> JsonObject:
        """See `Step`. The prompt is ``toolscout.prompt``'s."""
        return {
            "prompt": render("", []),
            "model": self.bench.writer.model,
            "max_tokens": self.bench.settings.max_tokens,
            "taken out": "unknown names; optional values that the instruction does not give",
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        tool = self.bench.tools[item.tool_id]
        label = labels([tool])[0]
        last: list[Answer] = []

        def read(text: str) -> Answer:
            value = read_object(text)
            name = value.get("name", label)
            if name == NONE:
                return Answer()
            if name != label:
                raise Unreadable(f'name: it has to be "{label}" or "{NONE}".')
            missing = value.get("missing")
            if isinstance(missing, list) and missing:
                return Answer(missing=tuple(map(str, missing)))
            if "arguments" not in value:
                raise Unreadable("arguments: they are missing.")
            try:
                arguments = unwrap_envelope(item.tool_id, value["arguments"], tool.input_schema)
            except InvalidArguments as error:
                raise Unreadable(str(error)) from None
            last.append(Answer(arguments))
            problems = validate(arguments, tool.input_schema, key=tool.fingerprint or None)
            if problems:
                raise Unreadable("\n".join(p.line() for p in problems[:_PROBLEMS]))
            return last[-1]

        try:
            answer = await self.bench.writer.write(
                render(item.text, [tool]), read, schema=_form(label), temperature=0.0
            )
        except NoAnswer as none:
            if none.passing or not last:
                raise
            answer = last[-1]
        if answer.missing:
            return Outcome.drop("value missing", ", ".join(answer.missing), item.text)
        if answer.arguments is None:
            return Outcome.drop("tool does not fit", "", item.text)
        arguments = self.without_made_up(tool, item.text, answer.arguments)
        return Outcome([item.model_copy(update={"arguments": arguments})])

    def without_made_up(self, tool: Tool, text: str, arguments: JsonObject) -> JsonObject:
        """The arguments without names that the schema lacks and without optional values that the instruction lacks.

        Unchanged where less would be less valid.
        """
        schema = tool.input_schema
        known, required = schema.get("properties") or {}, schema.get("required") or ()
        # Without "additionalProperties" anything is valid, and nothing but the named is meant.
        closed = all(schema.get(word, False) is False for word in _OPEN)
        kept = {name: value for name, value in arguments.items() if name in known or not closed}
        if self.bench.ungrounded is not None:
            made_up = set(self.bench.ungrounded(tool, text, kept)) - set(required)
            kept = {name: value for name, value in kept.items() if name not in made_up}
        if len(kept) == len(arguments) or len(validate(kept, schema)) > len(validate(arguments, schema)):
            return arguments
        return kept


def _form(label: str) -> JsonObject:
    return {
        "type": "object",
        "properties": {
            "name": {"enum": [label, NONE]},
            "arguments": {"type": "object"},
            "missing": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name"],
    }
