"""Generate: distinct instructions from the tool's side, naming neither tool nor server (MCP-Flow, 2510.24284, 3.2)."""

from __future__ import annotations

import re

from pydantic import BaseModel

from toolscout.index.document import server_name, squeeze
from toolscout.index.words import has_words
from toolscout.records import JsonObject, sha256_hex
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Dropped, Outcome
from toolscout.synth.drafts import PLAIN, Draft, Subject, definition_mark
from toolscout.synth.filters.duplicates import same_text
from toolscout.synth.parsing import read_answer
from toolscout.synth.prompt_files import load_prompt
from toolscout.synth.talk import RULES, copied, talk
from toolscout.synth.written_in import written_in


class Instructions(BaseModel):
    """The answer's form."""

    instructions: list[str]


class Generate:
    """From a tool to its instructions."""

    name = "generate"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.prompt = load_prompt("generate")

    def decides(self) -> JsonObject:
        """See `Step`."""
        s = self.bench.settings
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.writer.model,
            "count": s.instructions,
            "temperature": s.temperature,
            "rules": rules(self.bench),
            "max_tokens": s.max_tokens,
        }

    async def work(self, item: Subject) -> Outcome:
        """See `Step`."""
        s = self.bench.settings
        server = item.server
        about = server_name(server, item.tool.server_id)
        said = squeeze((server.description or server.summary or "") if server else "", 300)
        messages = self.prompt.render(
            tool=self.bench.shown(item.id), server=f"{about}: {said}" if said else about, count=s.instructions
        )
        found = await self.bench.writer.write(
            messages,
            lambda text: read_answer(text, Instructions),
            temperature=s.temperature,
            schema=Instructions.model_json_schema(),
        )
        outcome = Outcome()
        base = sha256_hex(item.id)[:10]
        seen: set[str] = set()
        for text in found.instructions:
            text = tidy(text)
            why, detail = trouble(text, item.id, self.bench)
            if not why and same_text(text) in seen:
                why = "repeated"
            if not why and len(seen) == s.instructions:
                why = "more than asked for"
            if why:
                outcome.dropped.append(Dropped(reason=why, detail=detail, text=text[: s.longest_instruction]))
                continue
            outcome.made.append(
                Draft(
                    id=f"{base}-{len(seen)}",
                    tool_id=item.id,
                    definition=definition_mark(item.tool),
                    text=text,
                    lang=written_in(text, PLAIN),
                )
            )
            seen.add(same_text(text))
        if not found.instructions:
            outcome.dropped.append(Dropped(reason="empty"))
        return outcome


def tidy(text: str) -> str:
    """One paragraph without a list's mark before it or quotes around it."""
    text = re.sub(r"^\s*(?:\d{1,2}[.)]|[-*•])\s+", "", " ".join(text.split()))
    if len(text) > 2 and text[0] in "\"“'" and text[-1] in "\"”'" and text.count(text[0]) <= 2:
        text = text[1:-1].strip()
    return text


def rules(bench: Bench) -> JsonObject:
    """All that `trouble` goes by, for a step's ``decides``."""
    s = bench.settings
    return {
        "talk": RULES,
        "longest": s.longest_instruction,
        "copied": s.copied_words,
        "names": s.allow_names,
        "environment": bench.environment.text,
    }


def trouble(text: str, tool_id: str, bench: Bench) -> tuple[str, str]:
    """(reason, detail) why a text is no instruction; two empty strings if it is one."""
    if not has_words(text) or (len(text.split()) < 2 and text.isascii()):
        return "empty", ""
    if len(text) > bench.settings.longest_instruction:
        return "too long", f"{len(text)} characters"
    if names := bench.names_in(text, tool_id):
        return "names tool or server", ", ".join(names)
    run = bench.settings.copied_words
    if shown := copied(text, bench.environment.text, length=run):
        return "copies the environment", shown
    return talk(text, bench.tools[tool_id], run)
