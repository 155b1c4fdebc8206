"""Compares our AST metric with BFCL's own checker on perturbed gold answers.

    pip install --no-deps bfcl-eval      # its checker needs no more than the standard library
    python benchmarks/ast_agreement.py --tools bfcl/tools.jsonl.gz --calls bfcl/calls.jsonl.gz [--json out.json]

For every row with gold calls it makes answers that are right, nearly right or wrong in one known way, asks both
checkers, and counts the verdicts by kind of change. The rows must carry BFCL's allowed values in ``accept``.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from toolscout.ast_match import MadeCall, match_calls
from toolscout.jsonl import read_records
from toolscout.records import Call, Tool

Arguments = dict[str, Any]
Perturbation = Callable[[Arguments, Call, int, random.Random, dict[str, Any]], Iterator[Arguments]]


def bfcl_checker() -> Any:
    """BFCL's ``ast_checker`` module, imported without the model clients that its package pulls in.

    The checker asks ``MODEL_CONFIG_MAPPING`` one thing only: whether a model writes "_" for "." in function names.
    """
    config = types.ModuleType("bfcl_eval.constants.model_config")
    config.MODEL_CONFIG_MAPPING = defaultdict(lambda: types.SimpleNamespace(underscore_to_dot=False))  # type: ignore[attr-defined]
    sys.modules["bfcl_eval.constants.model_config"] = config
    from bfcl_eval.eval_checker.ast_eval import ast_checker

    return ast_checker


BFCL_TYPES = {"number": "float", "object": "dict", None: "any"}


def bfcl_description(tool: Tool) -> dict[str, Any]:
    """A tool in BFCL's form of function description (the types its Python categories know)."""

    def typed(schema: dict[str, Any]) -> dict[str, Any]:
        kind = schema.get("type")
        described: dict[str, Any] = {"type": BFCL_TYPES.get(kind, kind)}
        if kind == "array":
            described["items"] = typed(schema.get("items") or {})
        return described

    properties = tool.input_schema.get("properties") or {}
    parameters = {
        "type": "dict",
        "properties": {name: typed(value) for name, value in properties.items()},
        "required": tool.input_schema.get("required") or [],
    }
    return {"name": tool.tool_id, "parameters": parameters}


# Each perturbation yields changed copies of one call's arguments.


def gold(arguments: Arguments, row: Call, at: int, rng: random.Random, schema: dict[str, Any]) -> Iterator[Arguments]:
    yield arguments


def other_accepted(
    arguments: Arguments, row: Call, at: int, rng: random.Random, schema: dict[str, Any]
) -> Iterator[Arguments]:
    for name, values in (row.gold[at].accept or {}).items():
        plain = [v for v in values if v != "" and not _is_objects(v)]
        for value in plain[1:3]:
            yield {**arguments, name: copy.deepcopy(value)}
        if name not in arguments and plain:
            yield {**arguments, name: copy.deepcopy(plain[0])}


def without_one(
    arguments: Arguments, row: Call, at: int, rng: random.Random, schema: dict[str, Any]
) -> Iterator[Arguments]:
    for name in arguments:
        yield {k: v for k, v in arguments.items() if k != name}


def invented_name(
    arguments: Arguments, row: Call, at: int, rng: random.Random, schema: dict[str, Any]
) -> Iterator[Arguments]:
    yield {**arguments, "invented": 1}
    for name in schema.get("properties") or {}:
        if name not in arguments:
            yield {**arguments, name: "something"}
            break


def renamed(
    arguments: Arguments, row: Call, at: int, rng: random.Random, schema: dict[str, Any]
) -> Iterator[Arguments]:
    for name in list(arguments)[:1]:
        yield {(f"{k}_" if k == name else k): v for k, v in arguments.items()}


def _changed_each(change: Callable[[Any], Iterator[Any]]) -> Perturbation:
    def perturb(
        arguments: Arguments, row: Call, at: int, rng: random.Random, schema: dict[str, Any]
    ) -> Iterator[Arguments]:
        for name, value in arguments.items():
            for other in change(value):
                yield {**arguments, name: other}

    return perturb


def _leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_leaves(v, change) for v in value]
    if isinstance(value, dict):
        return {k: _leaves(v, change) for k, v in value.items()}
    return change(value)


def _if_changed(change: Callable[[Any], Any]) -> Callable[[Any], Iterator[Any]]:
    def changed(value: Any) -> Iterator[Any]:
        other = change(copy.deepcopy(value))
        if json.dumps(other) != json.dumps(value):
            yield other

    return changed


def _is_objects(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict) for v in value))


def _punctuated(value: Any) -> Any:
    return value.replace(" ", "-").upper() + "." if isinstance(value, str) else value


def _reworded(value: Any) -> Any:
    return value + " x" if isinstance(value, str) else value


def _quoted(value: Any) -> Any:
    return f"'{value}'" if isinstance(value, str) else value


def _tabbed(value: Any) -> Any:
    return value.replace(" ", "\t") if isinstance(value, str) else value


