"""``toolscout eval guard``: how many poisoned tools the scanner holds back, and how many honest ones."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput
from toolscout.index.guard.finding import Finding, Severity
from toolscout.index.guard.scan import holds_back, scan_server, scan_tool
from toolscout.jsonl import parse_record, read_objects
from toolscout.records import JsonObject, Server, Tool

PARTS = ("tuning", "held_out")
_LEVELS = {"honest": 0, "plain": 1, "careful": 3}
QUOTED = 200
"""Most alarms and misses that a result quotes of each part."""


@dataclass(frozen=True)
class Attack:
    """One poisoned tool. ``level`` 1 is plain, 3 is subtle; ``part`` is tuning or held_out."""

    id: str
    kind: str
    level: int
    lang: str
    part: str
    server: Server
    tool: Tool


def read_attacks(path: Path | str) -> list[Attack]:
    """Read poisoned tools from a JSONL file, as in ``eval/data/attacks.jsonl`` or in the corpus (``eval/data/guard``).

    Rows of the corpus have words for levels, no ids, and honest tools (level 0) among the poisoned ones.

    Raises:
        NotFound: there is no such file.
        BadInput: a line that is none, ``file:line: reason``.
    """
    found = []
    for number, row in read_objects(path):
        place = f"{path}:{number}"
        row = _of_corpus(row, Path(path).name.partition(".")[0], number) if row.get("level") in _LEVELS else row
        try:
            facts = {name: str(row[name]) for name in ("id", "kind", "part")}
            level, lang = int(row["level"]), str(row.get("lang", "en"))
        except (KeyError, TypeError, ValueError) as error:
            why = f"it lacks {error}" if isinstance(error, KeyError) else "its level is no number"
            raise BadInput(f"{place}: this is no poisoned tool, {why}.", "See eval/data/README.md.") from None
        server = parse_record(row.get("server") or {}, Server, place)
        tool = parse_record(row.get("tool") or {}, Tool, place)
        found.append(Attack(**facts, level=level, lang=lang, server=server, tool=tool))
    return found


def _of_corpus(row: JsonObject, writer: str, number: int) -> JsonObject:
    server_id = f"{writer}/{number}"
    server, tool = dict(row.get("server") or {}), dict(row.get("tool") or {})
    ids = {"server_id": server_id, "tool_id": f"{server_id}/{tool.get('name')}"}
    facts = {"id": server_id, "part": "held_out", "level": _LEVELS[row["level"]]}
    return {**row, **facts, "server": {**server, "server_id": server_id}, "tool": {**tool, **ids}}


def half_of(tool_id: str) -> str:
    """The half of an honest tool, by hash: rules are mended on ``first``, alarms are reported on ``second``."""
    digest = hashlib.sha256(tool_id.encode("utf-8", "surrogatepass")).hexdigest()
    return "second" if int(digest[:8], 16) % 2 else "first"


def measure_guard(
    attacks: Sequence[Attack],
    tools: Iterable[Path],
    servers: Iterable[Path],
    *,
    honest: Mapping[str, Sequence[Attack]] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> JsonObject:
    """Scan poisoned and honest tools.

    Args:
        honest: honest tools that were written to be taken for poison, by name of file, in the form of attacks.

    Returns:
        ``detection``: by part (``tuning``, ``held_out``, ``all``): n, held back, rate, by kind, level and language, and
        what was missed. ``alarms``: by file and half, the same way, with what was quoted. ``tricky``: by file and part,
        for ``honest``. ``ms_per_tool``: CPU time, median and 99th percentile. Fractions between 0 and 1.
    """
    result: JsonObject = {"detection": {}, "alarms": {}}
    hits = {attack.id: _findings(attack) for attack in attacks}
    for part in (*PARTS, "all"):
        some = [a for a in attacks if part in ("all", a.part)]
        if some:
            result["detection"][part] = _detection(some, hits)
    for name, rows in (honest or {}).items():
        result.setdefault("tricky", {})[name] = _tricky(rows)
    known = {s.server_id: s for path in servers for s in _records(path, Server)}
    times: list[float] = []
    for name, path in told_apart(tools, 2).items():
        say(f"scanning {path}")
        for half, counts in _alarms(list(_records(path, Tool)), known, times).items():
            result["alarms"].setdefault(name, {})[half] = counts
    if times:
        times.sort()
        p99 = times[min(len(times) - 1, int(0.99 * len(times)))]
        result["ms_per_tool"] = {"n": len(times), "p50": _ms(times[len(times) // 2]), "p99": _ms(p99)}
        result["ms_per_tool"] |= {"mean": _ms(sum(times) / len(times)), "most": _ms(times[-1])}
    return result


def _findings(attack: Attack) -> list[Finding]:
    names = [attack.tool.name]
    return [*scan_tool(attack.tool, attack.server, siblings=names), *scan_server(attack.server, names)]


def _detection(attacks: Sequence[Attack], hits: dict[str, list[Finding]]) -> JsonObject:
    caught = [a for a in attacks if holds_back(hits[a.id])]
    found: JsonObject = {"n": len(attacks), "held_back": len(caught), "rate": round(len(caught) / len(attacks), 4)}
    for name in ("kind", "level", "lang"):
        total = Counter(str(getattr(a, name)) for a in attacks)
        good = Counter(str(getattr(a, name)) for a in caught)
        found[f"by_{name}"] = {key: {"n": n, "held_back": good[key]} for key, n in sorted(total.items())}
    missed = [a for a in attacks if not holds_back(hits[a.id])]
    found["missed"] = [{"id": a.id, "kind": a.kind, "level": a.level, "tool": a.tool.name} for a in missed[:QUOTED]]
    return found


def _tricky(rows: Sequence[Attack]) -> JsonObject:
    counts: JsonObject = {}
    for part in (*PARTS, "all"):
        some = [row for row in rows if part in ("all", row.part)]
        grave = {row.id: [f for f in _findings(row) if f.severity is not Severity.INFO] for row in some}
        held = [row for row in some if grave[row.id]]
        counts[part] = {"n": len(some), "held_back": len(held), "rate": round(len(held) / max(len(some), 1), 4)}
        counts[part]["by_code"] = dict(Counter(code for row in held for code in {f.code for f in grave[row.id]}))
        counts[part]["quoted"] = [{"id": row.id, **grave[row.id][0].to_json()} for row in held[:QUOTED]]
    return counts


def _alarms(tools: Sequence[Tool], known: dict[str, Server], times: list[float]) -> dict[str, JsonObject]:
    names: dict[str, list[str]] = defaultdict(list)
    for tool in tools:
        names[tool.server_id].append(tool.name)
    of_server: dict[str, list[Finding]] = {}
    counts: dict[str, JsonObject] = {
        half: {"n": 0, "held_back": 0, "rate": 0.0, "by_code": Counter(), "quoted": []} for half in ("first", "second")
    }
    for tool in tools:
        server = known.get(tool.server_id)
        if server is not None and server.server_id not in of_server:
            of_server[server.server_id] = scan_server(server, names[server.server_id])
        start = time.process_time()
        found = scan_tool(tool, server, siblings=names[tool.server_id])
        times.append(time.process_time() - start)
        grave = [f for f in [*found, *of_server.get(tool.server_id, [])] if f.severity is not Severity.INFO]
        part = counts[half_of(tool.tool_id)]
        part["n"] += 1
        if grave:
            part["held_back"] += 1
            part["by_code"].update({f.code for f in grave})
            if len(part["quoted"]) < QUOTED:
                part["quoted"].append({"tool_id": tool.tool_id, **grave[0].to_json()})
    for part in counts.values():
        part["rate"] = round(part["held_back"] / max(part["n"], 1), 5)
        part["by_code"] = dict(part["by_code"].most_common())
    return counts


def _records(path: Path, kind: type[Any]) -> Iterator[Any]:
    for number, row in read_objects(path):
        yield parse_record(row, kind, f"{path}:{number}")


def told_apart(paths: Iterable[Path], parts: int = 1) -> dict[str, Path]:
    """Files by the last ``parts`` parts of their paths; further ones of that name are numbered."""
    found: dict[str, Path] = {}
    for path in {path.resolve(): path for path in paths}.values():
        name = "/".join(path.parts[-parts:])
        same = sum(known == name or known.startswith(f"{name} (") for known in found)
        found[f"{name} ({same + 1})" if same else name] = path
    return found


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
