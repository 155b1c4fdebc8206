"""The result of ``eval setup`` in words that terminal and page share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolscout.records import JsonObject

NOTHING = "Nothing is installed: there is no server with tools to look at."
HOW = "Take over your clients' servers with toolscout import, or add one with toolscout add."


def clean(text: Any) -> str:
    """Foreign text without characters that move, hide or turn what stands around it."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "\ufffd" for c in str(text))


def names_of(result: JsonObject) -> dict[str, str]:
    """Names of servers by id."""
    return {row["server_id"]: row["name"] for row in result["verdicts"]}


def short_id(tool_id: str, names: dict[str, str]) -> str:
    """A tool as people say it: its server's name and its own."""
    server = max((s for s in names if tool_id.startswith(s + "/")), key=len, default="")
    return clean(f"{names[server]}: {tool_id[len(server) + 1 :]}" if server else tool_id)


def headline(result: JsonObject) -> list[str]:
    """What there is, in sentences; the first says all if there is nothing."""
    n, cost = result["n"], result["context"]
    if not n["tools"]:
        return [f"{NOTHING} {HOW}"]
    lines = []
    if n["held_back"]:
        lines.append(
            f"{n['held_back']} of {n['tools']} tools are held back by the guard and left out of everything below: "
            "toolscout review shows why."
        )
    if not n["searchable"]:
        return [*lines, "No tool is left to look at."]
    if cost["saved"] > 0:
        lines.append(
            f"{cost['all_definitions']:,} tokens of tool definitions become {cost['with_toolscout']:,}: Toolscout's "
            f"three tools ({cost['toolscout_tools']:,}) and an answer of five tools ({cost['find_answer']:,}). That "
            f"saves {cost['saved_share']:.0%}; every further search adds an answer, and "
            f"{cost['searches_until_even']:,} of them in one conversation use up what was saved."
        )
    else:
        lines.append(
            f"Toolscout saves no context here: all definitions are {cost['all_definitions']:,} tokens, its three tools "
            f"and an answer of five tools {cost['with_toolscout']:,}. It pays from more tools on."
        )
    return lines


def percent(share: float | None) -> str:
    """A share for reading."""
    return "-" if share is None else f"{100 * share:.0f} %"


def pair_says(pair: JsonObject) -> str:
    """What is the matter with a pair."""
    kinds = {
        "identical": "identical: same name, description and schema",
        "copy": "a copy: same description and arguments",
        "near copy": "a near copy: same name, almost the same description",
        None: "the same words, other arguments" if pair["words"] == 1 else "one is found for the other",
    }
    return kinds[pair["copy"]]


def never_says(result: JsonObject) -> str:
    """What the call log says of tools that nothing reached."""
    never = result["never_reached"]
    if never["tools"] is None:
        return "No request has been logged yet, so nothing can be said about which tools are used."
    if not never["tools"]:
        return f"Each tool was reached at least once in {never['logged']:,} log entries."
    return (
        f"{len(never['tools'])} of {result['n']['searchable']} tools were never reached in {never['logged']:,} log "
        "entries: neither first in an answer nor invoked."
    )


def some(items: Iterable[str], most: int) -> str:
    """The first few of them, and how many more there are."""
    listed = list(items)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
