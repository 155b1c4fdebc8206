"""From tool schemas to what decoding is constrained by: a GBNF grammar (llama.cpp) or a plain JSON Schema.

The grammar of an object's top level lets members come in any order and demands none of them. A grammar that
forces the schema's order loses optional arguments, since a model that has passed one over cannot come back to it;
one that demands every required argument makes the model invent what the request does not say. What is absent
after decoding is asked for once more or reported as missing (:mod:`toolscout.server.calling.writing`). Nested objects
keep the schema's order and demand what is required, for there nobody would ask again.

What names one particular thing (an id, a key, an address, a path) has to stand in the request anyway
(:mod:`toolscout.server.calling.grounding`). With a text to copy from, the grammar lets such strings be spans of that
text only (:mod:`toolscout.server.calling.spans`).

A tool's grammar is made once and kept; what depends on the request is a few rules at its end.

``pattern``, ``not`` and the like are left to the final validation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from toolscout.records import JsonObject
from toolscout.schema import simplify_arguments
from toolscout.server.calling.grounding import names_one_thing
from toolscout.server.calling.spans import LINK, SPAN, quoted, span_rules

Copying = Literal["none", "ids", "all"]
"""Which strings have to be spans of the request: none, those that name one particular thing, or every one."""

MAX_STRING = 1000
"""Most characters of a string where the schema sets no smaller limit, so that no value runs on forever."""

MAX_ITEMS = 24
_MAX_RULES = 3000
_REFERENCE = "reference"

_COMMON = {
    "char": r"""[^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})""",
    "string": rf'"\"" char{{0,{MAX_STRING}}} "\""',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,18})',
    "natural": '"0" | [1-9] [0-9]{0,18}',
    "number": '"-"? ("0" | [1-9] [0-9]{0,18}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?',
    "positive": '("0" | [1-9] [0-9]{0,18}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?',
    "value": "string | number | boolean | null | anyobject | anyarray",
    "anyobject": r'"{" (string ": " value (", " string ": " value){0,63})? "}"',
    "anyarray": r'"[" (value (", " value){0,63})? "]"',
    "day": '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])',
    "clock": '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,9})?',
    "zone": '"Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]',
    "date": r'"\"" day "\""',
    "time": r'"\"" clock zone? "\""',
    "datetime": r'"\"" day "T" clock zone "\""',
    "uuid": r'"\"" [0-9a-fA-F]{8} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{12} "\""',
    _REFERENCE: r'"\"$" [1-9] [0-9]? "." [A-Za-z0-9_.[\]-]{1,80} "\""',
}
_LINK_NAME = re.compile(r"ur[il]s?$|links?$|website$", re.IGNORECASE)
_FORMATS = {"date": "date", "time": "time", "date-time": "datetime", "uuid": "uuid"}
_USES = {
    "string": ("char",),
    "value": ("string", "number", "boolean", "null", "anyobject", "anyarray"),
    "anyobject": ("string", "value"),
    "anyarray": ("value",),
    "date": ("day",),
    "time": ("clock", "zone"),
    "datetime": ("day", "clock", "zone"),
}


def choice_grammar(labels: Sequence[str]) -> str:
    """GBNF of what follows ``{"name": "``: one of the labels, its closing quote, and what comes next.

    The last character lets a model end with its own token for quote and comma: forcing the lone quote would
    make every choice look improbable.
    """
    return "root ::= (" + " | ".join(quoted(label) for label in labels) + r') "\"" [,}]'


def arguments_grammar(schema: object, *, references: bool = False, copying: Copying = "none", text: str = "") -> str:
    """GBNF of what follows ``"arguments":``: the object, perhaps ``"missing"``, and the end of the answer.

    At the object's top level members come in any order and none is demanded.

    The blank belongs to the answer and not to the prefix: models have one token for it and the brace.

    :param references: also allow ``"$1.path"`` wherever the schema takes a string or a value of one type.
    :param copying: which strings have to be spans of ``text``.
    """
    # not sorted: the order of members counts
    return _with_text(_arguments_grammar(json.dumps(schema), references, copying), copying, text)


def value_grammar(
    schema: object, name: str, *, references: bool = False, copying: Copying = "none", text: str = ""
) -> str:
    """GBNF of what follows ``"name":``, a blank, the value of that argument, and the ``}`` that ends the object."""
    return _with_text(_value_grammar(json.dumps(schema), name, references, copying), copying, text)


def _with_text(grammar: str, copying: Copying, text: str) -> str:
    """The grammar with the rules for spans of the text; where there can be none they take any string."""
    if copying == "none":
        return grammar
    return "\n".join([grammar, *(span_rules(text) or [f"{SPAN} ::= string", f"{LINK} ::= string"])])


@lru_cache(maxsize=2048)
def _value_grammar(schema: str, name: str, references: bool, copying: Copying) -> str:
    grammar = _Grammar(references, copying)
    node = simplify_arguments(json.loads(schema))["properties"].get(name, {})
    rule = grammar.rule(node, name)
    return grammar.text(f'" " {rule} "}}"')


@lru_cache(maxsize=2048)
def _arguments_grammar(schema: str, references: bool, copying: Copying) -> str:
    grammar = _Grammar(references, copying)
    node = simplify_arguments(json.loads(schema))
    end = '"}"'
    if node["required"]:
        name = grammar.rule_of(" | ".join(quoted(json.dumps(n, ensure_ascii=False)) for n in node["required"]))
        end = f"""("}}" | ", \\"missing\\": [" {name} (", " {name}){{0,{min(len(node["required"]), 32) - 1}}} "]}}")"""
    return grammar.text(f'" " {grammar.rule_of(grammar.loose_object(node))} {end}')


def choice_schema(labels: Sequence[str]) -> JsonObject:
    """JSON Schema of the first answer: which tool, or none."""
    return _closed({"name": {"type": "string", "enum": list(labels)}})


def call_schema(label: str, schema: object, *, references: bool = False) -> JsonObject:
    """JSON Schema of the whole answer for one tool, for endpoints that take ``response_format: json_schema``.

    Self-contained (no ``$ref``), every object closed, and free of keywords that engines refuse. At the top level
    nothing is required, for the reason given above.
    """
    node = simplify_arguments(schema)
    arguments = _portable({**node, "required": []}, references)
    missing = {"type": "array", "items": {"type": "string", "enum": node["required"]}} if node["required"] else None
    properties = {"name": {"type": "string", "enum": [label]}, "arguments": arguments}
    if missing:
        properties["missing"] = missing
    return {**_closed(properties), "required": ["name", "arguments"]}


def _closed(properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _portable(node: JsonObject, references: bool) -> JsonObject:
    out: JsonObject = {k: v for k, v in node.items() if k in ("type", "enum", "minimum", "maximum", "required")}
    if "enum" in node:
        kinds = {type(v) for v in node["enum"]}
        if kinds == {str}:
            out["type"] = "string"
    if node.get("type") == "string" and node.get("maxLength", MAX_STRING) <= MAX_STRING:
        out.update({k: node[k] for k in ("minLength", "maxLength") if k in node})
    if node.get("format") in _FORMATS:
        out["format"] = node["format"]
    if node.get("type") == "array":
        out["items"] = _portable(node["items"], references)
        out.update({k: node[k] for k in ("minItems", "maxItems") if k in node and node[k] <= MAX_ITEMS})
    if node.get("type") == "object":
        out["properties"] = {k: _portable(v, references) for k, v in node["properties"].items()}
        rest = node["additionalProperties"]
        out["additionalProperties"] = False if rest is False else (_portable(rest, references) or True)
    if "anyOf" in node:
        out["anyOf"] = [_portable(v, references) for v in node["anyOf"]]
    if references and out.get("type") in ("integer", "number", "boolean"):
        return {"anyOf": [out, {"type": "string"}]}
    return out


class _Grammar:
    """Collects rules; equal nodes share one."""

    def __init__(self, references: bool, copying: Copying = "none") -> None:
        self.references = references
        self.copying = copying
        self.rules: dict[str, str] = {}
        self.known: dict[str, str] = {}
        self.common: set[str] = set() if copying == "none" else {"string"}

    def text(self, root: str) -> str:
        queue = list(self.common)
        while queue:
            for used in _USES.get(queue.pop(), ()):
                if used not in self.common:
                    self.common.add(used)
                    queue.append(used)
        lines = [f"root ::= {root}", *(f"{n} ::= {b}" for n, b in self.rules.items())]
        return "\n".join([*lines, *(f"{n} ::= {_COMMON[n]}" for n in sorted(self.common))])

    def use(self, name: str) -> str:
        self.common.add(name)
        return name

    def rule_of(self, body: str) -> str:
        if re.fullmatch(r"[a-z0-9-]+", body):
            return body
        if body not in self.known:
            name = f"r{len(self.rules)}"
            self.rules[name] = body
            self.known[body] = name
        return self.known[body]

    def rule(self, node: JsonObject, name: str = "") -> str:
        """The name of a rule that matches one JSON value of this shape. ``name`` is the parameter's, or its list's."""
        if len(self.rules) > _MAX_RULES:
            return self.use("value")
        body = self.body(node, name)
        if self.references and "enum" not in node and body not in ("value", "string"):
            body = f"{self.rule_of(body)} | {self.use(_REFERENCE)}"
        return self.rule_of(body)

    def body(self, node: JsonObject, name: str) -> str:
        if "enum" in node:
            return " | ".join(quoted(json.dumps(v, ensure_ascii=False)) for v in node["enum"])
        if "anyOf" in node:
            return " | ".join(dict.fromkeys(self.rule(v, name) for v in node["anyOf"]))
        kind = node.get("type")
        if kind == "string":
            return self.string(node, name)
        if kind in ("integer", "number"):
            return self.numeric(node, kind)
        if kind in ("boolean", "null"):
            return self.use(kind)
        if kind == "array":
            return self.array(node, name)
        if kind == "object":
            return self.strict_object(node)
        return self.use("value")

    def string(self, node: JsonObject, name: str) -> str:
        if node.get("format") in _FORMATS:
            return self.use(_FORMATS[node["format"]])
        if self.copying == "all" or (self.copying == "ids" and names_one_thing(name, node)):
            return LINK if node.get("format") in ("uri", "url", "iri") or _LINK_NAME.search(name) else SPAN
        low, high = min(node.get("minLength", 0), 64), node.get("maxLength", MAX_STRING)
        if high >= MAX_STRING and low == 0:
            return self.use("string")
        return rf'"\"" {self.use("char")}{{{low},{min(high, MAX_STRING)}}} "\""'

    def numeric(self, node: JsonObject, kind: str) -> str:
        low, high = node.get("minimum"), node.get("maximum")
        if kind == "integer" and low is not None and high is not None and high - low <= 100:
            return " | ".join(f'"{n}"' for n in range(int(low), int(high) + 1))
        signed, plain = ("integer", "natural") if kind == "integer" else ("number", "positive")
        return self.use(plain if low is not None and low >= 0 else signed)

    def array(self, node: JsonObject, name: str) -> str:
        low = min(node.get("minItems", 0), MAX_ITEMS)
        high = max(low, min(node.get("maxItems", MAX_ITEMS), MAX_ITEMS))
        if high == 0:
            return '"[]"'
        item = self.rule(node["items"], name)
        more = f'(", " {item}){{{max(low - 1, 0)},{high - 1}}}' if high > 1 else ""
        filled = f'"[" {item} {more} "]"'
        return filled if low else f'"[]" | {filled}'

    def members(self, node: JsonObject) -> dict[str, str]:
        return {
            name: self.rule_of(f"{quoted(json.dumps(name, ensure_ascii=False) + ': ')} {self.rule(value, name)}")
            for name, value in node["properties"].items()
        }

    def loose_object(self, node: JsonObject) -> str:
        """Members in any order, none demanded, at most as many as there are."""
        members = list(self.members(node).values())
        rest = node["additionalProperties"]
        if rest is not False:
            members.append(self.rule_of(f'{self.use("string")} ": " {self.rule(rest)}'))
        if not members:
            return '"{}"'
        member = self.rule_of(" | ".join(members))
        most = min(len(members) if rest is False else MAX_ITEMS, 64) - 1
        more = f'(", " {member}){{0,{most}}}' if most else ""
        return f'"{{" ({member} {more})? "}}"'

    def strict_object(self, node: JsonObject) -> str:
        """Members in the schema's order, the required ones demanded."""
        rest = node["additionalProperties"]
        if not node["properties"]:
            if rest is False:
                return '"{}"'
            entry = f'{self.use("string")} ": " {self.rule(rest)}'
            return f'"{{" ({entry} (", " {entry}){{0,{MAX_ITEMS - 1}}})? "}}"'
        members = self.members(node)
        required = set(node["required"])
        # Two rules a member, from the last to the first: what may follow when nothing stands before it ("first")
        # and when something does ("later", which starts with a comma).
        first, later = '""', '""'
        for name in reversed(members):
            tail = self.rule_of(later) if later != '""' else '""'
            if name in required:
                first, later = f"{members[name]} {tail}", f'", " {members[name]} {tail}'
            else:
                skip = self.rule_of(first) if first != '""' else '""'
                first, later = f"{members[name]} {tail} | {skip}", f'", " {members[name]} {tail} | {tail}'
        return f'"{{" {self.rule_of(first)} "}}"'


def parse_answer(text: str) -> Any:
    """The first JSON object in a model's text, whatever stands around it (fences, tags, prose). None if none."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            value, _ = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


__all__ = [
    "MAX_ITEMS",
    "MAX_STRING",
    "Copying",
    "arguments_grammar",
    "call_schema",
    "choice_grammar",
    "choice_schema",
    "parse_answer",
    "value_grammar",
]
