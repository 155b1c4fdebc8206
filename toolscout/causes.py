"""Why a call failed: root causes by rules over what came back, no model and no guess about intentions.

The classes follow the root-cause analysis of MCPToolBench++ (arXiv 2508.07575, section 4), as far as they can be told
from outside: wrong parameters, the API behind the tool, an empty result, the session or the tool's own run. Three are
ours: a call that never reached a server, a reference to an earlier result that gave no value, and an error without any
reason. Rules are tried in order; the first that fits decides, and is named, so that every class can be traced to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from toolscout.responses import Response

_EVIDENCE = 160
_SOFT = 600
"""Longest answer, in characters, that is taken for an error although it is not declared one: a page that tells of
errors is longer."""
_SHORT = 200


class Cause(StrEnum):
    """Root causes."""

    PARAMETER = "parameter_error"
    """Arguments that the tool, or its schema, does not accept."""

    API = "api_error"
    """The service behind the tool refused or failed: keys, quotas, things that are not there, the network, 5xx."""

    EMPTY = "empty_result"
    """The call went well and gave nothing."""

    SESSION = "session_error"
    """Between us and the tool: no answer in time, a server that does not start, crashes, or breaks the protocol."""

    RUNTIME = "runtime_error"
    """The tool's own code failed: an exception, an internal error, an answer too large to take."""

    NOT_CALLABLE = "not_callable"
    """``invoke`` called nothing: the tool is unknown, not installed, lacks a key, or is not approved."""

    REFERENCE = "reference_error"
    """An argument refers to an earlier result that holds no such value."""

    OTHER = "other_error"
    """An error without any word that says why."""


@dataclass(frozen=True)
class Verdict:
    """A cause, the rule that found it, and the words that it went by."""

    cause: Cause
    rule: str
    evidence: str = ""


@dataclass(frozen=True)
class Rule:
    """One pattern over the text of an error."""

    name: str
    cause: Cause
    pattern: re.Pattern[str]


def _own(name: str, cause: Cause, *patterns: str) -> Rule:
    return Rule(name, cause, re.compile("|".join(patterns)))


def _said(name: str, cause: Cause, *patterns: str) -> Rule:
    return Rule(name, cause, re.compile("|".join(patterns), re.IGNORECASE))


OWN = (
    # What our own ``invoke`` says; its errors are typed there and sentences here.
    _own("refused_parameters", Cause.PARAMETER, r"^'.*' refused .* \(code -32602\)"),
    _own("arguments_refused", Cause.PARAMETER, r"^The call was not made: its arguments", r"^invoke was not called\."),
    _own("arguments_refused", Cause.PARAMETER, r"Correct the arguments and call again with the same tool_id\.$"),
    _own(
        "unknown_tool", Cause.NOT_CALLABLE, r"^There is no tool '", r"is configured, but its tools could not be listed"
    ),
    _own("not_installed", Cause.NOT_CALLABLE, r"^The server '.*' is known but not installed", r"^No server named '"),
    _own("needs_key", Cause.NOT_CALLABLE, r"^The server '.*' needs .+(?: before its tools| no value here)"),
    _own("unavailable", Cause.NOT_CALLABLE, r"^The server '.*' is (?:not available|switched off)"),
    _own("not_approved", Cause.NOT_CALLABLE, r"^The tool '.*' (?:is blocked here|.{0,60}quarantined: a person)"),
    _own(
        "not_compared",
        Cause.SESSION,
        r"^The tools of '.*' could not be compared with what was approved",
        r"^'.*' ended or changed its tools each time",
    ),
    _own("timeout", Cause.SESSION, r"^'.*' did not answer .* within [\d.e+]+ s"),
    _own("start_timeout", Cause.SESSION, r"^'.*' did not start within "),
    _own("busy", Cause.SESSION, r"^'.*' is busy: the call waited", r"^All \d+ upstream processes were busy"),
    _own("left_alone", Cause.SESSION, r"^'.*' failed \d+ times in a row and is left alone"),
    _own("unauthorized", Cause.API, r"^'.*' does not let us in \(HTTP status"),
    _own(
        "no_start",
        Cause.SESSION,
        r"^'.*' could not be started",
        r"^'.*' .* while starting\.",
        r"The command '.*' was not",
    ),
    _own(
        "crashed", Cause.SESSION, r"^'.*' .*before (?:it answered '|the call\.)", r"^'.*' (?:has forgotten|was stopped)"
    ),
    _own("too_large", Cause.RUNTIME, r"^'.*' answered .* with more than [\d,]+ bytes"),
    _own("no_tool_result", Cause.SESSION, r"^'.*' answered .* that is no tool result", r"^'.*' broke the protocol at"),
    _own("input_required", Cause.SESSION, r"asks the user for input before it goes on"),
)
"""Sentences of ``server/``; a test has each made by the server itself, so that they cannot part."""

