"""A small acceptor for the part of GBNF that Toolscout writes: an oracle apart from llama.cpp and from our code."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TOKEN = re.compile(r'\s*("(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{\d+,?\d*\}|[A-Za-z][A-Za-z0-9-]*|[()|?*+])')


def accepts(grammar: str, text: str) -> bool:
    """True if ``root`` matches the whole text."""
    rules = {}
    for line in grammar.splitlines():
        name, _, body = line.partition(" ::= ")
        rules[name] = _Parser(body).alternatives()
    return len(text) in _match(rules["root"], text, {0}, rules)


class _Parser:
    def __init__(self, body: str) -> None:
        self.tokens = _TOKEN.findall(body)
        assert "".join(self.tokens) == re.sub(r"\s+(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", "", body) or self.tokens
        self.at = 0

    def alternatives(self) -> tuple:
        found = [self.sequence()]
        while self.at < len(self.tokens) and self.tokens[self.at] == "|":
            self.at += 1
            found.append(self.sequence())
        return ("alt", found)

    def sequence(self) -> tuple:
        items = []
        while self.at < len(self.tokens) and self.tokens[self.at] not in "|)":
            items.append(self.repeated(self.atom()))
        return ("seq", items)

    def repeated(self, atom: tuple) -> tuple:
        if self.at < len(self.tokens):
            token = self.tokens[self.at]
            bounds = {"?": (0, 1), "*": (0, 10**9), "+": (1, 10**9)}.get(token)
            if token.startswith("{"):
                low, _, high = token[1:-1].partition(",")
                bounds = (int(low), int(high or low))
            if bounds:
                self.at += 1
                return ("rep", atom, *bounds)
        return atom

    def atom(self) -> tuple:
        token = self.tokens[self.at]
        self.at += 1
        if token == "(":
            inner = self.alternatives()
            assert self.tokens[self.at] == ")"
            self.at += 1
            return inner
        if token.startswith('"'):
            return ("lit", re.sub(r"\\(x[0-9A-F]{2}|.)", _unescape, token[1:-1]))
        if token.startswith("["):
            return ("set", re.compile(token))
        return ("ref", token)


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code[1:], 16)) if len(code) == 3 else code


def _match(node: tuple, text: str, starts: Iterable[int], rules: dict) -> set[int]:
    kind = node[0]
    if kind == "lit":
        return {s + len(node[1]) for s in starts if text.startswith(node[1], s)}
    if kind == "set":
        return {s + 1 for s in starts if s < len(text) and node[1].match(text[s])}
    if kind == "ref":
        return _match(rules[node[1]], text, starts, rules) if starts else set()
    if kind == "alt":
        return set().union(*(_match(option, text, starts, rules) for option in node[1]))
    if kind == "seq":
        ends = set(starts)
        for item in node[1]:
            ends = _match(item, text, ends, rules) if ends else ends
        return ends
    _, inner, low, high = node
    ends = set(starts)
    found = set(ends) if low == 0 else set()
    for count in range(1, min(high, len(text) + 1) + 1):
        ends = _match(inner, text, ends, rules)
        if not ends:
            break
        if count >= low:
            found |= ends
    return found
