"""Dummy values for the variables that a server asks for, by their names: enough to make it list its tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

_NAME = re.compile(r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z]{3,}(?:KEY|TOKEN|SECRET|PASSWORD))\b")
_LOOSE = re.compile(
    r"(?:KeyError: |env(?:ironment)? variable:?\s+|\bset\s+|process\.env\.)['\"`]?([A-Z][A-Z0-9_]{2,})\b"
)
_FIELD = re.compile(r"^(\w+)\n\s+Field required", re.M)
"""A setting that pydantic misses; its variable has the same name."""
_IN_SOURCE = re.compile(
    r"(?:process\.env(?:\.|\[['\"])|os\.environ(?:\.get\(|\[)\s*['\"]|os\.getenv\(\s*['\"]|getenv\(['\"]|"
    r"env\.get\(\s*['\"]|envvar\s*=\s*['\"]|alias\s*=\s*['\"])([A-Z][A-Z0-9]*_?[A-Z0-9_]*)"
)
_ENV_PREFIX = re.compile(r"env_prefix\s*=\s*['\"](\w+)['\"]")
_NOT_VARIABLES = re.compile(
    r"ERR_\w+|E[A-Z]{4,}|MODULE_NOT_FOUND|NODE_\w+|NPM_\w+|PYTHON\w*|HTTP_\w+|HTTPS_\w+|INVALID_\w+|MISSING_\w+|"
    r"UTF_\d+|ISO_\w+|JSON_\w+|CERT_\w+|SSL_\w+|SIG[A-Z]+|XDG_\w+|LC_\w+|BASE_DIR|NO_COLOR|FORCE_COLOR|CI|DEBUG|"
    r"YOUR_\w+|NOT_\w+|ERROR_\w+|REDACTED\w*|\w+_(?:MISSING|ERROR|CONFIGURED|FAILED|INVALID|REQUIRED|NOT_FOUND|UNDEFINED)|"
    r"LOG(?:GER|GING)?_\w+|\w*LOG_LEVEL|\w*_DEBUG|PATH|HOME|USER|TMPDIR|APPDATA|LOCALAPPDATA|TERM|SHELL|DISPLAY|EDITOR|README\w*"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|AUTH|CREDENTIAL|COOKIE|SESSION|BEARER|PRIVATE|SIGNATURE|WEBHOOK")

_HEX = "0123456789abcdef" * 4

_VALUES: tuple[tuple[str, str], ...] = (
    (r"STRIPE.*(KEY|SECRET)", "sk_test_" + _HEX[:24]),
    (r"(ANTHROPIC|CLAUDE).*KEY", "sk-ant-api03-" + _HEX[:48]),
    (r"(OPENAI|OPENROUTER|DEEPSEEK|LLM).*KEY", "sk-" + _HEX[:48]),
    (r"(GITHUB|GH).*(TOKEN|PAT|KEY)", "ghp_" + _HEX[:36]),
    (r"GITLAB.*(TOKEN|PAT|KEY)", "glpat-" + _HEX[:20]),
    (r"SLACK.*(BOT|TOKEN)", "xoxb-000000000000-000000000000-" + _HEX[:24]),
    (r"SLACK.*TEAM", "T00000000"),
    (r"NOTION.*(TOKEN|KEY|SECRET)", "ntn_" + _HEX[:43]),
    (r"(GOOGLE|GEMINI|YOUTUBE|MAPS).*API.?KEY", "AIzaSy" + _HEX[:33]),
    (r"AIRTABLE.*(TOKEN|KEY)", "pat" + _HEX[:14] + "." + _HEX),
    (r"AWS.*ACCESS.?KEY.?ID", "AKIA0000000000000000"),
    (r"AWS.*SECRET", _HEX[:40]),
    (r"(AWS|S3).*REGION|^REGION$|_REGION$", "us-east-1"),
    (r"(TELEGRAM|BOT).*TOKEN", "123456789:" + _HEX[:35]),
    (r"DISCORD.*TOKEN", "MTIzNDU2Nzg5MDEyMzQ1Njc4.Gabcde." + _HEX[:38]),
    (r"TWILIO.*SID", "AC" + _HEX[:32]),
    (r"(ETH|EVM|WALLET|WEB3|SOLANA|ONCHAIN).*PRIVATE.?KEY|^PRIVATE_KEY$", "0x" + _HEX),
    (r"MNEMONIC|SEED_PHRASE", "test " * 11 + "junk"),
    (r"(EMAIL|MAIL_FROM|_FROM$)", "someone@example.invalid"),
    (r"MYSQL.*(URL|URI|CONNECTION)", "mysql://user:secret@localhost:3306/db"),
    (r"MONGO.*(URL|URI|CONNECTION)", "mongodb://localhost:27017/db"),
    (r"(DATABASE|POSTGRES|PG|DB).*(URL|URI|CONNECTION|DSN)", "postgresql://user:secret@localhost:5432/db"),
    (r"REDIS.*(URL|URI)", "redis://localhost:6379/0"),
    (r"(NEO4J|BOLT).*(URL|URI)", "bolt://localhost:7687"),
    (r"(WS|WEBSOCKET).*(URL|URI|ENDPOINT)", "ws://localhost:8080"),
    (r"REDIS_(DB|DATABASE)$", "0"),
    (
        r"(URL|URI|ENDPOINT|(?<!DATA)BASE|SITE|INSTANCE|WEBHOOK|RPC|SERVER)$|(URL|URI|ENDPOINT)_",
        "https://example.invalid",
    ),
    (r"(HOST|HOSTNAME|DOMAIN|SHOP|STORE)$", "example.invalid"),
    (r"PORT$", "8080"),
    (r"(TIMEOUT|INTERVAL|TTL)_MS$", "30000"),
    (r"(TIMEOUT|LIMIT|MAX|COUNT|SIZE|TTL|RETRIES|INTERVAL|DIMENSIONS?)(_|$)", "30"),
    (r"(ENABLED?|DISABLED?|ALLOW|USE|IS|READ_?ONLY|VERIFY)(_|$)", "true"),
    (r"(DIR|DIRECTORY|FOLDER|ROOT|WORKSPACE|VAULT(_PATH)?|PROJECT_PATH|REPO_PATH)$", "/tmp/work"),
    (r"(FILE|PATH|CREDENTIALS|KEYFILE|JSON)$", "/tmp/work/file.json"),
    (r"(UUID|GUID|TENANT_ID|SUBSCRIPTION_ID|CLIENT_ID|DIRECTORY_ID)$", "00000000-0000-4000-8000-000000000000"),
    (r"PHONE", "+15550000000"),
    (r"(VERSION)$", "1"),
    (r"(ID|NUMBER|NUM|SID)$", "123456789"),
    (
        r"(USER|USERNAME|LOGIN|NAME|OWNER|ORG|WORKSPACE|TEAM|ACCOUNT|PROJECT|DATABASE|BUCKET|INDEX|COLLECTION)$",
        "example",
    ),
    (r"MODEL", "gpt-4o"),
    (r"CHAIN|NETWORK", "mainnet"),
    (r"COUNTRY|LOCALE|LANG", "us"),
    (r"(TOKEN|KEY|SECRET|PASSWORD|PASS|PWD)", _HEX[:32]),
)
_PREFIX = re.compile(
    r"(?:start(?:s|ing)? with|begin(?:s|ning)? with|prefix(?:ed)?(?: with| is)?)[\s:]*['\"`“]?([A-Za-z0-9_:.-]{2,20}?)"
    r"(?:\.{3}|…|['\"`”\s,;)]|\.?$)",
    re.I | re.M,
)


def value_for(name: str) -> str:
    """A dummy value by the variable's name; the form of the best known services' keys is kept."""
    upper = name.upper()
    for pattern, value in _VALUES:
        if re.search(pattern, upper):
            return value
    return "example"


def is_secret(name: str) -> bool:
    """Whether a variable's name says that its value is one to keep."""
    return _SECRET.search(name.upper()) is not None


