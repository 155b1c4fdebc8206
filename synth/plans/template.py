"""Template: a request with slots over dealt tools, candidates for each slot, and the calls that serve it.

MCPToolBench++ (arXiv 2508.07575, section 2): the model writes the template over the drawn tools; it may leave out those
that do not go with the others. What is wrong with the plan is said to it once; what stays wrong is counted by reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from toolscout.prompt import labels, render_tool
from toolscout.records import JsonObject, Tool
from toolscout.schema import simplify_arguments
from toolscout.signature import parameters
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.making.generate import tidy
from toolscout.synth.parsing import Unreadable, read_answer
from toolscout.synth.plans.codes import KINDS, Codes, editions, offered, told_type
from toolscout.synth.plans.dag import LEAST, MOST, Flaw, PlanStep, flaws, in_order, misfits, texts, with_paths
from toolscout.synth.plans.fillings import SLOT, candidates, combinations, filled_steps
from toolscout.synth.plans.state import Plan, Scalar, Slot
from toolscout.synth.prompt_files import load_prompt
from toolscout.synth.writer import NoAnswer

_TOLD = 4
"""Flaws that the model is told of at once."""
_RESULTS = 16
_FULL_TOOLS = 4
"""Up to so many tools are shown with their schemas in full."""


def _id(value: object) -> object:
    """1, "1", "step1" and "$1" all mean 1."""
    return str(value).strip().lstrip("$").removeprefix("step").strip("_ -") if isinstance(value, int | str) else value


StepId = Annotated[str, BeforeValidator(_id), Field(pattern=r"^[1-9]\d?$")]


class StepForm(BaseModel):
    """One call as the model writes it."""

    id: StepId
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    depends_on: list[StepId] = Field(default_factory=list)


class SlotForm(BaseModel):
    """One slot as the model writes it."""

    type: str = "text"
    values: list[Scalar] = Field(default_factory=list)


class TemplateForm(BaseModel):
    """The answer's form. An empty request: the tools do not go together."""

    request: str
    slots: dict[str, SlotForm] = Field(default_factory=dict)
    steps: list[StepForm] = Field(default_factory=list)


