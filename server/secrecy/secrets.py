"""References to secrets: resolved only when an upstream starts, never stored, logged or shown.

A configuration value may hold ``${NAME}`` (an environment variable, or else a kept secret: `toolscout.secret_store`),
``${env:NAME}``, ``${NAME:-default}``, ``${keyring:NAME}`` (a kept secret alone), or be ``keyring:NAME`` as a whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from toolscout.errors import NotAllowed

REFERENCE = re.compile(r"\$\{(?:(?P<kind>env|keyring):)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)(?::-(?P<default>[^}]*))?\}")
_WHOLE_KEYRING = re.compile(r"keyring:(?P<name>[^\s]+)")
_SECRET_NAME = re.compile(r"key|token|secret|passw|pwd|auth|credential|cookie|session|dsn", re.IGNORECASE)

_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
_SHORTEST_TELLING = 12


class MissingSecret(NotAllowed):
    """An upstream's configuration refers to variables that have no value. ``names`` lists them."""

    def __init__(self, upstream: str, names: list[str]) -> None:
        self.names = names
        many = len(names) > 1
        listed = ", ".join(names)
        super().__init__(
            f"The server '{upstream}' needs {listed}, which {'have' if many else 'has'} no value here.",
            hint=f"Keep {'them' if many else 'it'} here: toolscout secret set {' '.join(bare_names(names))}",
        )


class Resolver:
    """Resolves references for one start of one upstream and remembers which values must stay hidden.

    ``missing`` collects the names without a value, so that one error can list them all.

    Args:
        values: what names stand for, by default the environment.
        kept: gives a kept secret, or None (`SecretStore.find`).
    """

    def __init__(
        self, values: Mapping[str, str] | None = None, kept: Callable[[str], str | None] = lambda name: None
    ) -> None:
        self._values = os.environ if values is None else values
        self._kept = kept
        self._left: Collection[str] = ()
        self.missing: list[str] = []
        self.secrets: set[str] = set()

    def resolve(self, value: str, *, field: str = "") -> str:
        """``value`` with its references replaced. ``field`` is the variable or header that holds it."""
        whole = _WHOLE_KEYRING.fullmatch(value)
        resolved = self._keyring(whole["name"]) if whole else REFERENCE.sub(lambda match: self._reference(match), value)
        if field and looks_secret(field):
            if _may_be_secret(field, resolved):
                self._hide(resolved)
        else:
            self.secrets.update(_telling(resolved))
        return resolved

    def resolve_args(self, args: Iterable[str], left: Collection[str] = ()) -> tuple[str, ...]:
        """The arguments of a command line resolved; a flag names the one after it (``--password X``). ``left``: names
        that a shell among them replaces itself."""
        resolved, flag = list[str](), ""
        self._left = left
        for arg in args:
            resolved.append(self.resolve(arg, field="" if arg.startswith("-") else flag))
            flag = arg if _FLAG.fullmatch(arg) and _secret_name(arg) else ""
        self._left = ()
        return tuple(resolved)

    def resolve_all(self, values: Mapping[str, str]) -> dict[str, str]:
        """Every value of a mapping resolved; keys name the fields."""
        return {name: self.resolve(value, field=name) for name, value in values.items()}

    def check(self, upstream: str) -> None:
        """Raise :class:`MissingSecret` if a reference had no value."""
        if self.missing:
            raise MissingSecret(upstream, list(dict.fromkeys(self.missing)))

    def _reference(self, match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match["kind"] == "keyring":
            return self._keyring(name)
        if name in self._left and match["kind"] is None:
            return match[0]
        value = self._values.get(name)
        # As in a shell, ``:-`` also covers a variable that is set but empty.
        if default is not None and not value:
            return default
        if value is None:
            self.missing.append(name)
            return ""
        self._hide(value)
        return value

    def _keyring(self, name: str) -> str:
        value = self._kept(name)
        if value is None:
            self.missing.append(f"keyring:{name}")
            return ""
        self._hide(value)
        return value

    def _hide(self, value: str) -> None:
        self.secrets.add(value)
        scheme, _, credential = value.partition(" ")
        if scheme.lower() in {"bearer", "basic", "token"} and credential:
            self.secrets.add(credential)


def _telling(value: str) -> list[str]:
    """What is a secret in a value that was written out: a password in a URL, in a DSN, in JSON or after its option, a
    vendor's key."""
    from toolscout.server.clients.redact import secret_value, url_secrets
    from toolscout.server.secrecy.hiding import assigned
    from toolscout.server.secrecy.suspect import given

    found = [*assigned(value), *given(value)]
    for word in value.split():
        if "://" in word:
            found += url_secrets(word)
        else:
            found += [w for w in word.split("=") if len(w) >= _SHORTEST_TELLING and secret_value(w)]
    return found


def references(values: Iterable[str], *, defaulted: bool = False) -> list[str]:
    """Names that the values refer to, in order, without the ones that have a default unless ``defaulted``."""
    found: dict[str, None] = {}
    for value in values:
        if whole := _WHOLE_KEYRING.fullmatch(value):
            found[f"keyring:{whole['name']}"] = None
            continue
        for match in REFERENCE.finditer(value):
            if defaulted or match["default"] is None:
                found[f"keyring:{match['name']}" if match["kind"] == "keyring" else match["name"]] = None
    return list(found)


def bare_names(names: Iterable[str]) -> list[str]:
    """References as the names that their secrets are kept under, each once."""
    return list(dict.fromkeys(name.removeprefix("keyring:") for name in names))


def looks_secret(name: str) -> bool:
    """Whether a variable's or header's name says that its value is a secret."""
    return bool(_SECRET_NAME.search(name)) or _secret_name(name)


# What tells secrets apart belongs to the clients' configurations, which are read with this module's help.
def _secret_name(name: str) -> bool:
    from toolscout.server.clients.redact import secret_name

    return secret_name(name)


def _may_be_secret(name: str, value: str) -> bool:
    from toolscout.server.secrecy.suspect import may_be_secret

    return may_be_secret(name, value)
