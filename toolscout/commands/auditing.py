"""``audit``: the log of calls that a policy keeps, the newest first."""

from __future__ import annotations

import fnmatch
import os
from itertools import islice
from typing import Annotated, Any

import typer

from toolscout.commands.output import AsJson, emit, note, table
from toolscout.errors import NotFound
from toolscout.settings import load_settings


def audit(
    tool: Annotated[
        str | None, typer.Argument(metavar="[TOOL_ID]", help="Only tools whose id fits this glob, such as 'github/*'.")
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only calls that ended so, such as ok or policy_denied.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many to show at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the audit log of calls, the newest first. It is kept where the policy file has [audit].

    Exits with 3 if no log is kept, 7 if the policy file cannot be used.
    """
    from toolscout.server.policy.audit import log_file, read_log
    from toolscout.server.policy.file import read_policy

    settings = load_settings()
    known = settings.policy is not None or os.path.lexists(settings.policy_file)
    options = read_policy(settings.policy_file).audit if known else None
    if options is None:
        raise NotFound("No audit log is kept here.", f"Write [audit] into {settings.policy_file} (docs/POLICY.md).")
    path = log_file(settings.home, options)
    found = (
        entry
        for entry in read_log(path)
        if (tool is None or fnmatch.fnmatchcase(str(entry.get("tool_id")), tool))
        and (outcome is None or entry.get("outcome") == outcome)
    )
    entries = list(islice(found, limit))
    if as_json:
        emit(entries)
    elif entries:
        header = ["when", "client", "tool", "outcome", "ms", "policy", "arguments"]
        table([_row(entry) for entry in entries], header)
    else:
        note(f"No such call is in {path}.")


def _row(entry: dict[str, Any]) -> list[str]:
    client = entry.get("client") or {}
    who = client.get("name") or client.get("user") or ""
    policy = " ".join(str(entry[key]) for key in ("action", "rule") if key in entry)
    arguments = ", ".join(f"{name}={value}" for name, value in (entry.get("arguments") or {}).items())
    return [
        str(entry.get("at", "")),
        f"{client.get('via', '')} {who}".strip(),
        str(entry.get("tool_id", "")),
        str(entry.get("outcome", "")),
        str(entry.get("ms", "")),
        policy + (", approved" if entry.get("approved") else ""),
        arguments,
    ]