_STATUS = r"\b(?:HTTP|status|code|error)\D{0,12}"
_KEY = r"(?:api|access|auth|bearer)[ _-]?(?:key|token)"

WORDS = (
    # What tools and the services behind them say: status words first, and the telling before the vague.
    _said(
        "quota", Cause.API, r"\b429\b", r"too many requests", r"rate.?limit", r"\bquota", rf"{_STATUS}402\b",
        r"insufficient (?:credit|balance|funds)", r"payment required",
    ),
    _said(
        "unauthorized", Cause.API, rf"{_STATUS}40[137]\b", r"\b40[137] (?:unauthori|forbidden)", r"unauthori[sz]ed",
        r"\bforbidden\b", r"permission denied", r"access denied", r"authenticat", r"not logged in",
        rf"{_KEY}.{{0,60}}(?:missing|invalid|required|not (?:set|found|configured|provided)|expired)",
        rf"\b(?:missing|invalid|no|expired|set|provide|requires?d?)\b.{{0,30}}{_KEY}",
    ),
    _said("http_timeout", Cause.API, rf"{_STATUS}(?:408|504)\b", r"gateway time-?out"),
    _said("bad_request", Cause.PARAMETER, rf"{_STATUS}4(?:00|22)\b", r"\b400 bad request", r"unprocessable"),
    _said(
        "validation", Cause.PARAMETER, r"validation error", r"-32602", r"zoderror", r"missing (?:\d+ )?required",
        r"invalid (?:argument|param|input|value|date|time ?zone|format|type|request|literal|url|uri|json)",
        r"required (?:param|argument|propert|field)", r"unexpected keyword argument",
        r"missing \d+ (?:required )?positional", r"\b(?:is|are) required\b", r"out of range", r"not a valid",
        r"\b(?:must|should) be (?:an?|one|of|in|at|between|greater|less|positive|non)\b",
        r"expected .{1,40} (?:but )?(?:received|got)\b", r"unknown (?:param|argument|field|option)",
        r"unsupported (?:value|format|type|param)",
    ),
    _said(
        "network", Cause.API, r"\bECONN\w+", r"\b(?:ENOTFOUND|EAI_AGAIN|ETIMEDOUT)\b", r"getaddrinfo", r"fetch failed",
        r"connection (?:refused|reset|error|aborted)", r"network (?:is unreachable|error)", r"name resolution",
        r"certificate|\bSSL", r"(?:cannot|could not|failed to) connect", r"max retries",
    ),
    _said(
        "not_found", Cause.API, r"\b(?:404|410)\b", r"not found", r"does ?n[o']t exist", r"no such (?!module)",
        r"could ?n[o']t find", r"unknown id",
    ),
    _said(
        "server_error", Cause.API, rf"{_STATUS}5\d\d\b", r"\b5\d\d (?:internal|bad gateway|service)", r"bad gateway",
        r"internal server error", r"service unavailable",
    ),
    _said("client_error", Cause.API, rf"{_STATUS}4\d\d\b"),
    _said(
        "session", Cause.SESSION, r"session (?:\w+ ){0,3}(?:expired|closed|invalid|terminated|lost|not)\b",
        r"(?:browser|target|page|context) (?:\w+ ){0,3}closed", r"not (?:connected|initiali[sz]ed)",
        r"no (?:active|open) (?:session|page|browser|connection)",
    ),
    _said("timeout", Cause.SESSION, r"timed? ?out", r"time limit", r"deadline exceeded"),
    _said(
        "exception", Cause.RUNTIME, r"traceback", r"\b[A-Z]\w*(?:Error|Exception)\b", r"exception", r"undefined",
        r"null pointer", r"cannot read propert", r"\bpanic", r"segfault", r"stack trace", r"no such module",
        r"no module named", r"internal error", r"-326\d\d", r"\bcode -?\d+\)", r"is not a function",
        r"unexpected (?:error|token|end)", r"has no attribute",
    ),
)  # fmt: skip

LOST = {
    "timeout": Verdict(Cause.SESSION, "no_answer_in_time"),
    "connection": Verdict(Cause.SESSION, "connection_lost"),
    "protocol": Verdict(Cause.SESSION, "protocol_error"),
    "interrupted": Verdict(Cause.SESSION, "interrupted"),
}
"""For calls that no answer came to."""