def asked_for(text: str, given: Collection[str] = ()) -> list[str]:
    """Variables that an error message names and that were not given yet, in the order of the text."""
    names = [m.group(1) for pattern in (_LOOSE, _NAME) for m in pattern.finditer(text)]
    names += [m.group(1).upper() for m in _FIELD.finditer(text)]
    return [n for n in dict.fromkeys(names) if n not in given and not _NOT_VARIABLES.fullmatch(n)][:24]


def in_source(folders: Collection[Path], given: Collection[str] = (), most: int = 24) -> list[str]:
    """Variables that a package's own code reads, secrets first: for servers that do not name what they miss.

    Reads at most some megabytes of its scripts; nothing is run.
    """
    found: dict[str, int] = {}
    for text in _scripts(folders):
        for match in _IN_SOURCE.finditer(text):
            found[match.group(1)] = found.get(match.group(1), 0) + 1
    names = [n for n in found if n not in given and len(n) > 2 and not _NOT_VARIABLES.fullmatch(n)]
    return sorted(names, key=lambda n: (not is_secret(n), -found[n]))[:most]


def in_settings(text: str, folders: Collection[Path], given: Collection[str] = ()) -> list[str]:
    """Variables of the settings that pydantic misses, where the package's own code gives them a common prefix."""
    fields = [m.group(1).upper() for m in _FIELD.finditer(text)]
    if not fields:
        return []
    prefixes = dict.fromkeys(match.group(1) for script in _scripts(folders) for match in _ENV_PREFIX.finditer(script))
    return [p.upper() + f for p in prefixes for f in fields if p.upper() + f not in given][:24]


