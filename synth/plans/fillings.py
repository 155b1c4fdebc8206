"""Fillings: a template's slots filled with several combinations of their values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolscout.records import JsonObject, Tool
from toolscout.schema import simplify_arguments
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft, draw
from toolscout.synth.filters.duplicates import same_text
from toolscout.synth.plans.codes import Codes, editions, in_form
from toolscout.synth.plans.dag import PlanStep
from toolscout.synth.plans.state import Filled, Plan, Scalar, Slot

SLOT = re.compile(r"\{([A-Za-z_]\w{0,40})\}")
_TRIES = 4
_DRAWN = 6
"""Values drawn from a code dictionary where the model gives none that is in it."""


def candidates(slot: Slot, lists: Mapping[str, Codes], *key: object) -> list[Filled]:
    """What may stand in a slot: the model's values, of a code list those that the list has, else some of the list's."""
    codes = lists.get(slot.type)
    if codes is None:
        return [Filled(said=spoken(v), value=v) for v in slot.values if spoken(v).strip()]
    found = [entry for value in slot.values if (entry := codes.find(value))] or codes.draw(_DRAWN, *key)
    return [Filled(said=e.name, value=e.code, type=slot.type) for e in dict.fromkeys(found)]


def spoken(value: Scalar) -> str:
    """A value as it stands in a sentence."""
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)


def combinations(slots: Mapping[str, Sequence[Filled]], count: int, *key: object) -> list[dict[str, Filled]]:
    """At most so many different combinations, each value used before one comes again.

    Two slots never say the same, but for numbers: nobody flies from Oslo to Oslo.
    """
    shuffled = {n: sorted(c, key=lambda f: draw(*key, n, f.said)) for n, c in slots.items()}
    made: list[dict[str, Filled]] = []
    seen: set[tuple[str, ...]] = set()
    for at in range(_TRIES * count):
        turn = {n: c[(at if at < len(c) else int(draw(*key, n, at) * len(c))) % len(c)] for n, c in shuffled.items()}
        said = tuple(same_text(f.said) for f in turn.values())
        words = [text for text in said if not text.replace(" ", "").isdigit()]
        if len(made) < count and said not in seen and len(set(words)) == len(words):
            seen.add(said)
            made.append(turn)
    return made


def filled_text(text: str, filled: Mapping[str, Filled]) -> str:
    """A text with what is said in place of its slots."""
    return SLOT.sub(lambda m: filled[m[1]].said if m[1] in filled else m[0], text)


def filled_steps(steps: Sequence[PlanStep], filled: Mapping[str, Filled], tools: Mapping[str, Tool]) -> list[PlanStep]:
    """Steps with values in place of slots: the code where a slot is the whole text, else what is said."""
    made = []
    for step in steps:
        schema = simplify_arguments(tools[step.tool_id].input_schema)
        made.append(step.model_copy(update={"arguments": _put(step.arguments, schema, filled)}))
    return made


def _put(value: Any, node: JsonObject, filled: Mapping[str, Filled]) -> Any:
    if isinstance(value, dict):
        members = node.get("properties", {})
        return {name: _put(inner, members.get(name, {}), filled) for name, inner in value.items()}
    if isinstance(value, list):
        items = node.get("items")
        return [_put(inner, items if isinstance(items, dict) else {}, filled) for inner in value]
    if not isinstance(value, str):
        return value
    whole = SLOT.fullmatch(value)
    if whole is None or whole[1] not in filled:
        return filled_text(value, filled)
    given = filled[whole[1]]
    if given.type != "text":
        return in_form(str(given.value), node)
    return _as_wanted(given.value, node)


def _as_wanted(value: Any, node: JsonObject) -> Any:
    """A number as text, and a text that is a number, as the schema wants it."""
    wanted = node.get("type")
    if wanted == "string" and not isinstance(value, str):
        return spoken(value)
    if wanted in ("integer", "number") and isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value.strip()):
        value = json.loads(value.strip())
    return int(value) if wanted == "integer" and isinstance(value, float) and value.is_integer() else value


class Fill:
    """From a template to requests with their calls, by rules alone."""

    name = "fill"

    def __init__(self, bench: Bench, lists: Mapping[str, Codes]) -> None:
        self.bench, self.lists = bench, lists

    def decides(self) -> JsonObject:
        """See `Step`."""
        s = self.bench.settings
        return {"fillings": s.plan_fillings, "seed": s.seed, "editions": editions(), "types": list(self.lists)}

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        plan, s = Plan.of(item), self.bench.settings
        slots = {n: candidates(slot, self.lists, s.seed, item.id, n) for n, slot in plan.slots.items()}
        made = []
        for n, filled in enumerate(combinations(slots, s.plan_fillings, s.seed, item.id)):
            steps = filled_steps(plan.steps, filled, self.bench.tools)
            update = plan.model_copy(update={"slots": {}, "steps": steps, "filled": filled})
            made.append(update.on(item, id=f"{item.id}-{n}", parent=item.id, text=filled_text(item.text, filled)))
        return Outcome(made) if made else Outcome.drop("no combination of values", ", ".join(slots), item.text)
