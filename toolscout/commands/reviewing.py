"""``review``: which tools may be used, by a person's word or by a policy file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import AsJson, emit, note, printable, say, table, with_engine
from toolscout.errors import BadInput, NotFound
from toolscout.records import Review, Tool
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolscout.server.engine import Engine

_WAITING = frozenset({Review.PENDING, Review.CHANGED, Review.BLOCKED})


def review(
    tool_ids: Annotated[
        list[str] | None, typer.Argument(help="Tool or server ids. Without any: list what waits.", show_default=False)
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Let them be found and called.")] = False,
    block: Annotated[bool, typer.Option("--block", help="Keep them out for good.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back the last approval, block or policy.")] = False,
    policy: Annotated[
        Path | None, typer.Option(help="Approve and block by the rules of this file.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --policy: only say what it would do.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at tools that are new, changed or blocked, and approve or block them.

    Of a tool that is named it shows what the scanner found and what is different from what was approved.
    """
    if sum((approve, block, undo, policy is not None)) > 1:
        raise BadInput("Say one of --approve, --block, --undo and --policy.")
    if (approve or block) and not tool_ids:
        raise BadInput("Say which tools: their ids, or the id of their server.", "See: toolscout review")
    if tool_ids and (undo or policy is not None):
        raise BadInput("--undo and --policy take no tool ids.", "A policy's rules name tools and servers.")
    if dry_run and policy is None:
        raise BadInput("--dry-run goes with --policy.")
    if undo:
        _undo(as_json)
    elif policy is not None:
        _by_policy(policy, dry_run, as_json)
    elif approve or block:
        _judge(set(tool_ids or ()), Review.APPROVED if approve else Review.BLOCKED, as_json)
    else:
        _show(set(tool_ids or ()), as_json)


def _show(wanted: set[str], as_json: bool) -> None:
    async def work(engine: Engine) -> tuple[list[Tool], dict[str, list[str]]]:
        tools = _chosen(engine, wanted)
        return tools, _differences(engine, tools)

    tools, differences = _with_engine(work)
    if as_json:
        emit([_record(tool) | ({"diff": d} if (d := differences.get(tool.tool_id)) else {}) for tool in tools])
        return
    if not tools:
        say("Nothing waits for review.")
        return
    rows = [[t.tool_id, t.review.value, _findings(t), t.description.strip().split("\n")[0][:80]] for t in tools]
    table(rows, ["tool", "review", "findings", "description"])
    for tool in tools if wanted else ():
        for line in (*_evidence(tool), *differences.get(tool.tool_id, ())):
            say(line)
    note("Then: toolscout review TOOL_ID... --approve (or --block); without either, what was found and has changed.")


def _judge(wanted: set[str], verdict: Review, as_json: bool) -> None:
    async def work(engine: Engine) -> list[Tool]:
        return await _apply(engine, {t.tool_id: verdict for t in _chosen(engine, wanted)}, "person")

    tools = _with_engine(work)
    if as_json:
        emit([_record(tool) for tool in tools])
    else:
        say(f"{'Approved' if verdict is Review.APPROVED else 'Blocked'} {_count(len(tools))}.")


def _by_policy(path: Path, dry_run: bool, as_json: bool) -> None:
    from toolscout.index.guard.policy import read_policy, verdicts

    rules = read_policy(path)

    async def work(engine: Engine) -> list[Tool]:
        found = verdicts(rules, engine.catalogue.tools())
        if dry_run:
            return [_judged(tool, found[tool.tool_id]) for tool in _tools(engine, found)]
        return await _apply(engine, found, "policy")

    tools = _with_engine(work)
    if as_json:
        emit([_record(tool) for tool in tools])
        return
    for tool in tools if dry_run else ():
        say(f"{tool.review.value}  {tool.tool_id}")
    counts = [sum(tool.review is one for tool in tools) for one in (Review.APPROVED, Review.BLOCKED)]
    say(f"{'The policy would approve' if dry_run else 'Approved'} {_count(counts[0])}, "
        f"{'block' if dry_run else 'blocked'} {_count(counts[1])}.")  # fmt: skip


def _undo(as_json: bool) -> None:
    async def work(engine: Engine) -> tuple[list[str], list[str]]:
        restored, left = engine.catalogue.undo_reviews()
        if restored:
            await engine.reindex()
        return restored, left

    restored, left = _with_engine(work)
    if as_json:
        emit({"restored": restored, "left": left})
        return
    if not restored and not left:
        say("There is no verdict to take back.")
        return
    say(f"{_count(len(restored))} {'is' if len(restored) == 1 else 'are'} as before.")
    for tool_id in left:
        note(f"left alone, it has changed, gone or been judged again since: {tool_id}")


def _with_engine(work: Any) -> Any:
    return with_engine(work, settings=load_settings().model_copy(update={"starter": False}))


def _chosen(engine: Engine, wanted: set[str]) -> list[Tool]:
    """The tools that are named, themselves or by their server; without names, those that are not approved."""
    if not wanted:
        return list(engine.catalogue.tools(reviews=_WAITING))
    found = [t for t in engine.catalogue.tools() if t.tool_id in wanted or t.server_id in wanted]
    unknown = wanted - {t.tool_id for t in found} - {t.server_id for t in found}
    if unknown:
        raise NotFound(f"No tool or server has the id {min(unknown)!r}.", "See: toolscout review, toolscout list")
    return found


async def _apply(engine: Engine, verdicts: Mapping[str, Review], source: str) -> list[Tool]:
    if verdicts:
        engine.catalogue.set_reviews(verdicts, source=source)
        await engine.reindex()
    return _tools(engine, verdicts)


def _tools(engine: Engine, tool_ids: Mapping[str, Review]) -> list[Tool]:
    return [tool for tool in map(engine.catalogue.get_tool, sorted(tool_ids)) if tool is not None]


def _judged(tool: Tool, verdict: Review) -> Tool:
    return tool.model_copy(update={"review": verdict})


def _differences(engine: Engine, tools: list[Tool]) -> dict[str, list[str]]:
    from toolscout.index.guard.changes import difference

    changed = {tool.tool_id: tool for tool in tools if tool.review is not Review.APPROVED}
    before = engine.catalogue.accepted_versions(changed)
    return {tool_id: difference(before[tool_id], changed[tool_id]) for tool_id in changed if tool_id in before}


def _record(tool: Tool) -> dict[str, Any]:
    return tool.model_dump(mode="json", exclude_none=True)


def _count(number: int) -> str:
    return f"{number} tool{'s' if number != 1 else ''}"


def _findings(tool: Tool) -> str:
    found = (str(f.get("message") or f.get("rule") or f.get("kind") or f) for f in tool.findings)
    return printable("; ".join(dict.fromkeys(found)))[:80]


def _evidence(tool: Tool) -> list[str]:
    """What the scanner found, with where and what it read, for who has to decide."""
    return [
        f"{tool.tool_id}  {found['severity']} {found['code']} in {found['where']}: "
        f"{found.get('message', '')}: {found['evidence']!r}"
        for found in tool.findings
        if {"severity", "code", "where", "evidence"} <= found.keys()
    ]
