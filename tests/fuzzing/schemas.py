"""Schemas of tools, wrong in every way, through all that reads them."""

# ruff: noqa: E501  (tables of odd values)

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import jsonschema_rs
from hypothesis import strategies as st
from odd_schemas import ODD

from fuzzing.values import json_objects, json_values, nested, numbers, scalars, texts
from toolscout import prompt
from toolscout.errors import ToolscoutError
from toolscout.index.document import tool_text, tool_words
from toolscout.index.guard.scan import scan_tool
from toolscout.records import Tool, fingerprint
from toolscout.schema import simplify, simplify_arguments
from toolscout.server.calling import constrain
from toolscout.server.calling.blanks import trimmed
from toolscout.server.calling.caller import without_model
from toolscout.server.calling.grounding import Grounds, idle, invented, repeated
from toolscout.server.calling.skeleton import extract, skeleton
from toolscout.server.calling.suggestion import Candidate
from toolscout.signature import compact_signature, parameters, summary_line
from toolscout.validation import bounded_schema, explain, schema_trouble, unwrap_envelope, validate

NAMES = ["a", "b", "id", "url", "file_name", "fileName", "", "a/b", "a b", "ü", "$ref", "properties", "type", "\ud800"]
TYPES = ["string", "integer", "number", "boolean", "array", "object", "null", "str", "any", "dict", "STRING", " int "]
REFS = ["#", "#/", "#/$defs/a", "#/$defs/b", "#/$defs/a/properties/a", "#/definitions/a", "#a", "#/properties/a",
        "#/$defs/a%2fb", "#/items/0", "#/anyOf/1", "other.json#/a", "file:///etc/passwd", "http://127.0.0.1:9/x", "urn:x",
        "#/" + "a/" * 500, "%%", "#\ud800"]  # fmt: skip
PATTERNS = ["^a+$", "(a+)+$", "(a|a)*b", "(?<=a)b", "(?=a)", "\\p{L}", "[", "(?P<n>a)\\1", "a{1,99999}", "(a{1,1000}){1,1000}",
            "\\u{1F600}", "(?i)x", "^(([a-z])+.)+[A-Z]([a-z])+$", "\x00", ".*.*.*.*.*=.*", "\\", "^\ud800$"]  # fmt: skip
DRAFTS = [
    "http://json-schema.org/draft-03/schema#", "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema", "https://example.com/my-own-meta-schema", "", 7,
]  # fmt: skip
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "divisibleBy")
_ONE = ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames", "unevaluatedItems",
        "unevaluatedProperties", "additionalItems", "contentSchema", "extends")  # fmt: skip
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


def _object(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.one_of(st.sampled_from(NAMES), texts)
    kinds = st.sampled_from(TYPES)
    fields: dict[str, st.SearchStrategy[Any]] = {
        "type": st.one_of(kinds, st.lists(kinds, max_size=4), json_values),
        "enum": st.one_of(st.lists(json_values, max_size=6), json_values),
        "const": json_values,
        "default": json_values,
        "description": st.one_of(texts, json_values),
        "title": scalars,
        "format": st.one_of(st.sampled_from(["date", "date-time", "time", "uuid", "uri", "email", "regex"]), scalars),
        "pattern": st.one_of(st.sampled_from(PATTERNS), scalars),
        "required": st.one_of(st.lists(names, max_size=4), st.booleans(), json_values),
        "dependentRequired": st.one_of(st.dictionaries(names, st.lists(names, max_size=2), max_size=2), json_values),
        "nullable": scalars,
        "$schema": st.sampled_from(DRAFTS),
        "$ref": st.one_of(st.sampled_from(REFS), scalars),
        "$dynamicRef": st.sampled_from(REFS),
        "$recursiveRef": st.sampled_from(REFS),
        "$id": st.one_of(st.sampled_from(REFS), scalars),
        "$anchor": st.sampled_from(["a", "", 1, "\ud800"]),
        "$dynamicAnchor": st.sampled_from(["a", "b", None]),
        "examples": json_values,
        "discriminator": json_values,
        **{k: st.one_of(st.integers(-1, 5), numbers, scalars) for k in (*_COUNTS, *_BOUNDS)},
        **dict.fromkeys(_ONE, children),
        **{k: st.one_of(st.lists(children, max_size=3), children) for k in _SEVERAL},
        **{k: st.one_of(st.dictionaries(names, children, max_size=3), children) for k in _NAMED},
    }
    few = st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=5, unique=True)
    return few.flatmap(lambda keys: st.fixed_dictionaries({k: fields[k] for k in keys}))


_soup = st.recursive(st.one_of(st.booleans(), st.just({}), scalars, _object(st.just({}))), _object, max_leaves=6)
_of_object = st.builds(
    lambda properties, rest: {**rest, "type": "object", "properties": properties},
    st.dictionaries(st.one_of(st.sampled_from(NAMES), texts), _soup, max_size=4),
    st.one_of(st.just({}), _object(_soup)),
)


@st.composite
def _altered(draw: st.DrawFn) -> Any:
    """One of the odd schemas that are written out, with a part replaced by something else."""
    schema = copy.deepcopy(draw(st.sampled_from(sorted(ODD)).map(ODD.__getitem__)))
    here = schema
    for _ in range(draw(st.integers(0, 5))):
        if isinstance(here, dict) and here:
            key: Any = draw(st.sampled_from(sorted(here, key=str)))
        elif isinstance(here, list) and here:
            key = draw(st.integers(0, len(here) - 1))
        else:
            break
        if draw(st.booleans()):
            here[key] = draw(st.one_of(json_values, _soup))
            break
        here = here[key]
    return schema


