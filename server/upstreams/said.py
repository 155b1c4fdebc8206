"""What a failing server or installer has said, cut to what a person needs: the whole of it stays in its log."""

from __future__ import annotations

import re

_LINES = 3
_LONGEST = 400
_LONGEST_REASON = 80
_FRAME = re.compile(
    r"\s*(Traceback \(most recent call last\)|File \".*\", line \d+|at (async )?\S.*[:(]|node:\S+:\d+|Node\.js v\d"
    r"|(The above|During handling of the above) exception|throw |[\^~\s]+$|[╭╰├│].*|[-+\s\d]+$|[\[\]{}(),;]+$)"
)
_GROUP = re.compile(r"^\s*(\|\s|\+-)")
_RAISED = re.compile(r"(?!File\b)[A-Za-z_][\w.]*(Error|Exception|Exit|Group|Interrupt|Warning|Fault|\[\w+\])?(:\s|$)")
_TRACEBACK = re.compile(r"\s*(?:\+ Exception Group )?Traceback \(most recent call last\)")
_NPM = re.compile(r"npm (?:error|ERR!)\s*")
_NPM_NOISE = re.compile(
    r"$|code |errno |syscall |path |dest |network (?=If|This)|A complete log|Log files|\d+\s*$|command |signal "
    r"|404 (?:You should|Note that|tarball, folder)"
)

_NAME = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
_LACKS = (
    r"(?:is|are|was|were|must be|has to be|needs to be|has)\s+"
    r"(?:not\s+(?:been\s+)?(?:set|provided|found|defined|configured|given|specified)"
    r"|required|missing|undefined|unset|empty|needed|set\b|provided\b|null)"
    r"|not\s+(?:set|found|provided|defined|configured|specified)|required|missing"
)
_NAMED = (
    re.compile(rf"\b(?P<name>{_NAME})\b['\"`)\]]*:?\s+(?:(?:environment|env)\s+(?:variable|var)s?\s+)?(?:{_LACKS})"),
    re.compile(
        r"\b(?:[Mm]issing|[Nn]o|[Ss]et|[Pp]rovide|[Rr]equires?|[Ee]xport|[Dd]efine|[Ss]pecify|[Nn]eeds?)\s+(?:(?:the|a|an|your|valid"
        rf"|required|environment|env|variables?|vars?|in)\s+)*[:'\"`$({{\[]*(?P<name>{_NAME})\b"
    ),
    re.compile(rf"(?:KeyError:|[Ff]ield required[^\n]*|[Mm]issing[^\n]{{0,60}}?)\s*['\"`]?(?P<name>{_NAME})\b"),
)
_A_KEY = r"(?:api[ _-]?key|access[ _-]?token|auth\w*[ _-]?token|(?<!unexpected )token|credentials?|password|secret)"
_KEY = re.compile(
    rf"{_A_KEY}s?\b[^\n.]{{0,40}}\b({_LACKS}|invalid|expired)"
    rf"|(missing|no|invalid|provide|requires?|set)\s+((an?|the|your|valid|any)\s+)?(\w+\s+)?{_A_KEY}s?\b"
    r"|\b401\b[^\n]{0,40}unauthorized|unauthorized[^\n]{0,40}\b401\b|status(?: code)?:? 401\b"
    r"|authentication (failed|required)",
    re.IGNORECASE,
)
_OLDER_SDK = re.compile(
    r"'(Server|FastMCP)' object has no attribute|cannot import name .* from 'mcp\b|No module named 'mcp\."
)


def gist(text: str) -> str:
    """The last lines that say something, without the stack traces around them."""
    lines = []
    inside = False
    for line in text.splitlines():
        line = _GROUP.sub("", line)
        if _TRACEBACK.match(line):
            inside = True
        elif inside and _RAISED.match(line):
            inside = False  # the error that it ends with
        if line.strip() and not inside and _FRAME.match(line) is None:
            lines.append(line.strip())
    kept = list(dict.fromkeys(lines))[-_LINES:] or [line.strip() for line in text.splitlines() if line.strip()][-1:]
    return "\n".join(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..." for line in kept)


def installer_gist(text: str) -> str:
    """Why npm or uv did not install a package, in its own words."""
    if causes := list(re.finditer(r"[╰├]─▶|^\s*cause:", text, re.MULTILINE)):
        told = re.split(r"\n\s*\n|\n\s*hint:", text[causes[-1].end() :], maxsplit=1)[0]
        return " ".join(told.split())[:_LONGEST]
    npm = [said for line in text.splitlines() if (match := _NPM.match(line)) and (said := line[match.end() :].strip())]
    if told := [line for line in npm if _NPM_NOISE.match(line) is None and not line.startswith(("at ", "gyp info"))]:
        return "\n".join(line[:_LONGEST] for line in dict.fromkeys(told[:_LINES]))
    return gist(text)


def install_hint(text: str) -> str:
    """What to do about an installer's failure, by its words."""
    if match := re.search(r"(?:requires-python|Python)\s*`?((?:[<>=!~]=?|==)\s*[\d.]+)[^\n]*", text):
        number = re.sub(r"[^\d.]", "", match[1]).rstrip(".")
        return f'It wants another Python: put "--python", "{number}" before the package in its "args".'
    if re.search(
        r"fatal error: \S+\.h|pg_config|command '?\S*(gcc|cc|g\+\+|clang|cmake|cargo|rustc)|gyp ERR|make: ", text
    ):
        return (
            "It is built here, and a compiler or a library's headers are missing: install what its own words name, or "
            "choose a version that comes ready-made."
        )
    if re.search(r"\bE?404\b|not found in the (package )?registry|no versions? of|ETARGET|notarget", text):
        return "No such package or version is there: check its name and version."
    if re.search(r"ENOTFOUND|EAI_AGAIN|ECONN|ETIMEDOUT|dns error|error sending request|certificate", text):
        return "Its registry was not reached: check this machine's network, proxy and certificates."
    return "Check the package's name and version, and that this machine reaches its registry."


def missing_value(text: str) -> str | None:
    """The variable that a server says it lacks; empty for a key that it does not name, None where it says neither."""
    for pattern in _NAMED:
        if (match := pattern.search(text)) and not match["name"].startswith(("TOOLSCOUT_", "ERR_")):
            return match["name"]
    return "" if _KEY.search(text) else None


def older_sdk(text: str) -> str:
    """What to do where a Python server was written for an MCP SDK before the second; else nothing."""
    if _OLDER_SDK.search(text) is None:
        return ""
    return 'It was written for an older MCP SDK: put "--with", "mcp<2" before the package in its "args".'


def short_reason(name: str, error: str) -> str:
    """The first sentence of an error without the server's name, cut to what fits into a line."""
    text = re.sub(rf"^(The server )?'{re.escape(name)}':? ", "", " ".join(error.split()))
    if (told := error.partition("stderr ends with:\n")[2]) and " while starting." in error:
        text = [line for line in told.splitlines() if not line.startswith("(all of it")][-1]
    first = re.split(r"\.(?: |$)", text)[0]
    return first if len(first) <= _LONGEST_REASON else f"{first[:_LONGEST_REASON].rstrip()}..."
