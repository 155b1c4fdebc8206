"""Evolve: instructions that are harder to understand, in generations (WizardLM's Evol-Instruct, arXiv 2304.12244).

Each generation goes one drawn direction. As there, a generation that adds nothing or has lost its way is eliminated,
and the evolution ends with the one before it. One call must still serve the instruction, so the directions are those
that make it deeper, not those that add a task.
"""

from __future__ import annotations

import re

from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Dropped, Outcome
from toolscout.synth.drafts import Draft, draw
from toolscout.synth.environment import placeholders
from toolscout.synth.filters.duplicates import same_text
from toolscout.synth.making.fill import Revised
from toolscout.synth.making.generate import rules, tidy, trouble
from toolscout.synth.parsing import read_answer
from toolscout.synth.prompt_files import load_prompt
from toolscout.synth.talk import copied
from toolscout.synth.writer import NoAnswer

_COPIED = 5
"""Words in a row that only a copy shares with a direction, which is a sentence or two."""

_PROMPT_WORDS = re.compile(
    r"\b(?:re-?written|given|original|evolved) (?:request|instruction|prompt)\b|\brequest is served\b"
    r"|\bre(?:phrase|write|word) (?:the|this|your) (?:request|instruction|question)\b",
    re.IGNORECASE,
)
"""Words of the prompt that only a model which answers the prompt itself would write."""


class Evolve:
    """From an instruction to its generations, of which the settings say which go on."""

    name = "evolve"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.prompt = load_prompt("evolve")

    def decides(self) -> JsonObject:
        """See `Step`."""
        s = self.bench.settings
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.writer.model,
            "depth": s.depth,
            "keep": s.keep_levels,
            "seed": s.seed,
            "temperature": s.temperature,
            "rules": rules(self.bench),
            "growth": s.growth_words,
            "max_tokens": s.max_tokens,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        s = self.bench.settings
        generations, dropped = [item], []
        order = sorted(self.prompt.directions, key=lambda d: draw(s.seed, "direction", item.id, d))
        for level in range(1, s.depth + 1):
            direction = order[(level - 1) % len(order)]
            try:
                text = await self._rewritten(generations[-1], direction)
            except NoAnswer as none:
                dropped.append(Dropped(reason=none.reason, detail=none.detail))
                break
            why, detail = self._lost(text, generations[-1])
            if why:
                dropped.append(Dropped(reason=why, detail=detail, text=text))
                break
            generations.append(
                Draft(
                    id=f"{item.id}-e{level}",
                    tool_id=item.tool_id,
                    definition=item.definition,
                    text=text,
                    level=level,
                    directions=[*generations[-1].directions, direction],
                    parent=generations[-1].id,
                )
            )
        if s.keep_levels == "ends":
            generations = [generations[0], generations[-1]] if len(generations) > 1 else generations
        elif s.keep_levels == "last":
            generations = generations[-1:]
        return Outcome(generations, dropped)

    async def _rewritten(self, draft: Draft, direction: str) -> str:
        messages = self.prompt.render(
            tool=self.bench.shown(draft.tool_id), instruction=draft.text, direction=self.prompt.directions[direction]
        )
        found = await self.bench.writer.write(
            messages,
            lambda said: read_answer(said, Revised),
            temperature=self.bench.settings.temperature,
            schema=Revised.model_json_schema(),
        )
        return tidy(found.instruction)

    def _lost(self, text: str, before: Draft) -> tuple[str, str]:
        """(reason, detail) why a generation is eliminated."""
        why, detail = trouble(text, before.tool_id, self.bench)
        if why:
            return why, detail
        if same_text(text) == same_text(before.text):
            return "unchanged", ""
        if len(text.split()) > len(before.text.split()) + self.bench.settings.growth_words:
            return "too long", f"{len(text.split())} words"
        if found := placeholders(text):
            return "placeholder", text[found[0].start : found[0].end]
        if shown := copied(text, *self.prompt.directions.values(), length=_COPIED):
            return "copies the prompt", shown
        if _PROMPT_WORDS.search(text) and not _PROMPT_WORDS.search(before.text):
            return "speaks of the prompt", ""
        return "", ""