def bomb(kind: str, size: int) -> Any:
    """Schemas whose size is small and whose meaning is not, and those that are just large."""
    ring = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{(i + k) % size}"} for k in (1, 2, 3)]} for i in range(size)}
    tree = {f"d{i}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/d{i + 1}"} for k in "abcdef"}}
            for i in range(size)}  # fmt: skip
    doubled = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}}]}
               for i in range(size)}  # fmt: skip
    many = [f"value-{i}" for i in range(size * 40)]
    return {
        "allOf ring": {"$ref": "#/$defs/d0", "$defs": ring},
        "ref tree": {"properties": {"t": {"$ref": "#/$defs/d0"}}, "$defs": tree},
        "doubled": {"properties": {"t": {"$ref": "#/$defs/d0"}}, "required": ["t"], "$defs": doubled},
        "deep": {"properties": {"a": nested(size * 4, "both")}},
        "deep items": {"properties": {"a": _levels(size, "items")}},
        "deep not": {"properties": {"a": _levels(size, "not")}},
        "enum": {"properties": {"a": {"enum": many}, "b": {"enum": list(range(size * 40))}}, "required": ["a"]},
        "two enums": {"properties": {"a": {"allOf": [{"enum": many}, {"enum": many[::-1]}]}}},
        "wide": {"properties": {f"property_{i}": {"type": "string"} for i in range(size * 20)}, "required": many,
                 "additionalProperties": False},
        "anyOf": {"anyOf": [{"properties": {n: {"type": "integer"}}, "required": [n]} for n in many[: size * 4]]},
        "nested anyOf": {"properties": {"a": _levels(min(size, 8), "anyOf")}},
        "patterns": {"patternProperties": {f"^{p}": {"type": "string", "pattern": p} for p in PATTERNS * 2}},
        "long name": {"properties": {"n" * size * 400: {"type": "string"}}, "required": ["n" * size * 400 + "m"],
                      "additionalProperties": False},
    }[kind]  # fmt: skip


def _levels(depth: int, keyword: str) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {keyword: [schema, schema] if keyword == "anyOf" else schema}
    return schema


BOMBS = ("allOf ring", "ref tree", "doubled", "deep", "deep items", "deep not", "enum", "two enums", "wide", "anyOf",
         "nested anyOf", "patterns", "long name")  # fmt: skip
_bombs = st.builds(bomb, st.sampled_from(BOMBS), st.integers(1, 60))

schemas = st.one_of(_of_object, _of_object, _soup, _altered(), json_values, _bombs)
_arguments = st.one_of(
    json_objects,
    st.dictionaries(st.one_of(st.sampled_from(NAMES), texts), json_values, max_size=4),
    st.builds(lambda n: {f"propertY-{i}": i for i in range(n * 5)}, st.integers(1, 60)),
    st.builds(lambda n: {"n" * n * 400: "a" * 3000, "a": "a" * 50000}, st.integers(1, 60)),
    st.builds(lambda depth, kind: {"a": nested(depth, kind)}, st.integers(1, 300), st.sampled_from(["list", "both"])),
)
REQUEST = "Send 'hello world' to a@b.co about https://x.test/a?b=c on 2026-03-01, 3 times, file /tmp/x.txt"

SHARE = 40
cases = st.tuples(schemas, _arguments)


def check(case: tuple[Any, Any]) -> None:
    """A schema and arguments through signature, validation, constraints, skeleton, repair, prompt, search text."""
    schema, arguments = case
    node = simplify(schema)
    top = simplify_arguments(schema)
    assert top["type"] == "object"
    line = compact_signature(schema)
    assert "\n" not in line, line
    for parameter in parameters(schema):
        assert isinstance(parameter.description, str)
    known = schema if isinstance(schema, dict) else {}
    tool = Tool.model_construct(
        tool_id="s/t", server_id="s", name="t", description="Does it.", input_schema=known, fingerprint=""
    )
    _validated(known, arguments, tool)
    _constrained(schema, node)
    skeleton(schema, {})
    known_values = extract(REQUEST, schema)
    assert set(known_values) <= set(top["required"])
    without_model(REQUEST, [Candidate(tool)]).to_answer({"s/t": tool})
    trimmed(arguments, REQUEST)
    grounds = Grounds(REQUEST)
    for name, value in arguments.items():
        shape = top["properties"].get(name, {})
        invented(name, shape, value, grounds), idle(shape, value, grounds)
    repeated(arguments, top["required"], grounds)
    summary_line(tool)
    tool_words(tool, None), tool_text(tool, None)
    for style in ("full", "compact"):
        prompt.render_tool(tool, "t", style=style).encode()
    list(scan_tool(tool))
    fingerprint("t", "", known)


def _validated(schema: dict[str, Any], arguments: dict[str, Any], tool: Tool) -> None:
    problems = validate(arguments, schema)
    assert len(problems) <= 8
    schema_trouble(schema)
    assert explain(problems, tool)
    assert len(bounded_schema(schema, limit=500)) < 2000
    with contextlib.suppress(ToolscoutError):
        assert isinstance(unwrap_envelope("s/t", arguments, schema), dict)


def _constrained(schema: Any, node: dict[str, Any]) -> None:
    for copying in ("none", "ids"):
        for references in (False, True):
            grammar = constrain.arguments_grammar(schema, references=references, copying=copying, text=REQUEST)
            assert grammar.startswith("root ::= ") and len(grammar) < 3_000_000, len(grammar)
    for name in list(simplify_arguments(schema)["properties"])[:2]:
        constrain.value_grammar(schema, name, copying="ids", text=REQUEST)
    answer = constrain.call_schema("t", schema, references=True)
    jsonschema_rs.validator_for(answer)
    json.dumps(answer).encode()
    constrain.choice_grammar(["t", "none"])
