"""Translate: a share of the instructions in other languages, drawn by their ids; the values that calls need stay."""

from __future__ import annotations

import re

from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Dropped, Outcome
from toolscout.synth.drafts import Draft, draw
from toolscout.synth.filters.duplicates import same_text
from toolscout.synth.making.fill import Revised
from toolscout.synth.making.generate import rules, tidy, trouble
from toolscout.synth.parsing import read_answer
from toolscout.synth.prompt_files import load_prompt
from toolscout.synth.writer import NoAnswer

_KEPT = re.compile(r"https?://[^\s\"'<>),]+|[\w.+-]+@[\w-]+\.\w+|[\w.\\/-]*[\\/][\w.\\/-]+|\w*\d[\w.:-]*\d|\d|\w+_\w+")
"""Addresses, paths, identifiers and numbers."""

_SEPARATORS = re.compile(r"(?<=\d)[.,  ](?=\d)")


class Translate:
    """From an instruction to the same in another language; where that loses a value, it stays as it was."""

    name = "translate"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.prompt = load_prompt("translate")

    def decides(self) -> JsonObject:
        """See `Step`."""
        s = self.bench.settings
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.writer.model,
            "languages": dict(sorted(s.languages.items())),
            "seed": s.seed,
            "rules": rules(self.bench),
            "max_tokens": s.max_tokens,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        language = self._language(item)
        if not language:
            return Outcome([item])
        messages = self.prompt.render(language=language, instruction=item.text)
        try:
            found = await self.bench.writer.write(
                messages, lambda said: read_answer(said, Revised), schema=Revised.model_json_schema()
            )
        except NoAnswer as none:
            return Outcome([item], [Dropped(reason=none.reason, detail=none.detail, text=item.text)])
        text = tidy(found.instruction)
        why, detail = trouble(text, item.tool_id, self.bench)
        if not why and same_text(text) == same_text(item.text):
            why = "unchanged"
        if not why and (lost := _lost(item.text, text)):
            why, detail = "value lost", lost
        if why:
            return Outcome([item], [Dropped(reason=why, detail=detail, text=text)])
        return Outcome(
            [item.model_copy(update={"id": f"{item.id}-{language}", "text": text, "lang": language, "parent": item.id})]
        )

    def _language(self, item: Draft) -> str:
        at = draw(self.bench.settings.seed, "language", item.id)
        for language, share in sorted(self.bench.settings.languages.items()):
            at -= share
            if at < 0:
                return language
        return ""


def _lost(before: str, after: str) -> str:
    """The first value of ``before`` that ``after`` lacks; numbers may be written with other separators."""
    bare = _SEPARATORS.sub("", after)
    for value in _KEPT.findall(before):
        value = value.rstrip(".,:;-")
        if value not in after and _SEPARATORS.sub("", value) not in bare:
            return str(value)
    return ""