_SOFT_ERROR = re.compile(
    r"\s*(?:[❌⚠️✗🚫]+\s*)?(?:an? )?(?:(?:unexpected|internal|http|api|tool|execution) )?"
    r"(?:error|failed|failure|exception|traceback|unable to|could not|cannot)\b",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"\s*(?:sorry,? )?(?:(?:no|0|zero) (?:[\w-]+ ){0,4}(?:found|available|match\w*|returned|results?)\b|"
    r"(?:nothing|none)(?: (?:was )?found)?[.!]?\s*$|found (?:0|no) )",
    re.IGNORECASE,
)
_STATUS_WORDS = frozenset(("ok", "success", "successful", "true", "200", "done", "completed"))
_ERROR_KEYS = ("error", "errors", "err", "error_message", "errorMessage")


def cause_of(response: Response, arguments: object = None, *, writes: bool = False) -> Verdict | None:
    """Why the call failed, or None when it went well.

    :param arguments: what was sent: an answer that only repeats them says nothing.
    :param writes: of a tool that changes something, no answer is an answer: its results are not called empty.
    """
    if response.lost:
        found = LOST.get(response.lost, Verdict(Cause.SESSION, response.lost))
        return Verdict(found.cause, found.rule, _line(response.text))
    text = response.text.strip()
    if response.is_error:
        return _by_words(text or _dumped(response.structured), own=True)
    said = response.structured if response.structured is not None else _parsed(text)
    soft = _declared(said)
    if soft is None and len(text) <= _SOFT and _SOFT_ERROR.match(text):
        soft = text
    if soft is not None:
        return _by_words(soft, own=False)
    return None if writes else _empty(text, said, response.cut, arguments)


def _by_words(text: str, *, own: bool) -> Verdict:
    for rule in (*OWN, *WORDS) if own else WORDS:
        if (match := rule.pattern.search(text)) is not None:
            return Verdict(rule.cause, rule.name, _around(text, match))
    return Verdict(Cause.OTHER, "no_reason_given", _line(text))


def _declared(said: Any) -> str | None:
    """An error that an answer's JSON declares although the result does not: its words, or None."""
    if not isinstance(said, dict):
        return None
    if set(said) == {"result"}:
        return _declared(said["result"])
    for key in _ERROR_KEYS:
        if said.get(key):
            return _dumped(said)
    failed = said.get("success") is False or said.get("ok") is False or said.get("isError") is True
    failed = failed or str(said.get("status", "")).casefold() in ("error", "failed", "failure")
    return _dumped(said) if failed else None


def _empty(text: str, said: Any, cut: bool, arguments: object) -> Verdict | None:
    if cut:
        return None
    if not text and said is None:
        return Verdict(Cause.EMPTY, "no_content")
    if len(text) <= _SHORT and _NOTHING.match(text):
        return Verdict(Cause.EMPTY, "says_nothing_found", _line(text))
    if isinstance(said, dict) and set(said) == {"result"}:
        said = said["result"]
        if isinstance(said, str):
            return _empty(said.strip(), None, cut, arguments)
        if said is None:
            return Verdict(Cause.EMPTY, "null")
    if said is None:
        return Verdict(Cause.EMPTY, "null", text) if text.casefold() in ("null", "none", "undefined") else None
    if said in ([], {}, ""):
        return Verdict(Cause.EMPTY, "empty_json", _line(_dumped(said)))
    if isinstance(said, dict | list) and _hollow(said) and not _tells(said, _words_of(arguments)):
        return Verdict(Cause.EMPTY, "empty_lists", _line(_dumped(said)))
    return None


def _hollow(value: Any) -> bool:
    """Whether an empty list or object stands somewhere in a value."""
    return any(inner in ([], {}) for inner in _inside(value))


def _tells(value: Any, sent: frozenset[str]) -> bool:
    """Whether a value says anything but zeros, statuses and what was sent."""
    for inner in _inside(value):
        if isinstance(inner, dict | list) or inner is None or inner is False or inner is True or inner in (0, ""):
            continue
        word = str(inner).strip().casefold()
        if word not in _STATUS_WORDS and word not in sent and not _NOTHING.match(word):
            return True
    return False


def _words_of(arguments: object) -> frozenset[str]:
    return frozenset(str(v).strip().casefold() for v in _inside(arguments) if isinstance(v, str | int | float))


def _inside(value: Any) -> Iterator[Any]:
    """A value and all that is in it."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()


def _parsed(text: str) -> Any:
    if not text.startswith(("{", "[", '"')):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value is not None else ""


def _around(text: str, match: re.Match[str]) -> str:
    start = max(0, match.start() - _EVIDENCE // 3)
    return _line(text[start : start + _EVIDENCE])


def _line(text: str) -> str:
    return " ".join(text.split())[:_EVIDENCE]
