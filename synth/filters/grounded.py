"""Grounded: calls with values that the instruction does not give, and calls that leave out all that it gives.

A model trained on them learns to make values up, or not to look for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolscout.records import JsonObject
from toolscout.synth.bench import Bench, Ungrounded
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.environment import placeholders

_RULES = 3
_VALUE = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*|[\"“«`][^\"”»`\n]{2,}[\"”»`]|(?<!\w)'[^'\n]{2,}'(?!\w)")
"""Numbers and quoted texts: who states one wants it used."""
_CUT = re.compile(r".*\w(?:…|\.{3})|.*(?:^|/)path/to/.*", re.IGNORECASE | re.DOTALL)
_FILE = re.compile(
    r"[\w./~\\-]*\w\.(?:pdf|md|csv|jpg|png|py|yaml|xlsx|pptx|docx|log|mp3|mp4|html|json|sh|tex|svg|vcf|zip|tsx|txt|pem|xml)"
)
_TAKES_FILE = re.compile(
    r"file|path|dir|folder|location|url|uri|source|input|output|image|document|name|cwd|root", re.IGNORECASE
)
_NO_FILE = re.compile(r"\bnot (?:an?|the) (?:\w+ )?(?:file|path|url)\w*(?: \w+)?", re.IGNORECASE)
"""What a parameter says it does not take."""


class Grounded:
    """Drops calls with more made-up values than allowed, placeholders for values, and empty calls of requests that
    state values."""

    name = "grounded"

    def __init__(self, bench: Bench, ungrounded: Ungrounded) -> None:
        self.bench, self.ungrounded = bench, ungrounded

    def decides(self) -> JsonObject:
        """See `Step`."""
        return {"above": self.bench.settings.ungrounded_above, "rules": _RULES}

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        tool, arguments = self.bench.tools[item.tool_id], item.arguments or {}
        names = self.ungrounded(tool, item.text, arguments)
        if len(names) > self.bench.settings.ungrounded_above:
            return Outcome.drop("value not in the instruction", ", ".join(names), item.text)
        texts = list(_texts(arguments))
        if held := [text for _, text in texts if _stands_for_a_value(text)]:
            return Outcome.drop("placeholder for a value", held[0][:80], item.text)
        properties = tool.input_schema.get("properties") or {}
        for name, text in texts:
            said = (
                f"{name} {properties[name].get('description', '')}" if isinstance(properties.get(name), dict) else name
            )
            if _FILE.fullmatch(text) and not _TAKES_FILE.search(_NO_FILE.sub(" ", said)):
                return Outcome.drop("a file's name for its content", f"{name}: {text}"[:80], item.text)
        if not arguments and (stated := _VALUE.search(item.text)):
            return Outcome.drop("no argument takes what is stated", stated[0][:80], item.text)
        return Outcome([item])


def _stands_for_a_value(text: str) -> bool:
    whole = (text.strip(), "")
    return _CUT.fullmatch(text) is not None or any(
        p.kind == "other" and text[p.start : p.end] in whole for p in placeholders(text)
    )


def _texts(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """The texts of a call with the names of their parameters."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, name or str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, name)
