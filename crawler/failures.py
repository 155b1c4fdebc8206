"""Why a server gave no tools: classes, finer causes, and the evidence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Failure(StrEnum):
    """The class of a failure."""

    INSTALL = "install"
    NO_ENTRY_POINT = "no_entry_point"
    NEEDS_ARGUMENTS = "needs_arguments"
    NEEDS_KEY = "needs_key"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    NOT_A_SERVER = "not_a_server"
    PROTOCOL = "protocol_error"
    EMPTY = "empty_list"
    LOST = "lost"


@dataclass(frozen=True)
class Verdict:
    """A failure: its class, a finer cause (``import_error``, ``http_only``, ...), and the lines that show it."""

    failure: Failure
    cause: str
    evidence: str


class DeployError(Exception):
    """A step of a deployment failed in a way that more tries do not change."""

    def __init__(self, failure: Failure, cause: str, evidence: str = "") -> None:
        super().__init__(f"{failure}: {cause}")
        self.verdict = Verdict(failure, cause, excerpt(evidence))


EVIDENCE = 1200
"""Most characters of evidence kept."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

_IMPORT = re.compile(
    r"ModuleNotFoundError|ImportError|cannot import name|Cannot find (?:module|package)|ERR_MODULE_NOT_FOUND|"
    r"ERR_REQUIRE_ESM|does not provide an export named|ERR_PACKAGE_PATH_NOT_EXPORTED|ERR_UNSUPPORTED_DIR_IMPORT"
)
_NATIVE = re.compile(
    r"\.node['\"\s]|node-gyp|prebuild|bindings file|GLIBC_|cannot open shared object|Could not locate the bindings|"
    r"sharp module|ERR_DLOPEN_FAILED",
    re.I,
)
_RUNTIME = re.compile(
    r"(?:\brequires?|\bneeds?|unsupported|minimum|at least)[ :]{1,3}(?:\w+ ){0,3}(?:node(?:\.?js)?|bun|deno|python)\b"
    r"[^\n/]{0,30}\d|UNSUPPORTED_NODE|Bun is not defined|"
    r"Cannot find package 'bun:|Received protocol 'bun:|bun:sqlite|node:sqlite|Deno is not defined|"
    r"ERR_UNKNOWN_BUILTIN_MODULE|Unknown file extension \"\.[mc]?tsx?\"|"
    r"env: ['‘]?(?:bun|deno|uv|uvx|python)['’]?: No such file|spawn (?:bun|deno|uv|uvx|docker|java|go|python3?) ENOENT|"
    r"\b(?:bun|deno|uvx?|python3?|java)(?::| is) not (?:found|installed)|"
    r"Node(?:\.js)? v?\d+\+? (?:or (?:newer|later|higher) )?"
    r"is (?:required|not supported)|Promise\.withResolvers is not a function|Unexpected token 'with'",
    re.I,
)
_NETWORK = re.compile(
    r"connect ENOENT /\S+\.sock|Cannot connect to the Docker daemon|"
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|getaddrinfo|Name or service not known|"
    r"Temporary failure in name resolution|Network is unreachable|fetch failed|ConnectError|ConnectionError|"
    r"Connection refused|MaxRetryError|URLError|NewConnectionError|APIConnectionError|ServerSelectionTimeout",
    re.I,
)
_SERVICE = re.compile(
    r"(?:redis|neo4j|docker|postgres(?:ql)?|mysql|mongo(?:db)?|elasticsearch|qdrant|milvus|kafka|ollama|"
    r"127\.0\.0\.1:\d+|localhost:\d+)",
    re.I,
)
_USAGE = re.compile(
    r"^\s*usage:|following arguments are required|the following required arguments|Missing (?:required )?(?:argument|"
    r"option|parameter)|required option|Please (?:provide|specify)[^\n]{0,60}(?:path|director|argument|url|connection|"
    r"database|folder|file)|error: (?:a|one of the) .{0,60} required|not enough arguments|Missing option|"
    r"expected (?:at least )?(?:one|\d+) argument",
    re.I | re.M,
)
_KEY = re.compile(
    r"(?:api[ _-]?key|access[ _-]?token|\btoken\b|credential|secret|password|client[ _-]?id|account|auth\w*)"
    r"[^\n]{0,80}(?:required|missing|not (?:set|found|provided|configured|defined)|must be (?:set|provided)|"
    r"is (?:undefined|empty)|invalid)|"
    r"(?:missing|required|requires?|provide|set|no|need|invalid|configure)[^\n]{0,60}(?:api[ _-]?key|token|credential|"
    r"secret|password|client[ _-]?id)|environment variable|env(?:ironment)? ?vars?\b|\.env\b|"
    r"\n\w+\n\s+Field required|KeyError: '[A-Z][A-Z0-9_]+'|"
    r"\b[A-Z]\w*_\w*[^\n]{0,60}(?:mutually exclusive|not both|cannot both)|"
    r"[A-Z][A-Z0-9_]*_[A-Z0-9_]*[^\n]{0,40}(?:required|missing|not set|must be|is not defined|undefined)|"
    r"(?:required|missing|set)[^\n]{0,20}\b[A-Z][A-Z0-9]*_[A-Z0-9_]+",
    re.I,
)
_READ_ONLY = re.compile(
    # Node before 22 says ENOENT of a folder that it cannot make in a read-only one.
    r"EROFS|Read-only file system|EACCES: permission denied, (?:mkdir|open|copyfile|unlink|rename)"
    r"|ENOENT: no such file or directory, mkdir '[^']*/node_modules/"
)
_HTTP = re.compile(
    r"(?:listening|running|started|serving|server)\b[^\n]{0,60}(?:\bport\b|https?://|:\d{4,5}\b)|Uvicorn running on|"
    r"Application startup complete|Streamable ?HTTP|SSE (?:server|transport|endpoint)",
    re.I,
)
_TRACEBACK = re.compile(r'^\s+File "[^"\n]+", line \d+|^\s+at [^\n]+:\d+:\d+\)?$', re.M)
_BROKEN_CALL = re.compile(r"^[ \t|]*(?:\w+\.)*(?:AttributeError|TypeError|NameError|SyntaxError)\b", re.M)
"""How Python ends where a dependency has become another."""
_PROMPT = re.compile(r"\(y/n\)|\[y/n\]|\? .*[›»:]|select an? |Would you like|press (?:enter|any key)|wizard", re.I)
_OTHER_PROGRAM = re.compile(r"Commands:|subcommand|--help\b|--version\b", re.I)
_DOWNLOAD = re.compile(
    r"download(?:ing|ed)?\b[^\n]{0,80}(?:fail|error|binary|model|browser|release)|huggingface|"
    r"couldn't connect to '[^']*' to load the files|LocalEntryNotFoundError",
    re.I,
)


