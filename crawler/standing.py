"""Which of several copies of a server is the one that the others are copies of, as far as names and links tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import urlsplit

from toolscout.records import Server, ServerState

_HOSTS = frozenset({"github.com", "gitlab.com", "codeberg.org", "bitbucket.org"})
_GENERIC = re.compile(r"\b(?:mcp|server|servers|model|context|protocol|ai|dev|io|tools?|js|node|py|the|org)\b")
_PERSONAL = re.compile(r"^(?:@[^/]*\d{2,}/|(?:@[^/]+/)?my-)|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-")
_ALIKE = 3
"""Letters that a scope has in common with a package's name where it is the product's own, not a person's."""


def first_of(
    group: Sequence[Server],
    incumbent: Callable[[str], bool] = lambda _: False,
    published: Mapping[str, str] | None = None,
) -> list[Server]:
    """A group of copies, the one that stands for them first.

    Args:
        incumbent: whether a server id is known elsewhere already: it stays, while it can be had.
        published: when a server's version was published (ISO 8601), by id, as far as known.
    """
    if len(group) == 1:
        return list(group)
    bases = {server.server_id: _base(_package(server)) for server in group}
    dates = published or {}

    def rank(server: Server) -> tuple[Any, ...]:
        package = _package(server)
        others = [(_package(s), bases[s.server_id]) for s in group if s is not server]
        return (
            server.state is ServerState.UNAVAILABLE,
            not incumbent(server.server_id),
            server.state is ServerState.NEEDS_KEY,
            -len(server.sources),
            -(server.popularity or 0.0),
            server.install.package is None,
            _links_elsewhere(package, server.homepage),
            bool(_PERSONAL.search(package)) or _renamed(package, others),
            not _scope_is_the_products(package),
            dates.get(server.server_id, "9"),
            len(package),
            server.server_id,
        )

    return sorted(group, key=rank)


def _package(server: Server) -> str:
    return (server.install.package or server.server_id).lower()


def _base(package: str) -> str:
    return package.rpartition("/")[2].replace("_", "-")


def _links_elsewhere(package: str, homepage: str | None) -> bool:
    """Whether its homepage is the repository of another's: neither its owner is the scope, nor is it named like it."""
    parts = urlsplit(homepage or "")
    path = parts.path.strip("/").split("/")
    if (parts.hostname or "") not in _HOSTS or len(path) < 2 or not path[1]:
        return False
    scope, _, name = package.rpartition("/")
    owner, repository = _letters(path[0]), _letters(path[1].removesuffix(".git"))
    if scope:
        return not _within(owner, _letters(scope))
    return not (_within(repository, _letters(name)) or owner in _letters(name))


def _renamed(package: str, others: Sequence[tuple[str, str]]) -> bool:
    """Whether it is another's name under a scope, or with something added."""
    base = _base(package)
    scoped = "/" in package
    return any(
        (other == base and scoped and "/" not in whole) or (other != base and len(other) > _ALIKE and other in base)
        for whole, other in others
    )


def _scope_is_the_products(package: str) -> bool:
    scope, _, name = package.rpartition("/")
    one, two = _letters(_GENERIC.sub("", scope)), _letters(_GENERIC.sub("", name))
    return SequenceMatcher(None, one, two, autojunk=False).find_longest_match().size >= _ALIKE


def _within(one: str, two: str) -> bool:
    return one == two or (min(len(one), len(two)) >= _ALIKE and (one in two or two in one))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
