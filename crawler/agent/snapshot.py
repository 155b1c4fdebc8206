"""Accessibility snapshots: what a screen reader would say of a page, as Playwright prints it, read into a tree.

They are what the agent works on instead of HTML: roles and names outlive a redesign that breaks every selector.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

_KEY = re.compile(r'^([\w-]+)(?:\s+("(?:[^"\\]|\\.)*"|/.*/))?\s*((?:\[[^\]]*\]\s*)*)$', re.S)
PRESSABLE = frozenset({"button", "tab", "menuitem", "radio", "option", "switch", "checkbox"})
_LANDMARKS = frozenset({"navigation", "banner", "contentinfo", "main", "complementary", "search", "dialog", "tablist"})


@dataclass
class Node:
    """One node. ``ref`` addresses the element in the browser; ``text`` is its own text, ``name`` what it is called."""

    role: str
    name: str = ""
    ref: str = ""
    url: str = ""
    text: str = ""
    attributes: tuple[str, ...] = ()
    children: list[Node] = field(default_factory=list)
    parent: Node | None = field(default=None, repr=False, compare=False)

    def walk(self) -> Iterator[Node]:
        """This node and all below it, in the order of the page."""
        yield self
        for child in self.children:
            yield from child.walk()

    def said(self) -> str:
        """Its name, else all text within."""
        return self.name or " ".join(" ".join(_texts(self)).split())

    def path(self) -> tuple[str, ...]:
        """Roles from the page down to its parent."""
        roles: list[str] = []
        node = self.parent
        while node is not None:
            roles.append(node.role)
            node = node.parent
        return tuple(reversed(roles))

    def within(self, *roles: str) -> bool:
        """Whether it stands in an element of one of these roles."""
        return any(role in roles for role in self.path())


@dataclass(frozen=True)
class Link:
    """A link of a page. ``url`` is absolute, without fragment; ``title`` its heading or first words, ``text`` all."""

    ref: str
    url: str
    title: str
    text: str


@dataclass(frozen=True)
class Group:
    """Links that look alike: the same place in the page's structure, addresses of the same form."""

    place: str
    prefix: str
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Control:
    """Something that can be pressed: a button, a tab, or a link that moves on."""

    ref: str
    role: str
    name: str
    url: str = ""
    disabled: bool = False
    selected: bool = False


def parse(snapshot: str) -> Node:
    """A snapshot as Playwright prints it (a list in YAML). What can't be read is left out."""
    import yaml  # type: ignore[import-untyped]

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    root = Node("page")
    try:
        items = yaml.load(snapshot, Loader=loader)
    except yaml.YAMLError:
        items = None
    for item in items if isinstance(items, list) else []:
        _add(root, item)
    return root


def links(root: Node, base: str) -> list[Link]:
    """Every link with an address on the web, in order, the same address once per place."""
    found = []
    for node in root.walk():
        if node.role == "link" and node.url:
            url = urljoin(base, node.url).split("#", 1)[0]
            if urlsplit(url).scheme in ("http", "https"):
                heading = next((n.said() for n in node.walk() if n.role in ("heading", "strong") and n.said()), "")
                said = node.said()
                title = heading or (_card_title(node) or said)
                found.append(Link(node.ref, url, title[:200].strip(), said[:1000]))
    return found


def groups(root: Node, base: str) -> list[Group]:
    """The links in groups of alike ones, the largest first."""
    by_ref = {link.ref: link for link in links(root, base)}
    host = urlsplit(base).netloc
    collected: dict[tuple[str, int, bool], dict[str, Link]] = {}
    for node in root.walk():
        link = by_ref.get(node.ref) if node.role == "link" and node.ref else None
        if link is None:
            continue
        parts = urlsplit(link.url)
        depth = len([p for p in parts.path.split("/") if p])
        key = (_place(node), depth, parts.netloc == host)
        collected.setdefault(key, {}).setdefault(link.url, link)
    split: list[Group] = []
    for (place, _, _), by_url in collected.items():
        split += _by_prefix(place, list(by_url.values()))
    return sorted(split, key=lambda g: -len(g.links))