class Template:
    """From dealt tools to a template."""

    name = "template"

    def __init__(self, bench: Bench, lists: Mapping[str, Codes]) -> None:
        self.bench, self.lists = bench, lists
        self.prompt = load_prompt("plan_template")

    def decides(self) -> JsonObject:
        """See `Step`."""
        s = self.bench.settings
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.writer.model,
            "temperature": s.temperature,
            "max_tokens": s.max_tokens,
            "longest": s.longest_instruction,
            "types": list(self.lists),
            "editions": editions(),
            "mends": 1,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        dealt = Plan.of(item)
        tools = [self.bench.tools[t] for t in dealt.tools]
        named = dict(zip(labels(tools), tools, strict=True))
        last: list[tuple[str, Plan, list[Flaw]]] = []

        def read(text: str) -> None:
            form = read_answer(text, TemplateForm)
            request = tidy(form.request)
            plan = self._plan(form, dealt, named)
            wrong = self._wrong(request, plan, {t.tool_id: t for t in tools}) if request else []
            last[:] = [(request, plan, wrong)]
            if wrong:
                raise Unreadable("\n".join(flaw.line() for flaw in wrong[:_TOLD]))

        messages = self.prompt.render(
            tools="\n".join(self._shown(tool, label, len(tools)) for label, tool in named.items()),
            need=dealt.need or "your choice",
            least=LEAST,
            most=min(MOST, 2 * len(tools)),
            types=f"text; {offered(self.lists)}" if self.lists else "text",
        )
        try:
            await self.bench.writer.write(
                messages, read, temperature=self.bench.settings.temperature, schema=TemplateForm.model_json_schema()
            )
        except NoAnswer as none:
            if none.passing or not last:
                raise
        request, plan, wrong = last[0]
        if not request:
            return Outcome.drop("tools do not go together", ", ".join(named))
        if wrong:
            said = "; ".join(f.line() for f in wrong[:_TOLD])
            return Outcome.drop(wrong[0].reason, said, request[: self.bench.settings.longest_instruction])
        plan.steps = in_order(plan.steps)
        return Outcome([plan.on(item, tool_id=plan.steps[0].tool_id, text=request)])

    @staticmethod
    def _shown(tool: Tool, label: str, count: int) -> str:
        line = render_tool(tool, label, level=1 if count <= _FULL_TOOLS else 3)
        gives = [p.name for p in parameters(tool.output_schema or {})][:_RESULTS]
        return f"{line}\n  {label} gives: {', '.join(gives)}" if gives else line

    def _plan(self, form: TemplateForm, dealt: Plan, named: Mapping[str, Tool]) -> Plan:
        """The answer as a plan; a tool that is none keeps the name that the model gave it."""
        ids = {label: tool.tool_id for label, tool in named.items()}
        steps = [
            PlanStep(id=s.id, tool_id=ids.get(s.tool, s.tool), arguments=s.arguments, depends_on=s.depends_on)
            for s in form.steps
        ]
        steps = with_paths(steps, {tool.tool_id: tool for tool in named.values()})
        # A slot that stands nowhere is no part of the errand.
        stands = {name for text in (form.request, *_texts_of(steps)) for name in SLOT.findall(text)}
        slots = {n: Slot(type=slot.type, values=slot.values) for n, slot in form.slots.items() if n in stands}
        for name, slot in slots.items():
            if slot.type not in KINDS:
                slot.type = self._told(name, steps)
        return dealt.model_copy(update={"slots": slots, "steps": steps})

    def _told(self, name: str, steps: list[PlanStep]) -> str:
        """The type that the tools' own words give a slot that the model calls text."""
        for step in steps:
            tool = self.bench.tools.get(step.tool_id)
            for argument, value in step.arguments.items():
                if tool is not None and value == f"{{{name}}}":
                    node = simplify_arguments(tool.input_schema)["properties"].get(argument, {})
                    if (kind := told_type(argument, node)) in self.lists:
                        return kind
        return "text"

    def _wrong(self, request: str, plan: Plan, tools: Mapping[str, Tool]) -> list[Flaw]:
        """What is wrong with a template: its length, its shape, its slots, and its calls with the first values in."""
        long = len(request) > self.bench.settings.longest_instruction
        found = [Flaw("too long", f"{len(request)} characters")] if long else []
        found += flaws(plan.steps, tools)
        asked = set(SLOT.findall(request))
        used = {name for text in _texts_of(plan.steps) for name in SLOT.findall(text)}
        for name in sorted(asked | used | plan.slots.keys()):
            slot = plan.slots.get(name)
            if slot is None:
                found.append(Flaw("slot that is not listed", name))
            elif name not in asked:
                found.append(Flaw("slot that is not in the request", name))
            elif name not in used:
                found.append(Flaw("slot that is in no call", name))
            elif slot.type in KINDS and slot.type not in self.lists:
                found.append(Flaw("dictionary not installed", f"{slot.type} ({KINDS[slot.type].package})"))
            elif not candidates(slot, self.lists):
                found.append(Flaw("slot without values", name))
        if found:
            return found
        first = combinations({n: candidates(s, self.lists, n) for n, s in plan.slots.items()}, 1)
        if not first:
            return [Flaw("no combination of values", ", ".join(plan.slots))]
        return [
            Flaw("does not fit the schema", f"step {step.id}, {line}")
            for step in filled_steps(plan.steps, first[0], tools)
            for line in misfits(step, tools[step.tool_id])
        ]


def _texts_of(steps: Sequence[PlanStep]) -> Iterator[str]:
    return (text for step in steps for _, text in texts(step.arguments))
