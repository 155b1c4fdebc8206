"""Checking a call's arguments against a tool's input schema, with answers that a model can repair its call from.

Real schemas are often broken, of an older draft, or point to documents elsewhere. A schema that does not compile is
checked in its simplified form; what even that can't express is let through, and the upstream has the last word.
Nothing is ever fetched, and nothing is changed silently: a value of the wrong type that has one obvious meaning
(``"5"`` for an integer) is an error whose hint says what to send instead. String formats are not enforced in what
others send: what counts as a URI or an e-mail address differs from server to server. What Toolscout itself writes keeps
to them where the schema's draft asks for it (:func:`misformed`).
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolscout.errors import InvalidArguments
from toolscout.records import JsonObject, Tool, canonical_json, sha256_hex
from toolscout.schema import pointer, simplify_arguments
from toolscout.schema_work import MOST, Work

_CACHED = 4096
_MAX_PROBLEMS = 8
_VALUE_SHOWN = 80
_SCHEMA_SHOWN = 3500
_DEEPEST = 64
_LONG_NAME = 64
_MANY_NAMES = 300

_TOOL_KEYS = ("tool_id", "tool", "name", "tool_name", "toolName", "function", "function_name")
ARGUMENT_KEYS = ("arguments", "args", "parameters", "params", "input", "kwargs", "tool_input", "toolArguments")
_EXTRA_KEYS = {"id", "type", "call_id", "server", "server_id"}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: JSON path (``$.items[0].name``), what, and what to do."""

    path: str
    message: str
    hint: str = ""

    def line(self) -> str:
        """As one line of text."""
        return f"{self.path}: {self.message}{f' {self.hint}' if self.hint else ''}"


def validate(arguments: JsonObject, schema: JsonObject, *, key: str | None = None) -> list[Problem]:
    """What is wrong with the arguments; empty when nothing is. Never raises, whatever the schema.

    ``key`` identifies the schema for the cache of compiled validators (a tool's fingerprint); without it the schema
    is hashed. At most eight problems are reported.
    """
    checker = _checker(schema, key)
    if checker.validator is not None and checker.work is not None:
        checker = _affordable(checker, arguments)
    if checker.validator is not None:
        try:
            if checker.validator.is_valid(arguments):
                return _misspelt(arguments, schema)
            errors = list(checker.validator.iter_errors(arguments))
        except Exception as error:  # arguments that JSON can't hold, a pattern that gives up
            return _unreadable(arguments, error)
    else:
        return []
    problems: dict[tuple[str, str], Problem] = {}
    for failure in errors:
        for problem in _explain_error(failure, arguments, checker.schema):
            problems.setdefault((problem.path, problem.message), problem)
        if len(problems) >= _MAX_PROBLEMS:
            break
    return list(problems.values())[:_MAX_PROBLEMS]


def misformed(arguments: JsonObject, schema: JsonObject) -> list[str]:
    """Names of arguments that hold a string against its ``format``, where the schema's draft enforces formats.

    Drafts up to 7 do, if the schema says that it is one of them; later ones take a format for a remark. Never raises.
    """
    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(dialect, str) or not _ENFORCING.search(dialect):
        return []
    checker = _checker(schema, None)
    if checker.validator is not None and checker.work is not None:
        checker = _affordable(checker, arguments)
    if checker.validator is None or checker.trouble is not None:
        return []
    import jsonschema_rs

    try:
        strict = jsonschema_rs.validator_for(schema, retriever=refuse_document)
        broken = [e.instance_path for e in strict.iter_errors(arguments) if getattr(e.kind, "name", "") == "format"]
    except Exception:  # arguments that JSON can't hold: validate says so
        return []
    return [name for name in arguments if any(path and path[0] == name for path in broken)]


def asking_less(schema: JsonObject, names: Collection[str]) -> JsonObject:
    """The schema without these names among its required ones: they are absent for a reason of their own."""
    required = schema.get("required") if isinstance(schema, dict) else None  # a broken schema may be anything
    if not names or not isinstance(required, list):
        return schema
    return {**schema, "required": [name for name in required if name not in names]}