def controls(root: Node, base: str) -> list[Control]:
    """What can be pressed, and the links that lead along the same page (its pages, its tabs)."""
    here = urlsplit(base)
    found: list[Control] = []
    for node in root.walk():
        name = node.said()[:80]
        off, on = "disabled" in node.attributes, "selected" in node.attributes
        if node.role in PRESSABLE:
            found.append(Control(node.ref, node.role, name, "", off, on))
        elif node.role == "link" and node.url:
            parts = urlsplit(urljoin(base, node.url))
            if (
                (parts.netloc == here.netloc and parts.path.rstrip("/") == here.path.rstrip("/"))
                or node.within("tablist")
                or re.search(r"^(?:next|›|»|→)|next page", name, re.I)
            ):
                found.append(Control(node.ref, "link", name, parts.geturl(), off, on))
    return found


def outline(root: Node, limit: int = 1500) -> str:
    """The page in few words for a model: landmarks and headings, indented, at most so many characters."""
    lines: list[str] = []
    for node in root.walk():
        if node.role == "heading" or node.role in _LANDMARKS:
            depth = sum(1 for role in node.path() if role in _LANDMARKS)
            label = node.name or (node.said()[:60] if node.role == "heading" else "")
            lines.append(f"{'  ' * depth}{node.role}{f': {label}' if label else ''}")
    text = "\n".join(lines)
    return text if len(text) <= limit else text[:limit].rsplit("\n", 1)[0] + "\n..."


def _add(parent: Node, item: Any) -> None:
    if isinstance(item, str):
        _node(parent, item)
        return
    if not isinstance(item, dict):
        return
    for key, value in item.items():
        if key == "text":
            parent.children.append(Node("text", text=str(value), parent=parent))
        elif str(key).startswith("/"):
            if key == "/url":
                parent.url = str(value)
        else:
            node = _node(parent, str(key))
            if node is None:
                continue
            if isinstance(value, str):
                node.text = value
            elif isinstance(value, list):
                for inner in value:
                    _add(node, inner)


def _node(parent: Node, key: str) -> Node | None:
    match = _KEY.match(key.strip())
    if match is None:
        return None
    name = match[2] or ""
    if name.startswith('"'):
        try:
            name = json.loads(name)
        except ValueError:
            name = name.strip('"')
    marks = re.findall(r"\[([^\]]*)\]", match[3])
    ref = next((m[4:] for m in marks if m.startswith("ref=")), "")
    other = tuple(m for m in marks if not m.startswith(("ref=", "cursor=")))
    node = Node(match[1], name, ref, attributes=other, parent=parent)
    parent.children.append(node)
    return node


def _texts(node: Node) -> Iterator[str]:
    if node.text:
        yield node.text
    for child in node.children:
        if child.role != "img":
            if child.name and not child.text and not child.children:
                yield child.name
            yield from _texts(child)


def _card_title(node: Node) -> str:
    """The first words of a card, where it has parts."""
    if not node.children:
        return ""
    return next((t.strip() for t in _texts(node) if t.strip()), "")


def _place(node: Node) -> str:
    """Where a link stands, by roles that carry meaning: anonymous boxes come and go from card to card."""
    return " > ".join([*(r for r in node.path() if r not in ("page", "generic", "paragraph", "group")), "link"])


def _by_prefix(place: str, found: list[Link]) -> list[Group]:
    """Split by the first part of the path where it repeats (``/server/...``, ``/tag/...``), else one group."""
    firsts = Counter(_first(link.url) for link in found)
    common = {f for f, n in firsts.items() if f and (n >= max(2, len(found) // 10) or len(firsts) == 1)}
    out: dict[str, list[Link]] = {}
    for link in found:
        first = _first(link.url)
        out.setdefault(first if first in common else "", []).append(link)
    return [Group(place, f"/{prefix}/" if prefix else "/", tuple(inner)) for prefix, inner in out.items()]


def _first(url: str) -> str:
    parts = [p for p in urlsplit(url).path.split("/") if p]
    return parts[0] if len(parts) > 1 else ""