def _scripts(folders: Collection[Path]) -> Iterator[str]:
    """The texts of packages' own scripts, outermost first, some megabytes of them."""
    budget = 6_000_000
    for folder in folders:
        for path in sorted(folder.rglob("*"), key=lambda p: len(p.parts)):
            if (
                path.suffix not in (".js", ".mjs", ".cjs", ".ts", ".py")
                or "node_modules" in path.parts[len(folder.parts) :]
            ):
                continue
            try:
                text = path.read_text("utf-8", "replace") if path.is_file() and not path.is_symlink() else ""
            except OSError:
                continue
            budget -= len(text)
            if budget < 0:
                return
            yield text


def reformed(text: str, env: Mapping[str, str]) -> dict[str, str]:
    """New values for given variables whose form an error message complains about ("must start with sk_")."""
    match = _PREFIX.search(text)
    if match is None:
        return {}
    prefix = match.group(1).rstrip(".")
    named = [n for n in env if n in text] or [n for n in env if is_secret(n)]
    changed = {n: prefix + _HEX[:32] for n in named if not env[n].startswith(prefix)}
    return changed if not prefix.lower().startswith("http") else dict.fromkeys(changed, f"{prefix}example.invalid")


_EXCLUSIVE = re.compile(
    r"mutually exclusive|cannot (?:both|set both|be used (?:together|with))|not both|only one of", re.I
)


def exclusive(text: str, env: Mapping[str, str]) -> dict[str, str] | None:
    """The variables without all but the first of those that an error message calls mutually exclusive."""
    if _EXCLUSIVE.search(text) is None:
        return None
    tail = text[-2000:]
    named = sorted((n for n in env if re.search(rf"\b{n}\b", tail)), key=tail.index)
    return {n: v for n, v in env.items() if n not in named[1:]} if len(named) > 1 else None


ARGUMENTS: tuple[tuple[str, str, str], ...] = (
    (
        r"connection.?string|database.?url|postgres|dsn|\bdb.?url",
        "postgresql://user:secret@localhost:5432/db",
        "connection string",
    ),
    (r"vault|director(?:y|ies)|folder|\bdir\b|root|workspace|repo", "/tmp/work", "directory"),
    (r"database|sqlite|\.db\b", "/tmp/work/data.db", "database file"),
    (r"openapi|swagger|spec\b", "/tmp/work/openapi.json", "specification file"),
    (r"file|config|path|\.json|\.ya?ml", "/tmp/work/file.json", "file"),
    (r"\burl\b|endpoint|server|host", "https://example.invalid", "URL"),
    (r"api.?key|token|secret|password", _HEX[:32], "key"),
)
"""What a usage text asks for: pattern, dummy, what to call it."""

_OPTION = re.compile(
    r"(?:required|missing)[^\n]{0,60}?(--[a-z][\w-]+)|(--[a-z][\w-]+)[^\n]{0,40}?(?:is |\()?required|"
    r"(?:provide|pass|specify|give|set|using|via)\b[^\n]{0,60}?(--[a-z][\w-]+)|required options?:\s+(--[a-z][\w-]+)",
    re.I,
)
_REQUIRED_BLOCK = re.compile(
    r"^[ \t]*required (?:options|arguments|flags|parameters):[ \t]*\n((?:[ \t]*-[^\n]*\n?)+)", re.I | re.M
)
_NOT_VALUES = frozenset({"--help", "--version", "--stdio"})


