"""Secrets in client configurations: tell them from ordinary values, and leave a reference in their place.

A value is taken for a secret by the name it stands under, by a vendor's known prefix, or because it looks random.
Where it is doubtful it counts as a secret: a reference too many costs one ``export``, a leaked key costs more.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from toolscout.server.clients.inside import given, pairs, parsed, written
from toolscout.server.shell_lines import own_names, text_at

REFERENCE = re.compile(r"\$\{(?:env:|keyring:)?[A-Za-z_][A-Za-z0-9_.-]*(?::-[^}]*)?\}")

_NAMED = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)\}")
_DEFAULTED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):-([^}]*)\}")

_SECRET_WORDS = {
    "apikey", "apitoken", "auth", "authorization", "bearer", "cookie", "credential", "credentials", "cred", "creds",
    "dsn", "jwt", "key", "keys", "pass", "passcode", "passphrase", "passwd", "password", "pat", "pin", "private", "pwd",
    "secret", "secrets", "session", "sid", "signature", "token", "tokens", "webhook",
}  # fmt: skip
_GLUED = re.compile(
    r"(apikey|apitoken|accesskey|secretkey|privatekey|authtoken|accesstoken|token|secret|passwor[dt]|(?<!by)(?<!com)(?<!sur)pass)$"
)
_HARMLESS_LAST = {"path", "file", "dir", "directory", "folder", "name", "id", "mode", "type", "url", "uri", "endpoint",
                  "host", "port", "method", "scheme", "header", "limit", "max", "count", "length", "ttl", "timeout",
                  "enabled", "region", "algorithm", "prefix", "location"}  # fmt: skip

_PREFIXES = re.compile(
    r"""(?x) (?<![A-Za-z0-9])(?:
        sk-[A-Za-z0-9_-]{8,} | [rsp]k_(?:live|test)_[A-Za-z0-9]{6,} | whsec_[A-Za-z0-9+/=]{8,}
      | gh[pousr]_[A-Za-z0-9]{8,} | github_pat_[A-Za-z0-9_]{8,} | gl(?:pat|ptt|dt|rt|cbt|soat)-[A-Za-z0-9_.-]{8,}
      | xox[a-z]-[A-Za-z0-9-]{6,} | xapp-[A-Za-z0-9-]{6,}
      | A(?:KIA|SIA|ROA|IDA)[A-Z0-9]{12,} | AIza[A-Za-z0-9_-]{16,} | ya29\.[A-Za-z0-9_-]{8,} | GOCSPX-[A-Za-z0-9_-]{8,}
      | hf_[A-Za-z0-9]{8,} | npm_[A-Za-z0-9]{8,} | pypi-[A-Za-z0-9_-]{16,} | dckr_(?:pat|oat)_[A-Za-z0-9_-]{8,}
      | SG\.[A-Za-z0-9_-]{8,}
      | dop_v1_[a-f0-9]{8,} | shp(?:at|ca|pa|ss)_[a-fA-F0-9]{8,} | lin_(?:api|oauth)_[A-Za-z0-9]{8,}
      | ntn_[A-Za-z0-9]{8,} | secret_[A-Za-z0-9]{8,} | figd_[A-Za-z0-9_-]{8,} | tvly-[A-Za-z0-9-]{8,}
      | fc-[a-f0-9]{16,} | r8_[A-Za-z0-9]{8,} | gsk_[A-Za-z0-9]{8,} | xai-[A-Za-z0-9]{8,} | pplx-[A-Za-z0-9]{8,}
      | sntry[a-z]_[A-Za-z0-9_=+/-]{8,} | ATATT[A-Za-z0-9_=.-]{8,} | sbp_[a-f0-9]{8,} | nvapi-[A-Za-z0-9_-]{8,}
      | AGE-SECRET-KEY-[A-Z0-9]{8,} | eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)* | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY
    )"""
)
_SCHEMES = re.compile(r"(?i)^\s*(bearer|basic|token|apikey|digest)\s+(?=\S)")
_UUID = re.compile(r"(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_FLAG = re.compile(r"^--?[A-Za-z][A-Za-z0-9_.-]*$")
HARMLESS_VALUE = re.compile(r"(?i)^(true|false|yes|no|on|off|none|null|default|auto|)$")
_HEADERS_KNOWN_HARMLESS = {"accept", "content-type", "user-agent", "mcp-protocol-version", "accept-language", "host"}


def secret_name(name: str) -> bool:
    """Whether a variable, header or flag of this name usually holds a secret (``GITHUB_TOKEN``, ``X-Api-Key``)."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or (len(words) > 1 and words[-1] in _HARMLESS_LAST):
        return False
    return any(word in _SECRET_WORDS for word in words) or bool(_GLUED.search("".join(words)))