def _other_number(value: Any) -> Any:
    return value + 1 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _float_for_int(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _int_for_float(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value == int(value) else value


def _flipped(value: Any) -> Any:
    return (not value) if isinstance(value, bool) else value


def _as_text(value: Any) -> Any:
    return json.dumps(value) if not isinstance(value, str) else value


def _as_number(value: Any) -> Any:
    return 1 if value is True else 0 if value is False else value


def _list_changes(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield [value]
        yield value[:-1]
        yield [*value, *value[:1]]
        if len(value) > 1 and value[::-1] != value:
            yield value[::-1]


def _dict_changes(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield {**value, "more": "x"}
        for name in value:
            yield {k: v for k, v in value.items() if k != name}
        yield dict(reversed(list(value.items())))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for changed in _dict_changes(value[0]):
            yield [changed, *value[1:]]


def _wrong_type(value: Any) -> Iterator[Any]:
    for other in ("text", 7, 7.5, True, ["a"], {"a": 1}, None):
        if type(other) is not type(value):
            yield other


def _on_leaves(change: Callable[[Any], Any]) -> Perturbation:
    return _changed_each(_if_changed(lambda value: _leaves(value, change)))


PERTURBATIONS: dict[str, Perturbation] = {
    "gold": gold,
    "another accepted value": other_accepted,
    "one argument left out": without_one,
    "an invented argument": invented_name,
    "a renamed argument": renamed,
    "case, spaces, punctuation": _on_leaves(_punctuated),
    "another text": _on_leaves(_reworded),
    "quotes added": _on_leaves(_quoted),
    "tabs for spaces": _on_leaves(_tabbed),
    "another number": _on_leaves(_other_number),
    "float for integer": _on_leaves(_float_for_int),
    "integer for float": _on_leaves(_int_for_float),
    "boolean flipped": _on_leaves(_flipped),
    "0/1 for boolean": _on_leaves(_as_number),
    "value as text": _changed_each(_if_changed(_as_text)),
    "list changed": _changed_each(_list_changes),
    "object changed": _changed_each(_dict_changes),
    "wrong type": _changed_each(_wrong_type),
}

Answers = list[tuple[str, Arguments]]


def answers(row: Call, tools: dict[str, Tool], rng: random.Random) -> Iterator[tuple[str, Answers]]:
    """Pairs of (kind of change, answer) for one row."""
    right: Answers = [(g.tool_id, copy.deepcopy(g.arguments or {})) for g in row.gold]
    at = rng.randrange(len(right))
    tool_id, arguments = right[at]
    for kind, perturb in PERTURBATIONS.items():
        made = list(perturb(arguments, row, at, rng, tools[tool_id].input_schema))
        for changed in rng.sample(made, min(3, len(made))):
            yield kind, [*right[:at], (tool_id, changed), *right[at + 1 :]]
    others = [name for name in row.candidates or [] if name != tool_id]
    yield "another tool", [*right[:at], (rng.choice([*others, "no/such_tool"]), arguments), *right[at + 1 :]]
    yield "no call", []
    yield "one call too many", [*right, right[at]]
    if len(right) > 1:
        yield "calls in another order", right[::-1]
        yield "one call left out", right[1:]
        yield "one call twice", [right[0], *right[:-1]]


def compare(rows: list[Call], tools: dict[str, Tool], seed: int, checker: Any) -> dict[str, Any]:
    """Both verdicts on every answer: counts by kind, and every disagreement."""
    from bfcl_eval.constants.enums import Language

    counts: dict[str, Counter[str]] = defaultdict(Counter)
    differ = []
    for row in rows:
        rng = random.Random(f"{seed}:{row.id}")
        schemas = {g.tool_id: tools[g.tool_id].input_schema for g in row.gold}
        descriptions = [bfcl_description(tools[g]) for g in dict.fromkeys(g.tool_id for g in row.gold)]
        allowed = [{g.tool_id: g.accept} for g in row.gold]
        category = "parallel" if len(row.gold) > 1 else "simple"
        for kind, answer in answers(row, tools, rng):
            theirs_in = [{tool_id: copy.deepcopy(arguments)} for tool_id, arguments in answer]
            try:
                theirs = bool(
                    checker.ast_checker(descriptions, theirs_in, allowed, Language.PYTHON, category, "any")["valid"]
                )
            except Exception as error:
                counts[kind][f"bfcl raised {type(error).__name__}"] += 1
                continue
            ours = match_calls([MadeCall(t, a) for t, a in answer], row.gold, schemas).ast
            counts[kind]["both right" if ours and theirs else "both wrong" if ours == theirs else "differ"] += 1
            if ours != theirs:
                differ.append({"id": row.id, "kind": kind, "ours": ours, "bfcl": theirs, "answer": answer})
    total: Counter[str] = sum(counts.values(), Counter())
    judged = total["both right"] + total["both wrong"] + total["differ"]
    return {
        "rows": len(rows),
        "answers": judged,
        "agreement": (judged - total["differ"]) / judged if judged else None,
        "total": dict(total),
        "by_kind": {kind: dict(count) for kind, count in counts.items()},
        "disagreements": differ,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--calls", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=None, help="at most this many rows")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    tools = {tool.tool_id: tool for tool in read_records(options.tools, Tool)}
    rows = [row for row in read_records(options.calls, Call) if row.gold and all(g.accept for g in row.gold)]
    result = compare(rows[: options.limit], tools, options.seed, bfcl_checker())
    if options.json:
        options.json.write_text(json.dumps(result, indent=2, ensure_ascii=False), "utf-8")
    for kind, count in result["by_kind"].items():
        print(f"{kind:28} {count}")
    print(f"{result['rows']} rows, {result['answers']} answers, agreement {result['agreement']:.4%} {result['total']}")


if __name__ == "__main__":
    main()