_NAMED = re.compile(r"missing required arguments?:[ \t]*([\w-]+(?:, *[\w-]+)*)[ \t]*$", re.I | re.M)
"""As yargs lists its options: without dashes."""
_LISTS_COMMANDS = re.compile(
    r"invalid choice|no such (?:sub)?command|unknown (?:sub)?command|^[ \t]*(?:available |sub)?commands:|"
    r"COMMAND \[ARGS\]|<(?:sub)?command>|^[ \t]*[╭─]+ Commands",
    re.I | re.M,
)


def refuses(text: str, switch: Collection[str]) -> bool:
    """Whether a message complains about one of these arguments: ``No such option: --stdio``."""
    complaint = r"(?:no such|unrecogni[sz]ed|unknown|invalid|unexpected|unsupported|bad)[^\n]{0,60}?"
    return any(re.search(rf"{complaint}(?<![\w-]){re.escape(word)}(?![\w-])", text, re.I) for word in switch)


def arguments_for(usage: str, given: Collection[str] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Arguments that a usage text seems to ask for: with dummy values, and with ``<placeholders>``; empty: no idea.

    Options that were ``given`` are left out. A text that lists commands asks for none of ours: only for one of them.
    """
    options = [next(filter(None, groups)) for groups in _OPTION.findall(usage)]
    options += [
        o for block in _REQUIRED_BLOCK.findall(usage) for o in re.findall(r"^[ \t]*(?:-\w, )?(--[\w-]+)", block, re.M)
    ]
    options += [o for line in re.findall(r"arguments are required: (.+)", usage) for o in re.findall(r"--[\w-]+", line)]
    options += [f"--{name}" for names in _NAMED.findall(usage) for name in re.split(r", *", names)]
    named = bool(options)
    options = [o for o in dict.fromkeys(options) if o not in _NOT_VALUES and o not in given]
    if named and not options:
        return (), ()
    if not options and _LISTS_COMMANDS.search(usage):
        return (), ()
    if options:
        dummy: list[str] = []
        shown: list[str] = []
        for option in options:
            value, label = _argument(re.sub(r"(?<=[a-z])(?=[A-Z])|-", " ", option))
            dummy += [option, value]
            shown += [option, f"<{label}>"]
        return tuple(dummy), tuple(shown)
    value, label = _argument(usage)
    return ((value,), (f"<{label}>",)) if label else ((), ())


_SUBCOMMAND = re.compile(
    r"^[ \t]+(?:[\w@/.-]+[ \t]+)?(mcp|serve|serve-mcp|mcp-serve|mcp-server|stdio|server|start|run|serve-stdio)"
    r"(?:[ \t]+\[[^\]\n]*\])?(?:[ \t]{2,}|[ \t]*[:|–—-][ \t]|[ \t]*$)([^\n]*)",
    re.M,
)
_CHOICES = re.compile(r"[{<(\[]((?:[\w-]+[|,] ?)+[\w-]+)[}>)\]]")
_SUBCOMMANDS = (
    "mcp",
    "serve",
    "stdio",
    "mcp-server",
    "serve-mcp",
    "mcp-serve",
    "serve-stdio",
    "server",
    "start",
    "run",
)


def subcommand(usage: str) -> str:
    """The subcommand of a usage text that starts the MCP server; empty where it lists none."""
    listed = [(name, about) for name, about in _SUBCOMMAND.findall(usage)]
    for name, about in listed:
        if re.search(r"\bMCP\b|stdio", about, re.I):
            return str(name)
    names = {name for name, _ in listed}
    for group in _CHOICES.findall(usage):
        names.update(part.strip() for part in re.split(r"[|,]", group))
    for group in re.findall(r"choose from ([^)\n]+)", usage):
        names.update(part.strip(" '\"") for part in group.split(","))
    return next((name for name in _SUBCOMMANDS if name in names), "")


def argument(text: str) -> tuple[str, str]:
    """Dummy and ``<placeholder>`` for an argument that a name or a text describes."""
    value, label = _argument(text)
    return value, f"<{label}>"


def _argument(text: str) -> tuple[str, str]:
    for pattern, value, label in ARGUMENTS:
        if re.search(pattern, text, re.I):
            return value, label
    return "example", "value"