def secret_value(value: str) -> bool:
    """Whether a value gives itself away: a vendor's prefix, a password in a URL, or random-looking text."""
    return bool(_PREFIXES.search(value)) or _url_has_secret(value) or looks_random(value)


def looks_random(text: str, *, least: int = 20) -> bool:
    """Whether text is one long run of key-like characters with high Shannon entropy (bits per character)."""
    text = text.strip()
    if len(text) < least or not re.fullmatch(r"[A-Za-z0-9_+/=.~-]+", text) or _UUID.match(text):
        return False
    if "/" in text and (len(text) < 40 or text.count("/") > 3 or text.startswith(("/", "./", "../", "~"))):
        return False  # a path
    digits = sum(c.isdigit() for c in text)
    letters = sum(c.isalpha() for c in text)
    if not digits or not letters or re.fullmatch(r"[a-z-]+(\.[a-z0-9-]+)*(\d{0,4})", text):
        return False
    entropy = -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())
    mixed = any(c.isupper() for c in text) and any(c.islower() for c in text)
    hexadecimal = bool(re.fullmatch(r"(?i)[0-9a-f]+", text)) and len(text) >= 24
    return hexadecimal or (entropy >= 3.5 and (mixed or digits >= len(text) // 5) and not _wordy(text))


def _wordy(text: str) -> bool:
    """Dotted or dashed plain words with the odd number, such as ``claude-sonnet-4-20250514`` or ``my.host.name.v2``."""
    parts = [p for p in re.split(r"[-_./=+~]", text) if p]
    return len(parts) > 1 and all(
        re.fullmatch(r"[A-Za-z]{1,14}|\d{1,8}|v?\d+[a-z]?|[a-z]{2,12}\d{1,2}", p) for p in parts
    )


def _url_has_secret(value: str) -> bool:
    if "://" not in value:
        return False
    return bool(url_secrets(value))


def url_secrets(url: str) -> list[str]:
    """The parts of a URL, as written in it, that are secrets: password, query values, random path segments."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return []
    found = []
    if password and not REFERENCE.search(password):
        found.append(password)
    elif parts.username and (_PREFIXES.search(parts.username) or looks_random(parts.username)):
        found.append(parts.username)
    for pair in parts.query.split("&"):
        name, _, raw = pair.partition("=")
        if raw and not REFERENCE.search(raw):
            decoded = parse_qsl(pair, keep_blank_values=True)
            text = decoded[0][1] if decoded else raw
            if secret_name(name) or _PREFIXES.search(text) or looks_random(text):
                found.append(raw)
    for segment in parts.path.split("/"):
        if segment and (_PREFIXES.search(segment) or looks_random(segment) or _UUID.match(segment)):
            found.append(segment)
    return found


@dataclass(frozen=True)
class Secret:
    """A secret found in a configuration. ``value`` never leaves the process except into the OS keyring."""

    reference: str
    """Name of the environment variable or keyring entry that stands for it."""

    where: str
    """Such as ``env GITHUB_TOKEN`` or ``header Authorization``."""

    value: str = field(repr=False)
    placeholder: bool = False
    """The file holds only a stand-in such as ``YOUR_API_KEY``: there is nothing to keep."""


_PLACEHOLDER = re.compile(
    r"""(?xi) <.*> | \.{3,} | x{3,} | \*+ | todo | changeme | change[-_ ]me
      | (?:your|my|insert|replace|enter|put|add)[-_ ].*(?:key|token|secret|password|here|value|id)"""
)


def is_placeholder(value: str) -> bool:
    """Whether a value is a stand-in from a README rather than a real secret."""
    return bool(_PLACEHOLDER.fullmatch(value.strip())) and not _PREFIXES.search(value)


AMBIENT = frozenset({
    "APPDATA", "DISPLAY", "EDITOR", "HOME", "HOST", "HOSTNAME", "LANG", "LOGNAME", "OS", "PATH", "PWD", "SHELL", "TEMP",
    "TERM", "TMP", "TMPDIR", "USER", "USERNAME", "USERPROFILE",
})  # fmt: skip
"""Variables that a machine has by itself: such a name never stands for a value of a configuration."""

_GENERIC_WORDS = _SECRET_WORDS | {
    "access", "admin", "all", "api", "app", "application", "authentication", "base", "basic", "client", "config",
    "connection", "conn", "custom", "database", "db", "default", "endpoint", "env", "file", "header", "headers", "host",
    "http", "https", "id", "login", "mcp", "my", "name", "no", "oauth", "personal", "port", "private", "proxy",
    "refresh", "remote", "secret", "server", "signing", "socks", "string", "uri", "url", "user", "username",
    "value", "x",
}  # fmt: skip


class Redactor:
    """Replaces secrets by references, each with a name of its own; equal values share a name.

    A secret becomes ``${NAME}``. ``taken`` are names that other servers refer to, ``values`` what names stand for here
    (by default the environment). A name that says nothing of its server (TOKEN, HTTP_PROXY), a taken one, or one that
    has another value already gets the server's name in front; not so names to ``renew``, whose value may be another
    from now on.
    """

    def __init__(
        self, *, taken: Iterable[str] = (), values: Mapping[str, str] | None = None, renew: Iterable[str] = ()
    ) -> None:
        self._here = os.environ if values is None else values
        self._renew = frozenset(renew)
        self._values: dict[str, str | None] = {n: self._here.get(n) for n in taken if n not in self._renew}
        self._own: frozenset[str] = frozenset()
        """What a shell of the entry at hand replaces itself: such a name can stand for nothing there."""
        self._depth = 0

    def clean(
        self, server: str, entry: dict[str, Any], files: Mapping[str, tuple[str, str]] | None = None
    ) -> tuple[dict[str, Any], list[Secret]]:
        """``entry`` (mcpServers form) with references for secrets, and what was taken out of it.

        ``files``: path and content of files, by the names that it refers to them by; each is a secret, whatever it is.
        """
        found: list[Secret] = []
        entry = {
            key: self._files(server, value, files or {}, found, named=key in ("env", "headers"))
            for key, value in entry.items()
        }
        entry = {key: self._defaults(server, value, found) for key, value in entry.items()}
        if isinstance(entry.get("env"), dict):
            entry["env"] = {k: self._named(server, str(k), v, "env", found) for k, v in entry["env"].items()}
        if isinstance(entry.get("headers"), dict):
            entry["headers"] = {k: self._named(server, str(k), v, "header", found) for k, v in entry["headers"].items()}
        if isinstance(entry.get("url"), str):
            entry["url"] = self._url(server, entry["url"], "url", "URL_SECRET", found)
        if isinstance(entry.get("args"), list):
            args, env = [str(a) for a in entry["args"]], entry.get("env")
            command = str(entry.get("command") or "")
            line = text_at(command, args)
            if isinstance(env, dict):
                args = [a if number == line else _with_own(a, env) for number, a in enumerate(args)]
            self._own = own_names(command, args, env or ())
            if line is None:
                entry["args"] = self._args(server, args, found)
            else:
                before, after = (self._args(server, part, found) for part in (args[:line], args[line + 1 :]))
                entry["args"] = [*before, self._line(server, args[line], found), *after]
            self._own = frozenset()
        return entry, found

    def _files(
        self, server: str, value: Any, files: Mapping[str, tuple[str, str]], found: list[Secret], *,
        named: bool = False, name: str = "",
    ) -> Any:  # fmt: skip
        """``value`` with free names for those of ``files``: that of the variable or header, if it is ``named``."""
        if isinstance(value, list):
            return [self._files(server, item, files, found) for item in value]
        if isinstance(value, dict):
            return {k: self._files(server, v, files, found, name=str(k) if named else "") for k, v in value.items()}
        for stand_in, (path, content) in files.items() if isinstance(value, str) else ():
            if f"${{{stand_in}}}" in value:
                reference = self._reference(server, name or stand_in, content)
                found.append(Secret(reference, f"what {path} holds", content))
                value = value.replace(f"${{{stand_in}}}", f"${{{reference}}}")
        return value

    def _defaults(self, server: str, value: Any, found: list[Secret]) -> Any:
        """``${NAME:-secret}`` loses its default: a default is a value like any other."""
        if isinstance(value, list):
            return [self._defaults(server, item, found) for item in value]
        if isinstance(value, dict):
            return {key: self._defaults(server, item, found) for key, item in value.items()}
        if not isinstance(value, str):
            return value

        def bare(match: re.Match[str]) -> str:
            name, default = match.group(1), match.group(2)
            if HARMLESS_VALUE.match(default) or not (secret_name(name) or secret_value(default)):
                return match.group()
            placeholder = is_placeholder(default)
            reference = name if placeholder else self._reference(server, name, default)
            found.append(Secret(reference, f"default of {name}", default, placeholder))
            return f"${{{reference}}}"

        return _DEFAULTED.sub(bare, value)

    def _named(self, server: str, name: str, value: Any, kind: str, found: list[Secret]) -> Any:
        if not isinstance(value, str):
            value = _scalar_text(value)
        where = f"{kind} {name}"
        if _only_references(value) or value.startswith("keyring:") or HARMLESS_VALUE.match(value.strip()):
            return value
        if kind == "header" and name.lower() in _HEADERS_KNOWN_HARMLESS:
            return value
        scheme = _SCHEMES.match(value)
        if scheme and (kind == "header" or secret_name(name) or _credential(value[scheme.end() :])):
            if _only_references(value[scheme.end() :]):
                return value
            return self._replace(server, name, value, value[scheme.end() :], where, found)
        if "://" in value and not _PREFIXES.search(value):
            hook = "webhook" in name.lower()
            if hook or url_secrets(value) or (secret_name(name) and not name.lower().endswith(("url", "uri"))):
                return self._replace(server, name, value, value, where, found)
            return self._inside(server, name, value, where, found)
        number = re.fullmatch(r"\d{1,6}(\.\d+)?", value.strip())
        plural = name.lower().endswith("tokens")
        if secret_name(name) and not (number and plural):
            return self._replace(server, name, value, value, where, found)
        if kind == "header" and looks_random(value, least=12):
            return self._replace(server, name, value, value, where, found)
        return self._inside(server, name, value, where, found)

    def _inside(self, server: str, name: str, value: str, where: str, found: list[Secret]) -> str:
        """``value`` with references for what is secret in it: in JSON, after a name, or all of it."""
        if (document := parsed(value)) is not None:
            before = len(found)
            self._depth += 1
            document = self._json(server, name, document, where, found)
            self._depth -= 1
            return json.dumps(document, ensure_ascii=False) if len(found) > before else value
        if secret_value(value) and "=" not in value:
            return self._replace(server, name, value, value, where, found)
        for own, secret in pairs(value):
            if secret_name(own) and not _only_references(secret) and not HARMLESS_VALUE.match(secret):
                value = self._replace(server, f"{name}_{own}", value, secret, f"{where}: {own}", found)
        return self._rest(server, name, value, where, found)

    def _rest(self, server: str, name: str, value: str, where: str, found: list[Secret]) -> str:
        """``value``, as a whole replaced where it gives away a secret still: better a reference too many."""
        from toolscout.server.secrecy.suspect import given as suspected

        bare = REFERENCE.sub("", value)
        if secret_value(bare) or (bare == value and suspected(bare)):
            return self._replace(server, name, value, value, where, found)
        return value

    def _json(self, server: str, name: str, value: Any, where: str, found: list[Secret]) -> Any:
        if isinstance(value, dict):
            return {key: self._json(server, key, item, where, found) for key, item in value.items()}
        if isinstance(value, list):
            return [self._json(server, name, item, where, found) for item in value]
        return self._named(server, name, value, f"{where}:", found) if isinstance(value, str) else value

    def _line(self, server: str, line: str, found: list[Secret]) -> str:
        """A shell's line with references for its secrets alone: all else is the shell's."""
        from toolscout.server.secrecy.suspect import may_be_secret

        for name, word in given(line):
            telling = may_be_secret(name, word) and secret_name(name) if name else secret_value(word)
            if not telling or REFERENCE.search(word):
                continue
            for secret in (not name and "://" in word and url_secrets(word)) or [word]:
                if secret in REFERENCE.sub("", line):
                    line = self._replace(server, f"{server}_{name or 'secret'}", line, secret, "shell line", found)
        return line

    def _url(self, server: str, url: str, where: str, name: str, found: list[Secret]) -> str:
        for number, secret in enumerate(sorted(set(url_secrets(url)), key=len, reverse=True)):
            suffix = f"_{number + 1}" if number else ""
            url = self._replace(server, name + suffix, url, secret, where, found)
        return self._rest(server, name, url, where, found)

    def _args(self, server: str, args: list[str], found: list[Secret]) -> list[str]:
        cleaned: list[str] = []
        flag = ""
        for arg in args:
            name, sep, value = arg.partition("=")
            previous, flag = flag, ""
            label = previous.lstrip("-") or "SECRET"
            if _FLAG.match(arg):
                flag = arg
                cleaned.append(arg)
            elif _only_references(arg):
                cleaned.append(arg)
            elif previous and secret_name(previous) and not HARMLESS_VALUE.match(arg):
                cleaned.append(self._replace(server, label, arg, arg, f"argument {previous}", found))
            elif parsed(arg) is not None:
                cleaned.append(self._inside(server, label, arg, "argument", found))
            elif "://" not in arg and (header := re.match(r"([A-Za-z][A-Za-z0-9-]*):\s*(?=\S)", arg)):
                # `--header "Authorization: Bearer ..."`, as mcp-remote takes it
                value = self._named(server, header.group(1), arg[header.end() :], "header", found)
                cleaned.append(arg[: header.end()] + value)
            elif name in ("-e", "--env") and "=" in value:
                cleaned.append(f"{name}={self._args(server, [value], found)[0]}")
            elif sep and re.fullmatch(r"-{0,2}[A-Za-z_][A-Za-z0-9_.-]*", name):
                cleaned.append(f"{name}={self._named(server, name.lstrip('-'), value, 'argument', found)}")
            elif "://" in arg:
                cleaned.append(self._url(server, arg, "argument", previous.lstrip("-") or "URL_SECRET", found))
            elif _PREFIXES.search(arg) or looks_random(arg, least=24):
                cleaned.append(self._replace(server, label, arg, arg, "argument", found))
            else:
                cleaned.append(self._inside(server, label, arg, "argument", found) if re.search(r"[=:]", arg) else arg)
        return cleaned

    def _replace(self, server: str, name: str, value: str, secret: str, where: str, found: list[Secret]) -> str:
        """``value`` with a reference in place of ``secret``."""
        kept = written(secret, self._depth)
        reference = self._reference(server, name, kept)
        found.append(Secret(reference, where, kept, is_placeholder(secret)))
        either = re.compile(f"{REFERENCE.pattern}|{re.escape(secret)}")  # never in the name of another
        return either.sub(lambda m: f"${{{reference}}}" if m[0] == secret else m[0], value)

    def _reference(self, server: str, name: str, value: str) -> str:
        own, prefixed = variable_name(name), variable_name(f"{server}_{name}")
        words = own.lower().split("_")
        generic = own in AMBIENT or all(word in _GENERIC_WORDS or word.isdigit() or not word for word in words)
        names = itertools.chain(
            [prefixed] if generic else [own, prefixed], (f"{prefixed}_{n}" for n in itertools.count(2))
        )
        reference = next(n for n in names if n not in self._own and self._free(n, value))
        self._values[reference] = value
        return reference

    def _free(self, name: str, value: str) -> bool:
        """Whether ``name`` can stand for ``value``: unused, or known to hold exactly that."""
        if name in self._values:
            return self._values[name] == value
        return name in self._renew or self._here.get(name, value) == value


def variable_name(text: str) -> str:
    """``text`` as the name of an environment variable: ``my-server_apiKey`` gives ``MY_SERVER_API_KEY``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    name = re.sub(r"[^A-Za-z0-9]+", "_", spaced).strip("_").upper() or "VALUE"
    return f"_{name}" if name[0].isdigit() else name


def _only_references(value: str) -> bool:
    """Whether nothing but references (and a scheme word such as ``Bearer``) is in the value."""
    if not REFERENCE.search(value):
        return False
    rest = REFERENCE.sub("", _SCHEMES.sub("", value))
    return not re.search(r"[A-Za-z0-9]{8,}", rest) and not secret_value(rest)


def _credential(text: str) -> bool:
    """Whether what stands after ``Bearer`` is a key rather than a word."""
    return re.fullmatch(r"\S{8,}", text) is not None and (len(text) >= 16 or any(c.isdigit() for c in text))


def _with_own(text: str, env: Mapping[str, Any]) -> str:
    """``text`` with the entry's own variables filled in: a client's server would find them in its environment."""
    return _NAMED.sub(lambda m: str(env.get(m[1], m[0])), text)


def _scalar_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


_USER = re.compile(r"(://[^/:@?#]*:)(?!\d+/)[^@\s]*@")
"""A password as SQLAlchemy takes it: also with the slash at which urllib ends it."""


def mask_url(url: str) -> str:
    """A URL fit for a terminal: dots for what is secret in it. Other text as it is."""
    if "://" not in url:
        return url
    for secret in url_secrets(url):
        url = re.sub(rf"(?<=[:/=]){re.escape(secret)}(?=[@/&?#]|$)", "••••", url)
    return _USER.sub(r"\1••••@", url)


_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|\'([^\']*)\'')


def mask_line(line: str) -> str:
    """A line of a configuration file fit for a terminal: quoted values that look like secrets become dots."""
    strings = [m.group(1) or m.group(2) or "" for m in _QUOTED.finditer(line)]
    name = re.match(r"[+-]?\s*(?:- )?([A-Za-z0-9_.-]+)\s*[=:]", line)
    names = [strings[0]] if len(strings) > 1 else []
    names += [name.group(1)] if name else []
    hidden = any(secret_name(n) for n in names)

    def masked(match: re.Match[str]) -> str:
        text = match.group(1) or match.group(2) or ""
        is_value = not names or text != names[0] or match.start() > line.find(text) + len(text)
        before = _NAME_BEFORE.search(line, max(0, match.start() - 100), match.start())
        telling = hidden or (before is not None and secret_name(before[1]))
        if is_value and text and not REFERENCE.fullmatch(text) and (telling or secret_value(text)):
            return f"{match.group()[0]}••••{match.group()[-1]}"
        return match.group()

    return _mask_plain(_QUOTED.sub(masked, line))


_NAME_BEFORE = re.compile(r"([A-Za-z0-9_.-]+)[\"']?\s*[:=]\s*$")
_PLAIN = re.compile(r"""(?<![\w.])([A-Za-z_][\w.-]{0,80})(?:["']\s*:\s*|\s*:\s+|["']?\s*=\s*)(?=[^\s"'\[{|>•])""")
_FLOW = re.compile(r"[{\[]")
_IN_FLOW, _TO_THE_END = re.compile(r"[^,}\]]*"), re.compile(r".*?(?=,?$)")


def _mask_plain(line: str) -> str:
    """``line`` with dots for unquoted values (of YAML, numbers) whose name is a secret's."""
    flow = _FLOW.search(line)
    quoted = iter([*(m.span() for m in _QUOTED.finditer(line)), (len(line) + 1, 0)])
    first, end = next(quoted)
    masked, done = "", 0
    for match in _PLAIN.finditer(line):
        start = match.end()
        while end and end <= start:
            first, end = next(quoted)
        if start < done or first < start or not secret_name(match[1]):
            continue
        found = (_IN_FLOW if flow and flow.start() < start else _TO_THE_END).match(line, start)
        value = found[0].rstrip() if found else ""
        number = match[1].lower().endswith("tokens") and value.isdigit()
        if not (number or HARMLESS_VALUE.match(value) or REFERENCE.fullmatch(value)):
            masked, done = f"{masked}{line[done:start]}••••", start + len(value)
    return masked + line[done:]
