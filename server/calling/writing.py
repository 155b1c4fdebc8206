"""One request being written: which tool, then its arguments, checked value by value.

:class:`Writing` holds what every step of a request shares: the prompt, the tokens used, the calls before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolscout import prompt
from toolscout.prompt import NONE, EarlierCall
from toolscout.records import Call, JsonObject, Tool
from toolscout.schema import simplify_arguments
from toolscout.server.backends import Backend, ContextOverflow, Generation, Token
from toolscout.server.calling import constrain
from toolscout.server.calling.blanks import trimmed
from toolscout.server.calling.choice import choice_probabilities, mean_probability, start_probability
from toolscout.server.calling.grounding import (
    Grounds,
    echoes,
    idle,
    invented,
    is_placeholder,
    is_reference,
    names_one_thing,
    references,
    repeated,
)
from toolscout.server.calling.reading import closed, name_in, read_call
from toolscout.server.calling.skeleton import skeleton
from toolscout.server.calling.suggestion import Candidate, Decoding, SuggestedCall, Suggestion
from toolscout.server.telling.telemetry import model_call
from toolscout.settings import Settings
from toolscout.validation import Problem, asking_less, misformed, validate

_TOP = 50
_CHARS_PER_TOKEN = 3.2
_ANSWER_TOKENS = 512
_LOCAL_ANSWER_TOKENS = 320
"""In process a rambling answer costs seconds; almost every real call is shorter."""
_MEANT = 0.6
"""Probability of its first token from which a plain word is believed to be the id that was asked for."""
_DERIVED = 0.6
"""The same for a text that does not show in the request (``AAPL`` for Apple)."""
_ASKED_AGAIN = 4
"""Most required arguments that are asked for one by one; more are plainly not in the request."""


@dataclass
class Choice:
    tool: Tool | None
    probability: float
    known: bool
    ranking: list[str]


class Writing:
    """One request: what every step of it shares."""

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        task: str,
        candidates: list[Candidate],
        context: str,
        decoding: Decoding = "repair",
    ) -> None:
        self.backend = backend
        self.decoding = decoding
        self.prefills = backend.prefills and decoding != "schema"
        self.task, self.context = task, context
        self.tools = [c.tool for c in candidates]
        self.chosen: list[float] | None = None
        """P(candidate) and P(none), where something else than the model chooses."""
        self.exemplars = [e for c in candidates for e in c.exemplars]
        self.ids = {tool.tool_id for tool in self.tools}
        self.others = [e for e in self.exemplars if e.gold and e.gold[0].tool_id not in self.ids]
        self.budget = int((settings.model_context - _ANSWER_TOKENS) * _CHARS_PER_TOKEN)
        if backend.budget or backend.queues:
            self.budget = min(self.budget, backend.budget or prompt.DEFAULT_BUDGET)
        else:
            self.budget = max(self.budget, 4 * prompt.DEFAULT_BUDGET)
        self.grounds = Grounds(task, context)
        self.text = f"{task}\n{context}".strip()
        self.copying: constrain.Copying = "ids" if decoding == "repair" else "none"
        self.part = ""
        """The step's own words; the whole request is then what it stands in."""
        self.earlier: list[EarlierCall] = []
        self.plan = False
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.first_token_seconds: float | None = None
        self.timed = False
        self.started = time.perf_counter()

    def show(self, calls: Sequence[Call], *, foreign: bool) -> None:
        """Further worked calls; with ``foreign`` also those of tools that are no candidates."""
        known = {e.id for e in self.exemplars}
        for call in calls:
            if call.gold and call.id not in known:
                if call.gold[0].tool_id in self.ids:
                    self.exemplars.append(call)
                elif foreign:
                    self.others.append(call)

    async def suggest(self, steps: int) -> Suggestion:
        self.plan = steps > 1
        calls: list[SuggestedCall] = []
        alternatives: list[str] = []
        reason = None
        for step in range(1, steps + 1):
            choice = await self.choose() if self.chosen is None else self.take()
            if step == 1:
                alternatives = choice.ranking
            if choice.tool is None:
                reason = None if calls else _no_tool(choice)
                break
            call, problem = await self.fill(choice.tool, choice, str(step))
            if call is None:
                reason = problem
                break
            if any(c.tool_id == call.tool_id and c.arguments == call.arguments for c in calls):
                break
            calls.append(call)
            self.earlier.append(EarlierCall(call.id, call.tool_id, call.arguments))
        return self.suggestion(calls, alternatives, reason)

    def suggestion(self, calls: list[SuggestedCall], alternatives: Sequence[str], reason: str | None) -> Suggestion:
        used = {c.tool_id for c in calls}
        if calls and any(c.missing for c in calls) and reason is None:
            names = ", ".join(dict.fromkeys(n for c in calls for n in c.missing))
            reason = f"The task does not state: {names}."
        return Suggestion(
            calls,
            alternatives=[a for a in alternatives if a not in used][:3],
            exemplars=[e for e in self.exemplars if e.gold and e.gold[0].tool_id in used],
            abstained=not calls,
            reason=reason,
            model=self.backend.name,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
            first_token_seconds=self.first_token_seconds,
        )

    # -- phase 1: which tool

    async def choose(self) -> Choice:
        names = prompt.labels(self.tools)
        options = [*names, NONE]
        if self.prefills:
            given = await self.ask(
                prefix='{"name": "', grammar=constrain.choice_grammar(options), max_tokens=64, top=_TOP
            )
            written = next((o for o in options if given.text.startswith(o + '"')), NONE)
        else:
            given = await self.ask(schema=constrain.choice_schema(options), max_tokens=128, top=_TOP)
            written = name_in(given.text, options)
        odds = choice_probabilities(given.tokens, options)
        best = max(options, key=lambda o: (odds.get(o, 0.0), o == written)) if odds else written
        if best == NONE and 0 < odds.get(NONE, 0.0) < self.backend.none_at:
            best = max(names, key=lambda n: odds.get(n, 0.0))
        ranking = sorted((n for n in names if odds.get(n, 0.0) > 0.01), key=lambda n: -odds[n])
        by_name = dict(zip(names, self.tools, strict=True))
        rest = [by_name[n].tool_id for n in (ranking or names) if n != best]
        return Choice(by_name.get(best), odds.get(best, 0.5), bool(odds), rest)

    def take(self) -> Choice:
        """The choice that was made; from here on the prompt shows the chosen tool alone."""
        assert self.chosen is not None
        *odds, none = self.chosen
        order = sorted(range(len(odds)), key=lambda i: -odds[i])
        rest = [self.tools[i].tool_id for i in order]
        if none >= max(odds):
            return Choice(None, none, True, rest)
        best = self.tools[order[0]]
        self.tools = [best]
        return Choice(best, odds[order[0]], True, rest[1:])

    # -- phase 2: its arguments

    async def fill(self, tool: Tool, choice: Choice, id_: str) -> tuple[SuggestedCall | None, str | None]:
        label = prompt.labels(self.tools)[self.tools.index(tool)]
        node = simplify_arguments(tool.input_schema)
        given = await self.arguments(tool, label, ())
        if self.decoding in ("free", "constrained"):
            return self.as_written(tool, choice, given, label, id_), None
        answer = read_call(given.text, label)
        if answer is None and not given.complete:
            answer = read_call(closed(given.text), label)
        draft = self.well_formed(self.sift(answer, node, tool.input_schema, given.tokens), node, tool.input_schema)
        problems = self.problems(draft[0], tool.input_schema, draft[1])
        if answer is None or problems:
            said = (
                "; ".join(f"{p.path or 'arguments'}: {p.message}" for p in problems) or "that is not the JSON asked for"
            )
            again = [
                {"role": "assistant", "content": (answer and prompt.dumps(answer)) or given.text[:1000]},
                {
                    "role": "user",
                    "content": f"That call is not valid: {said[:600]}. Answer again with the corrected one.",
                },
            ]
            given = await self.arguments(tool, label, again)
            answer = read_call(given.text, label) or read_call(closed(given.text), label) or answer or {"arguments": {}}
            draft = self.well_formed(self.sift(answer, node, tool.input_schema, given.tokens), node, tool.input_schema)
            draft = self.without_bad_options(draft[0], draft[1], node, tool.input_schema)
            problems = self.problems(draft[0], tool.input_schema, draft[1])
            if problems:
                return None, (
                    f"{tool.tool_id} fits, but no valid arguments came out: "
                    + "; ".join(f"{p.path or 'arguments'}: {p.message}" for p in problems)[:300]
                )
        arguments, missing = draft
        shares = [mean_probability(given.tokens)] if given.tokens else []
        if self.prefills and missing:
            declared = (answer or {}).get("missing", ())
            arguments, missing, more = await self.ask_for_missing(tool, label, node, arguments, missing, declared)
            arguments, missing = self.well_formed((arguments, missing), node, tool.input_schema)
            shares += more
        known = choice.known and bool(shares)
        confidence = choice.probability * min(shares) if known else 0.5
        ready = not missing and not self.problems(arguments, tool.input_schema, [])
        depends = sorted(references(arguments), key=int)
        return (
            SuggestedCall(
                tool_id=tool.tool_id,
                arguments=arguments,
                confidence=confidence,
                missing=missing,
                ready=ready,
                id=id_,
                depends_on=depends,
                skeleton=None if ready else skeleton(tool.input_schema, arguments),
            ),
            None,
        )

    def as_written(self, tool: Tool, choice: Choice, given: Generation, label: str, id_: str) -> SuggestedCall:
        """What the model wrote, right or wrong."""
        answer = read_call(given.text, label) or {}
        arguments, missing = answer.get("arguments", {}), answer.get("missing", [])
        ready = not missing and not self.problems(arguments, tool.input_schema, [])
        depends = sorted(references(arguments) & {c.id for c in self.earlier}, key=int)
        return SuggestedCall(tool.tool_id, arguments, choice.probability, missing, ready, id_, depends)

    async def arguments(self, tool: Tool, label: str, more: Sequence[dict[str, str]]) -> Generation:
        refs = bool(self.earlier)
        if self.prefills:
            start = f'{{"name": {prompt.dumps(label)}, "arguments":'
            grammar = ""
            if self.decoding != "free":
                grammar = constrain.arguments_grammar(
                    tool.input_schema, references=refs, copying=self.copying, text=self.text
                )
            most = _LOCAL_ANSWER_TOKENS if self.backend.queues else _ANSWER_TOKENS
            given = await self.ask(more, prefix=start, grammar=grammar, max_tokens=most)
            return Generation(
                start + given.text, given.tokens, given.complete, given.prompt_tokens, given.cached_tokens
            )
        schema = constrain.call_schema(label, tool.input_schema, references=refs) if self.decoding != "free" else None
        return await self.ask(more, schema=schema)

    async def ask_for_missing(
        self,
        tool: Tool,
        label: str,
        node: JsonObject,
        arguments: JsonObject,
        missing: list[str],
        declared: Sequence[str],
    ) -> tuple[JsonObject, list[str], list[float]]:
        """Ask for each required argument that was left out, by starting its member; keep what the request supports.

        Small models declare missing what the request does state: so those are asked for as well, and their values
        have to show in the request even where others may be derived.
        """
        left: list[str] = []
        shares: list[float] = []
        for index, name in enumerate(missing):
            value: Any = None
            if index < _ASKED_AGAIN:
                so_far = prompt.dumps(arguments)[:-1] + (", " if arguments else "")
                start = f'{{"name": {prompt.dumps(label)}, "arguments": {so_far}{prompt.dumps(name)}:'
                grammar = constrain.value_grammar(
                    tool.input_schema, name, references=bool(self.earlier), copying=self.copying, text=self.text
                )
                given = await self.ask(prefix=start, grammar=grammar, max_tokens=160)
                value = (read_call(start + given.text + "}", label) or {}).get("arguments", {}).get(name)
                spec = node["properties"].get(name, {})
                if (
                    value is not None
                    and self.supported(name, spec, value, derive=name not in declared)
                    and not self.unsure(name, spec, value, given.tokens)
                ):
                    trial = {**arguments, name: value}
                    others = [m for m in missing if m != name and m not in trial]
                    trial = self.without_blanks(trial, tool.input_schema, others)
                    if not self.problems(trial, tool.input_schema, others):
                        arguments = trial
                        shares.append(mean_probability(given.tokens))
                        continue
            left.append(name)
        return arguments, left, shares

    def supported(self, name: str, node: JsonObject, value: Any, *, derive: bool) -> bool:
        """Stricter than for what came unasked: a value that had to be coaxed out must show in the request."""
        if is_placeholder(value) or invented(name, node, value, self.grounds) or not self.resolvable(value):
            return False
        if is_reference(value):
            return True
        free = "enum" in node or isinstance(value, bool)
        return derive if free and not self.grounds.shows(value) else self.grounds.touches(value)

    # -- checks

    def sift(
        self, answer: JsonObject | None, node: JsonObject, schema: JsonObject, tokens: Sequence[Token] = ()
    ) -> tuple[JsonObject, list[str]]:
        """Arguments without invented values, empty options and outer blanks; names of the required ones then absent."""
        given = (answer or {}).get("arguments")
        kept: JsonObject = {}
        for name, value in given.items() if isinstance(given, dict) else ():
            spec = node["properties"].get(name)
            if spec is None:
                if node["additionalProperties"] is False:
                    continue
                spec = node["additionalProperties"]
            needed = name in node["required"]
            if value is None and not needed:
                continue
            if needed and isinstance(value, str) and is_placeholder(value) and not self.grounds.states(value):
                continue
            if invented(name, spec, value, self.grounds) or not self.resolvable(value):
                continue
            if not needed and value in ("", [], {}) and value is not False:
                continue
            if not needed and idle(spec, value, self.grounds):
                continue
            if self.unsure(name, spec, value, tokens) or echoes(name, spec, value, self.grounds):
                continue
            kept[name] = value
        for name in repeated(kept, node["required"], self.grounds):
            del kept[name]
        missing = [n for n in node["required"] if n not in kept]
        return self.without_blanks(kept, schema, missing), missing

    def without_blanks(self, arguments: JsonObject, schema: JsonObject, absent: Sequence[str]) -> JsonObject:
        """Texts lose the blanks around them, but where the schema wants them so."""
        for name, value in list(arguments.items()):
            if (bare := trimmed(value, self.text)) != value:
                trial = {**arguments, name: bare}
                if len(self.problems(trial, schema, absent)) <= len(self.problems(arguments, schema, absent)):
                    arguments = trial
        return arguments

    def unsure(self, name: str, node: JsonObject, value: Any, tokens: Sequence[Token]) -> bool:
        """True of a text that the request does not show, or of a word that stands for an id because the grammar left
        no other choice, unless the model was sure of it from its first token on.

        Of 26 such texts that a tuned model of 135M wrote for held-out requests none was right.
        """
        if not isinstance(value, str) or "enum" in node or is_reference(value):
            return False
        if self.copying != "none" and names_one_thing(name, node):
            doubtful, least = not self.grounds.marks(value), _MEANT
        else:
            doubtful, least = not self.grounds.touches(value), _DERIVED
        return doubtful and start_probability(tokens, prompt.dumps(value)) < least

    def resolvable(self, value: Any) -> bool:
        """True if every reference in it is to an earlier call. A plan is acyclic because only those exist."""
        return references(value) <= {c.id for c in self.earlier}

    def well_formed(
        self, draft: tuple[JsonObject, list[str]], node: JsonObject, schema: JsonObject
    ) -> tuple[JsonObject, list[str]]:
        """Without values that break a format which the schema enforces; required ones are missing then."""
        arguments, missing = draft
        wrong = [n for n in misformed(arguments, schema) if not references(arguments[n])]
        kept = {n: v for n, v in arguments.items() if n not in wrong}
        return kept, [*missing, *(n for n in wrong if n in node["required"] and n not in missing)]

    def without_bad_options(
        self, arguments: JsonObject, missing: list[str], node: JsonObject, schema: JsonObject
    ) -> tuple[JsonObject, list[str]]:
        """Optional arguments that alone break the call are dropped."""
        for name in [n for n in arguments if n not in node["required"]]:
            rest = {k: v for k, v in arguments.items() if k != name}
            if len(self.problems(rest, schema, missing)) < len(self.problems(arguments, schema, missing)):
                arguments = rest
        return arguments, missing

    def problems(self, arguments: JsonObject, schema: JsonObject, absent: Sequence[str]) -> list[Problem]:
        """What the tool's schema says against it, apart from arguments known to be absent and from references."""
        by_reference = [n for n, v in arguments.items() if references(v)]
        plain = {k: v for k, v in arguments.items() if k not in by_reference}
        return schema_problems(plain, schema, {*absent, *by_reference})

    async def ask(
        self,
        more: Sequence[dict[str, str]] = (),
        *,
        prefix: str = "",
        grammar: str = "",
        schema: JsonObject | None = None,
        max_tokens: int = _ANSWER_TOKENS,
        top: int = 0,
    ) -> Generation:
        """One generation over the rendered prompt; a prompt that proves too long is rendered shorter."""
        for attempt in range(6):
            messages = await asyncio.to_thread(self.rendered)
            before = time.perf_counter() - self.started
            try:
                with model_call(self.backend.name):
                    given = await self.backend.generate(
                        [*messages, *more],
                        prefix=prefix,
                        grammar=grammar,
                        schema=schema,
                        max_tokens=max_tokens,
                        top=top or 1,
                    )
                if not self.timed and given.first_token_seconds is not None:
                    self.first_token_seconds = before + given.first_token_seconds
                self.timed = True
                self.prompt_tokens += given.prompt_tokens
                self.cached_tokens += given.cached_tokens
                self.completion_tokens += given.completion_tokens
                return given
            except ContextOverflow as overflow:
                if attempt == 5:
                    raise
                self.budget = int(self.budget * max(0.3, min(0.9, overflow.ratio * 0.8)))
                self.exemplars = self.exemplars[: len(self.exemplars) // 2]
                self.others = self.others[: len(self.others) // 2]
        raise AssertionError("unreachable")

    def rendered(self) -> list[dict[str, str]]:
        task, context = self.task, self.context
        if self.part:
            task, context = self.part, f"{self.context}\n{self.task}".strip()
        return prompt.render(
            task,
            self.tools,
            self.exemplars,
            context,
            others=self.others,
            earlier=self.earlier,
            plan=self.plan,
            style=self.backend.style,
            budget=self.budget,
        )


def schema_problems(
    arguments: JsonObject, schema: JsonObject, absent: set[str] | frozenset[str] = frozenset()
) -> list[Problem]:
    return validate(arguments, asking_less(schema, absent))


def _no_tool(choice: Choice) -> str:
    sure = f" (P = {choice.probability:.2f})" if choice.known else ""
    return f"None of the candidate tools does what is asked{sure}."