def schema_trouble(schema: JsonObject, *, key: str | None = None) -> str | None:
    """Why the schema can't be enforced as it stands, in a sentence; None when it can."""
    return _checker(schema, key).trouble


def unwrap_envelope(tool_id: str, arguments: object, schema: JsonObject | None = None) -> JsonObject:
    """The arguments proper out of what models really send.

    Understood are: nothing at all, an object as JSON text, ``{"tool": <this tool>, "arguments": {...}}`` under the
    usual names, and a lone ``{"arguments": {...}}``, each nested up to three deep. A property that the schema declares
    is never taken for an envelope. Raises InvalidArguments for anything that is no object.
    """
    declared = _properties(schema)
    value = arguments
    for _ in range(4):
        if value is None or value == "":
            return {}
        if isinstance(value, str):
            value = _from_text(value)
            if isinstance(value, str) and value.lstrip().startswith("{"):
                continue  # JSON within JSON
        if not isinstance(value, Mapping):
            raise InvalidArguments(
                f"'arguments' must be a JSON object, not {_kind(value)}.", hint='Send for example {"name": "value"}.'
            )
        inner = _inside(tool_id, value, declared)
        if inner is _NOTHING:
            return dict(value)
        value = inner
    if not isinstance(value, Mapping):
        raise InvalidArguments("'arguments' is wrapped too often: send the tool's arguments as one JSON object.")
    return dict(value)


def explain(problems: Sequence[Problem], tool: Tool) -> str:
    """The error text for a call that was not made: what is wrong where, and the tool's true signature and schema."""
    from toolscout.signature import compact_signature

    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = [f"The call was not made: its arguments do not fit {tool.tool_id} ({count}).", ""]
    lines += [f"- {problem.line()}" for problem in problems]
    lines += ["", f"Signature: {tool.name}({compact_signature(tool)})"]
    if (trouble := schema_trouble(tool.input_schema, key=tool.fingerprint or None)) is not None:
        lines.append(f"Note: {trouble}")
    lines.append(f"Input schema: {bounded_schema(tool.input_schema, [p.path for p in problems])}")
    lines.append("Correct the arguments and call again with the same tool_id.")
    return "\n".join(lines)