def classify(stderr: str, noise: str, returncode: int | None, broken: str | None) -> Verdict:
    """What kept a server from answering, from what it said and how it ended.

    Args:
        stderr: what it printed there.
        noise: what it printed on stdout that was no message.
        returncode: None when it was still running when its time was up.
        broken: the limit that it broke, if any.
    """
    text = clean(f"{stderr}\n{noise}")
    shown = excerpt(text)
    if broken:
        return Verdict(Failure.CRASHED, "limit", f"{broken}\n{shown}".strip())
    if _READ_ONLY.search(text):
        return Verdict(Failure.CRASHED, "writes_beside_itself", _around(text, _READ_ONLY))
    if _RUNTIME.search(text):
        return Verdict(Failure.CRASHED, "other_runtime", _around(text, _RUNTIME))
    if _NATIVE.search(text) and (_IMPORT.search(text) or "Error" in text):
        return Verdict(Failure.CRASHED, "native_module", _around(text, _NATIVE))
    if _IMPORT.search(text):
        return Verdict(Failure.CRASHED, "import_error", _around(text, _IMPORT))
    if returncode and _BROKEN_CALL.search(text) and _TRACEBACK.search(text):
        return Verdict(Failure.CRASHED, f"status_{returncode}", _around(text, _BROKEN_CALL))
    if _USAGE.search(text) and not re.search(r"environment variable", text, re.I):
        return Verdict(Failure.NEEDS_ARGUMENTS, "usage", _around(text, _USAGE))
    if _KEY.search(text):
        return Verdict(Failure.NEEDS_KEY, "environment", _around(text, _KEY))
    if _NETWORK.search(text):
        cause = "needs_service" if _SERVICE.search(text) else "needs_network"
        if _DOWNLOAD.search(text):
            cause = "downloads_at_start"
        failure = Failure.TIMEOUT if returncode is None else Failure.CRASHED
        return Verdict(failure, cause, _around(text, _NETWORK))
    if _HTTP.search(text) and (returncode is None or not _TRACEBACK.search(text)):
        return Verdict(Failure.NEEDS_ARGUMENTS, "http_only", _around(text, _HTTP))
    if _PROMPT.search(text):
        return Verdict(Failure.NOT_A_SERVER, "wizard", _around(text, _PROMPT))
    if returncode is None:
        return Verdict(Failure.TIMEOUT, "silent" if not text.strip() else "no_answer", shown)
    if returncode == 0:
        cause = "prints_and_exits" if noise.strip() or _OTHER_PROGRAM.search(text) else "exits"
        return Verdict(Failure.NOT_A_SERVER, cause, shown)
    return Verdict(Failure.CRASHED, f"status_{returncode}", shown)


def refused(verdict: Verdict) -> Verdict:
    """The verdict on an answer that is an error: one of a missing key or an unreachable host tells more of why."""
    if verdict.cause not in ("refuses_both_eras", "list_fails"):
        return verdict
    text = verdict.evidence
    if _NETWORK.search(text):
        cause = "needs_service" if _SERVICE.search(text) else "needs_network"
        return Verdict(Failure.PROTOCOL, cause, text)
    if _KEY.search(text) and not re.search(r"unexpected token", text, re.I):
        return Verdict(Failure.NEEDS_KEY, "environment", text)
    return verdict


def missing_extra(text: str, package: str) -> str:
    """The optional parts of a Python package that its own message says to install: ``pip install "NAME[mcp]"``."""
    name = r"[-_.]+".join(map(re.escape, re.split(r"[-_.]+", package)))
    match = re.search(rf"(?<![\w.-]){name}\[(\w[\w-]*(?: ?, ?\w[\w-]*)*)\]", text, re.I)
    return match[1].replace(" ", "") if match else ""


def speaks_http(text: str) -> bool:
    """Whether a server says that it listens on a port."""
    return _HTTP.search(clean(text)) is not None


def clean(text: str) -> str:
    """Text without terminal colours and control characters."""
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c if c == "\n" or c == "\t" or c.isprintable() else "�" for c in text)


def excerpt(text: str, limit: int = EVIDENCE) -> str:
    """The last lines of a text, cleaned, at most so many characters."""
    lines = [line.rstrip() for line in clean(text).splitlines() if line.strip()]
    kept = "\n".join(lines[-15:])
    return kept if len(kept) <= limit else "..." + kept[-limit:]


def _around(text: str, pattern: re.Pattern[str]) -> str:
    """The lines around a pattern's first match, then the end."""
    match = pattern.search(text)
    assert match is not None
    start = text.rfind("\n", 0, max(match.start() - 200, 0)) + 1
    return excerpt(text[start : match.end() + 400], EVIDENCE)