def bounded_schema(schema: JsonObject, paths: Iterable[str] = (), limit: int = _SCHEMA_SHOWN) -> str:
    """The schema as JSON of at most ``limit`` characters.

    When it is too long, descriptions go first, then properties that are neither required nor named in ``paths``.
    """
    text = _compact(schema) if _depth(schema) <= _DEEPEST else ""
    if text and len(text) <= limit:
        return text
    text = _compact(_without(schema, ("description", "examples", "title", "$schema", "$id", "$comment"), 0))
    if len(text) <= limit:
        return text
    required = schema.get("required")
    wanted = {n for n in required if isinstance(n, str)} if isinstance(required, list) else set()
    wanted |= {match[1] for path in paths if (match := re.match(r"\$\.([^.\[]+)", path))}
    bare = _without(schema, ("description", "examples", "title", "$schema", "$id", "$comment", "default"), 0)
    properties = bare.get("properties")
    if isinstance(properties, dict):
        kept = {n: p for n, p in properties.items() if n in wanted}
        left = [n for n in properties if n not in kept]
        bare = {**bare, "properties": kept}
        text = _compact(bare)
        if len(text) <= limit:
            return text + (f" (and {len(left)} optional properties: {', '.join(left)[:400]})" if left else "")
    return text[:limit] + " ... (shortened)"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that a misspelt one means: the same but for case and separators, or a few edits away; else None.

    Edits are counted in texts that are names by their length, of at most some hundreds: counting takes time.
    """
    wanted = _folded(name)
    bag = Counter(wanted)
    best: tuple[int, str] | None = None
    for number, candidate in enumerate(names):
        folded = _folded(candidate)
        most = max(len(wanted), len(folded))
        if wanted == folded:
            if best is None or best[0] > 0:
                best = 0, candidate
            continue
        if number >= _MANY_NAMES or most > _LONG_NAME:
            continue
        allowed = max(1, most // 3)
        if wanted and folded and (wanted in folded or folded in wanted) and min(len(wanted), len(folded)) >= 3:
            distance = min(allowed, abs(len(wanted) - len(folded)))
        else:
            allowed = min(allowed, best[0] - 1) if best else allowed
            other = Counter(folded)  # what the letters alone take is cheap to count, and never more than the edits
            least = max((bag - other).total(), (other - bag).total())
            distance = _distance(wanted, folded, allowed) if least <= allowed else allowed + 1
        if distance <= allowed and (best is None or distance < best[0]):
            best = distance, candidate
    return best[1] if best else None


# compiling


@dataclass(frozen=True)
class _Checker:
    validator: Any
    schema: JsonObject
    trouble: str | None = None
    work: Work | None = None
    """For a schema with references or branches: what they cost."""


_checkers: OrderedDict[str, _Checker] = OrderedDict()
_lock = threading.Lock()


def _checker(schema: JsonObject, key: str | None) -> _Checker:
    if key is None:
        try:
            key = sha256_hex(canonical_json(schema))
        except (TypeError, ValueError, RecursionError):
            return _Checker(None, {}, "its schema is not JSON, so the arguments were not checked.")
    with _lock:
        found = _checkers.get(key)
        if found is not None:
            _checkers.move_to_end(key)
            return found
    made = _compile(schema)
    with _lock:
        _checkers[key] = made
        while len(_checkers) > _CACHED:
            _checkers.popitem(last=False)
    return made


def _compile(schema: JsonObject) -> _Checker:
    import jsonschema_rs

    if not schema:
        return _Checker(None, schema)
    if _depth(schema) > _DEEPEST:
        return _Checker(None, schema, "its schema is nested too deeply, so the arguments were not checked.")
    work = Work(schema)
    if work.checks(0) >= MOST:
        return _simplified(schema, work.why)
    options = _OPTIONS
    attempts: list[Callable[[], Any]] = [
        lambda: jsonschema_rs.validator_for(schema, **options),
        # Draft-04 habits (`exclusiveMinimum: true`) are common in schemas that do not say which draft they follow.
        lambda: jsonschema_rs.Draft7Validator(_undated(schema), **options),
        lambda: jsonschema_rs.Draft4Validator(_undated(schema), **options),
    ]
    reason = ""
    for attempt in attempts:
        try:
            return _Checker(attempt(), schema, work=work)
        except BaseException as error:  # a panic in the library is no Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            reason = reason or str(error).partition("\n")[0][:160]
    return _simplified(schema, reason)


def _simplified(schema: JsonObject, reason: str) -> _Checker:
    """A checker by what can be understood of the schema, without references."""
    import jsonschema_rs

    trouble = f"its input schema is broken ({reason}); the arguments were checked only as far as it can be understood."
    for left_out in ((), ("pattern",)):  # a pattern may be one that only another regex dialect knows
        try:
            simple = _without(simplify_arguments(schema), left_out, 0)
            return _Checker(jsonschema_rs.validator_for(simple, **_OPTIONS), simple, trouble)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
    return _Checker(None, schema, f"its input schema is broken ({reason}); the arguments were not checked.")


def _affordable(checker: _Checker, arguments: JsonObject) -> _Checker:
    """The checker, or where it would take these arguments for ever, one of the simplified schema."""
    assert checker.work is not None
    parts, depth = _extent(arguments)
    if parts * checker.work.checks(min(depth, _DEEPEST)) < MOST:
        return checker
    return _simplified(checker.schema, "it branches too often for arguments so deep")


def refuse_document(uri: str) -> Any:
    """A ``retriever`` for jsonschema-rs that fetches nothing, neither from the network nor from disk."""
    raise ValueError(f"references to other documents are not followed: {uri}")


_ENFORCING = re.compile(r"draft-0[3467]/")
_OPTIONS: dict[str, Any] = {"validate_formats": False, "retriever": refuse_document}


def _undated(schema: JsonObject) -> JsonObject:
    return {k: v for k, v in schema.items() if k != "$schema"}


def _extent(value: object) -> tuple[int, int]:
    """How many values are in one, itself included, and how deep."""
    parts = deepest = 0
    stack = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        parts, deepest = parts + 1, max(deepest, depth)
        children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        stack += [(child, depth + 1) for child in children]
    return parts, deepest


def _depth(value: object) -> int:
    """Depth of nesting, without recursion; stops counting just above the limit."""
    deepest = 0
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        deepest = max(deepest, depth)
        if deepest > _DEEPEST:
            break
        children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        stack += [(child, depth + 1) for child in children]
    return deepest


# explaining


def _explain_error(error: Any, arguments: JsonObject, schema: JsonObject) -> list[Problem]:
    kind = getattr(error.kind, "name", "")
    steps = list(error.instance_path)
    path = _path(steps)
    if kind in ("anyOf", "oneOf") and (best := _best_branch(error)) is not None:
        found = [p for e in best for p in _explain_error(e, arguments, schema)]
        if found:
            return found
    instance = _at(arguments, steps)
    if kind == "required":
        name = error.kind.property
        siblings = list(instance) if isinstance(instance, dict) else []
        known = _properties(_schema_at(schema, error.schema_path))
        close = nearest(name, [s for s in siblings if s not in known])
        hint = f"You sent '{close}': rename it to '{name}'." if close else _required_hint(known.get(name))
        return [Problem(_path([*steps, name]), "required, but missing.", hint)]
    if kind in ("additionalProperties", "unevaluatedProperties"):
        names = [n for n in error.kind.unexpected if isinstance(n, str)][:_MAX_PROBLEMS]
        known = _properties(_schema_at(schema, error.schema_path))
        free = [n for n in known if not isinstance(instance, dict) or n not in instance]
        return [
            Problem(f"{path}.{name}", "there is no such argument.", _unknown_hint(name, free, known)) for name in names
        ]
    if kind == "enum":
        options = list(error.kind.options)
        return [Problem(path, f"{_show(instance)} is not one of {_options(options)}.", _enum_hint(instance, options))]
    if types := list(error.kind.types) if kind == "type" else _types_wanted(error):
        return [
            Problem(path, f"{_show(instance)} is {_kind(instance)}, not {_or(types)}.", _type_hint(instance, types))
        ]
    return [Problem(path, f"{_shorten(str(error.message))}.")]


def _best_branch(error: Any) -> list[Any] | None:
    """Of the alternatives that all failed, the one the value came closest to: right type, right tag, fewest errors."""
    branches = [b for b in getattr(error.kind, "context", None) or [] if b]
    base = len(error.instance_path)

    def rank(branch: list[Any]) -> tuple[bool, bool, int]:
        wrong_kind = any(
            len(e.instance_path) == base and getattr(e.kind, "name", "") in ("type", "enum", "const") for e in branch
        )
        wrong_tag = any(len(e.instance_path) == base + 1 and _is_tag(e.kind) for e in branch)
        return wrong_kind, wrong_tag, len(branch)

    if not branches:
        return None
    best = min(branches, key=rank)
    # All of the wrong type: no branch is closer than another, say it of all at once.
    return best if not rank(best)[0] or len(branches) == 1 else _merged_types(branches, base)


def _is_tag(kind: Any) -> bool:
    """Whether a single value was allowed, as of what tells the members of a union apart."""
    return getattr(kind, "name", "") == "const" or (getattr(kind, "name", "") == "enum" and len(kind.options) == 1)


def _types_wanted(error: Any) -> list[str]:
    """The types of alternatives none of which takes a value of this type; empty where one failed otherwise."""
    base, found = len(error.instance_path), []
    for branch in getattr(error.kind, "context", None) or []:
        types = [
            t for e in branch if getattr(e.kind, "name", "") == "type" and len(e.instance_path) == base
            for t in e.kind.types
        ]  # fmt: skip
        if not types:
            return []
        found += types
    return list(dict.fromkeys(found))


def _merged_types(branches: list[list[Any]], base: int) -> list[Any] | None:
    enums = [e for b in branches for e in b if getattr(e.kind, "name", "") == "enum"]
    return enums[:1] or None


def _misspelt(arguments: JsonObject, schema: JsonObject) -> list[Problem]:
    """Arguments that an open schema lets pass but that are surely a declared one, written differently.

    The server would drop ``fileName`` without a word where it declares ``file_name``. Only differences of case and
    separators count, and only while the declared name is absent.
    """
    known = _properties(schema)
    if not known or all(name in known for name in arguments) or "patternProperties" in schema:
        return []
    folded = {_folded(n): n for n in known if n not in arguments}
    return [
        Problem(f"$.{name}", "there is no such argument.", f"It is called '{folded[_folded(name)]}'.")
        for name in arguments
        if name not in known and _folded(name) in folded
    ]


def _unreadable(arguments: JsonObject, error: Exception) -> list[Problem]:
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as reason:
        return [Problem("$", f"the arguments are not valid JSON: {reason}.")]
    return []  # the fault is the schema's (a pattern that gives up, say): let the upstream judge


def _required_hint(schema: object) -> str:
    if not isinstance(schema, dict):
        return ""
    kind = schema.get("type")
    description = schema.get("description")
    parts = [str(kind)] if isinstance(kind, str) else []
    if isinstance(options := schema.get("enum"), list):
        parts = [f"one of {_options(options)}"]
    if isinstance(description, str) and description.strip():
        parts.append(_shorten(description.strip().partition("\n")[0], 120))
    return f"({'; '.join(parts)})" if parts else ""


def _unknown_hint(name: str, free: list[str], known: Mapping[str, object]) -> str:
    if close := nearest(name, free):
        return f"Did you mean '{close}'?"
    if not known:
        return "The tool takes no arguments here."
    return f"Known here: {', '.join(list(known)[:20])}."


def _enum_hint(value: object, options: list[object]) -> str:
    texts = [o for o in options if isinstance(o, str)]
    if isinstance(value, str) and (close := nearest(value, texts)):
        return f'Did you mean "{close}"?'
    same = [o for o in options if not isinstance(o, str) and str(o) == str(value)]
    return f"Send {json.dumps(same[0])} without quotes." if same else ""


def _type_hint(value: object, types: list[str]) -> str:
    """What the value most likely stands for, if there is only one reading."""
    if isinstance(value, str):
        text = value.strip()
        if ("integer" in types or "number" in types) and re.fullmatch(r"-?(0|[1-9]\d*)", text):
            return f"Send {text} without quotes."
        if "number" in types and re.fullmatch(r"-?(0|[1-9]\d*)\.\d+([eE][+-]?\d+)?", text):
            return f"Send {text} without quotes."
        if "boolean" in types and text.lower() in ("true", "false"):
            return f"Send {text.lower()} without quotes."
        if "null" in types and text.lower() in ("null", "none", ""):
            return "Send null, or leave it out."
        if "array" in types or "object" in types:
            try:
                inner = json.loads(text)
            except ValueError:
                inner = None
            if (isinstance(inner, list) and "array" in types) or (isinstance(inner, dict) and "object" in types):
                return "Send it as JSON, not as text that holds JSON."
        if "array" in types:
            return f"Send a list: [{_show(value)}]."
        return ""
    if value is None:
        return "Leave it out if there is no value."
    if isinstance(value, bool):
        return 'Send it as text: "true" or "false".' if "string" in types else ""
    if isinstance(value, (int, float)):
        if "string" in types:
            return f'Send it in quotes: "{value}".'
        if "integer" in types and isinstance(value, float):
            return "Send a whole number."
    if isinstance(value, list) and len(value) == 1 and "array" not in types:
        return f"Send the value itself, not a list: {_show(value[0])}."
    if "array" in types and not isinstance(value, list):
        return f"Send a list: [{_show(value)}]."
    return ""


# envelopes

_NOTHING = object()


def _inside(tool_id: str, value: Mapping[str, Any], declared: Mapping[str, object]) -> object:
    """What an envelope holds; _NOTHING when the value is no envelope."""
    names = [k for k in _TOOL_KEYS if k in value]
    holders = [k for k in ARGUMENT_KEYS if k in value]
    if len(holders) != 1 or any(k in declared for k in (*names, *holders)):
        return _NOTHING
    holder = holders[0]
    inner = value[holder]
    if not (inner is None or isinstance(inner, (Mapping, str))):
        return _NOTHING
    rest = set(value) - {holder, *names} - _EXTRA_KEYS
    if rest:
        return _NOTHING
    if names:
        own = {tool_id, tool_id.rpartition("/")[2], tool_id.partition("/")[2]}
        return inner if all(value[n] in own for n in names if isinstance(value[n], str)) else _NOTHING
    if len(value) != 1 or (isinstance(inner, str) and not inner.lstrip().startswith("{")):
        return _NOTHING
    return inner


def _from_text(text: str) -> object:
    stripped = text.strip()
    if fence := re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", stripped, re.DOTALL):
        stripped = fence[1]
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError) as error:
        where = f" ({error})" if isinstance(error, ValueError) else ""
        raise InvalidArguments(
            f"'arguments' is text that is not valid JSON{where}.", hint="Send the arguments as a JSON object."
        ) from None


# small helpers


def _properties(schema: object) -> dict[str, Any]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def _schema_at(schema: object, steps: Sequence[str | int]) -> object:
    """The object schema that holds the failing keyword; references on the way are followed."""
    here = schema
    for step in list(steps)[:-1]:
        if step == "$ref":
            here = _follow(schema, here)
            continue
        found = _child(here, step)
        here = found if found is not None else _child(_follow(schema, here), step)
    return _follow(schema, here)


def _follow(root: object, here: object) -> object:
    for _ in range(10):
        if not isinstance(here, dict) or not isinstance(ref := here.get("$ref"), str):
            break
        here = pointer(root, ref)
    return here


def _child(value: object, step: str | int) -> object:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        return value[step]
    return None


def _at(value: object, steps: Sequence[str | int]) -> object:
    for step in steps:
        value = _child(value, step)
    return value


def _path(steps: Sequence[str | int]) -> str:
    parts = ["$"]
    for step in steps:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif re.fullmatch(r"[A-Za-z_][\w-]*", step):
            parts.append(f".{step}")
        else:
            parts.append(f"[{json.dumps(step, ensure_ascii=False)}]")
    return "".join(parts)


def _folded(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _distance(a: str, b: str, limit: int) -> int:
    """Edit distance with transpositions (optimal string alignment); anything above ``limit`` is ``limit + 1``."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        current = [i]
        for j, y in enumerate(b, 1):
            cost = min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            current.append(cost)
        if min(current) > limit:
            return limit + 1
        before, previous = previous, current
    return previous[-1]


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, (list, tuple)) else "an object"


def _or(types: list[str]) -> str:
    return types[0] if len(types) == 1 else f"{', '.join(types[:-1])} or {types[-1]}"


def _options(options: list[object]) -> str:
    shown = ", ".join(json.dumps(o, ensure_ascii=False) for o in options[:20])
    return f"{shown}, ... ({len(options)} in all)" if len(options) > 20 else shown


def _show(value: object) -> str:
    try:
        return _shorten(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return "the value"


def _shorten(text: str, limit: int = _VALUE_SHOWN) -> str:
    text = text.rstrip(".")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _without(value: Any, keys: tuple[str, ...], depth: int) -> Any:
    """A copy without notes; names of properties are never taken for notes."""
    if depth > _DEEPEST:
        return {}
    if isinstance(value, list):
        return [_without(v, keys, depth + 1) for v in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, item in value.items():
        if name in ("properties", "$defs", "definitions", "patternProperties") and isinstance(item, dict):
            kept[name] = {n: _without(p, keys, depth + 1) for n, p in item.items()}
        elif name not in keys:
            kept[name] = _without(item, keys, depth + 1) if name not in ("enum", "const", "default") else item
    return kept
