"""What a pack keeps of a server and its tools: facts, never a sentence that somebody else wrote.

A name, an id, a type, a coordinate, a number is a fact. Descriptions, default texts and examples stay out; the lines in
words are Toolscout's own: one of a server, written beforehand, and one of a tool, made of its name when it is read. A
server and its tools are one JSON array each, packed together with zlib and a dictionary that all share.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from toolscout.index.document import name_words
from toolscout.records import EnvVar, Install, JsonObject, Server, ServerState, Source, Tool, Transport
from toolscout.signature import Parameter, parameters

Bytes = npt.NDArray[np.uint8]

MAX_NAME = 80
MAX_PARAMETERS = 40
MAX_VALUES = 12
MAX_VALUE = 32
"""Limits of what counts as a name, and of what is kept of an enumeration."""

_DICTIONARY = 32_768
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_CODES = {name: "sinbaoz"[i] for i, name in enumerate(_TYPES)}
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_LICENSE = re.compile(r"[A-Za-z0-9][\w.+ ()/-]{0,63}")
_EXPRESSION = re.compile(r"^\(?[\w.+-]+\)?( (?:OR|AND|WITH) \(?[\w.+-]+\)?)+$")
"""An SPDX expression, such as ``MIT OR Apache-2.0 OR BSD-3-Clause``."""

_LONGEST_ADDRESS = 120
_ADDRESS = re.compile(r"https://[a-z0-9-]+(?:\.[a-z0-9-]+)+(?:/[\w.~@%+-]*)*", re.ASCII)
_GITHUB = re.compile(r"github\.com[/:]([\w.-]+)/", re.IGNORECASE)
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[^\s/]*\w[^\s/]*")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"
)
_MANY_WORDS = 6
_MANY_UNSPACED = 16
_DEEPEST = 4


def is_name(text: str) -> bool:
    """Whether a text is short enough to be a name: no line break, at most `MAX_NAME` characters and five words; of
    scripts without spaces between words fewer than `_MANY_UNSPACED` letters."""
    if not 0 < len(text) <= MAX_NAME or len(text.splitlines()) > 1:
        return False
    return len(_WORD.findall(text)) < _MANY_WORDS and len(_UNSPACED.findall(text)) < _MANY_UNSPACED


def publisher_of(server: Server) -> str:
    """Owner of the server's repository, else the scope of its package, else nothing."""
    found = _GITHUB.search(server.homepage or "")
    if found:
        return found.group(1)
    package = server.install.package or ""
    return package[1:].partition("/")[0] if package.startswith("@") else ""


def web_address(text: str | None) -> str:
    """An address of the web as far as it is a fact: https, host and path; nothing where it is none."""
    try:
        parts = urlsplit(text or "")
        plain = parts.username is None and parts.port is None
    except ValueError:
        return ""
    address = f"https://{parts.hostname}{parts.path.rstrip('/')}"
    fits = _ADDRESS.fullmatch(address) and len(address) <= _LONGEST_ADDRESS
    return address if parts.scheme == "https" and plain and fits else ""


def pack_server(server: Server, line: str) -> list[Any]:
    """The facts of a server as a JSON array; `read_server` reads it. ``line`` says what it is for, in our words."""
    install = server.install
    title = next((t for t in (server.title, server.name) if t and is_name(t)), server.server_id.rsplit("/", 1)[-1])
    license_id = server.license if server.license and _LICENSE.fullmatch(server.license) else ""
    publisher = server.publisher if server.publisher and is_name(server.publisher) else publisher_of(server)
    values = [
        server.server_id,
        title,
        server.category if server.category and is_name(server.category) else "",
        [install.registry, install.package, install.version, install.command, install.args, install.url, install.auth],
        [[e.name, int(e.required), int(e.secret)] for e in install.env if is_name(e.name)],
        str(server.transport),
        str(server.state),
        license_id if is_name(license_id) or _EXPRESSION.search(license_id) else "",
        (server.checked_at or "")[:10],
        line,
        publisher,
        int(server.official),
        int(server.popularity or 0),
        (server.published or "")[:10],
        (server.updated or "")[:10],
        web_address(server.homepage),
        server.looks_like or "",
    ]
    while values and not values[-1]:
        values.pop()
    return values


def read_server(values: Sequence[Any]) -> Server:
    """A server's record from what `pack_server` made; its description is our line."""
    full = [*values, *[None] * 17][:17]
    (server_id, title, category, install, env, transport, state, license_id, checked, line, publisher, official,
     downloads, published, updated, homepage, looks_like) = full  # fmt: skip
    registry, package, version, command, args, url, auth = install
    return Server(
        server_id=server_id,
        name=title,
        description=line or "",
        category=category or None,
        sources=[Source(marketplace=registry, id=package or server_id)],
        transport=Transport(transport),
        install=Install(
            registry=registry, package=package, version=version, command=command, args=args or [], url=url,
            auth=auth,
            env=[EnvVar(name=name, required=bool(required), secret=bool(secret)) for name, required, secret in env],
        ),
        version=version,
        license=license_id or None,
        homepage=homepage or None,
        publisher=publisher or None,
        official=bool(official),
        published=published or None,
        updated=updated or None,
        looks_like=looks_like or None,
        popularity=float(downloads) if downloads else None,
        state=ServerState(state),
        checked_at=checked or None,
    )  # fmt: skip


def pack_tool(tool: Tool) -> list[Any]:
    """The facts of a tool as a JSON array; `read_tool` reads it."""
    hints = tool.annotations or {}
    flags = [int(bool(hints[name])) if name in hints else None for name in _HINTS]
    given = [_pack_parameter(p) for p in parameters(tool.input_schema)[:MAX_PARAMETERS] if is_name(p.name)]
    values: list[Any] = [tool.name, given, flags]
    if all(flag is None for flag in flags):
        values.pop()
    return values


def read_tool(server: Server, values: Sequence[Any]) -> Tool:
    """A tool's record from what `pack_tool` made: its schema has names and types, its description is our own line."""
    name, given, *rest = values
    properties: dict[str, JsonObject] = {}
    required = []
    for text, *values_of in given:
        parameter, code = text.rsplit(":", 1)
        if code.endswith("!"):
            code = code[:-1]
            required.append(parameter)
        properties[parameter] = _schema(code, values_of[0] if values_of else None)
    schema: JsonObject = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    hints = {hint: bool(flag) for hint, flag in zip(_HINTS, rest[0], strict=True) if flag is not None} if rest else None
    return Tool(
        tool_id=f"{server.server_id}/{name}",
        server_id=server.server_id,
        name=name,
        description=describe(name, server),
        input_schema=schema,
        annotations=hints,
    )


def describe(name: str, server: Server) -> str:
    """A tool in a line of our own: its name in words, and what its server is for."""
    words = _SPACE.sub(" ", name_words(name)).strip()
    said = f"{words[:1].upper()}{words[1:]} ({server.name})."
    return f"{said} {server.description}" if server.description else said


def _pack_parameter(parameter: Parameter) -> list[Any]:
    """``["name:type"]``, with ``!`` where it is required, and the allowed values where they are few and short."""
    packed: list[Any] = [f"{parameter.name}:{_code(parameter.schema)}{'!' if parameter.required else ''}"]
    values = parameter.schema.get("enum")
    if isinstance(values, list):
        short = [v for v in values if isinstance(v, (int, float)) or (isinstance(v, str) and is_name(v))]
        if 0 < len(short) == len(values) <= MAX_VALUES and all(len(str(v)) <= MAX_VALUE for v in values):
            packed.append(short)
    return packed


def _code(schema: Mapping[str, Any], deep: int = _DEEPEST) -> str:
    """The types of a schema, a letter each; after ``a`` of an array, in upper case, its items'. Empty where it does
    not say."""
    kinds = schema.get("type")
    if kinds is None and deep:
        options: list[Any] = next((schema[k] for k in ("anyOf", "oneOf") if isinstance(schema.get(k), list)), [])
        codes = "".join(_code(o, deep - 1) for o in options if isinstance(o, Mapping))
    else:
        listed = kinds if isinstance(kinds, list) else [kinds]
        codes = "".join(_CODES.get(k, "") for k in listed if isinstance(k, str))
        items = schema.get("items")
        if "a" in codes and isinstance(items, Mapping) and isinstance(items.get("type"), str):
            codes += _CODES.get(items["type"], "").upper()
    of_items = "".join(dict.fromkeys(c for c in codes if c.isupper()))
    others = "".join(dict.fromkeys(c for c in codes if c.islower() and c != "a"))
    array = ("a" + (of_items if len(of_items) == 1 else "")) if "a" in codes else ""
    return others[:4] + array


def _schema(code: str, values: list[Any] | None) -> JsonObject:
    names = {letter: name for name, letter in _CODES.items()}
    if values is not None:
        return {"enum": values}
    kinds = [names[letter] for letter in code if letter.islower()]
    schema: JsonObject = {} if not kinds else {"type": kinds[0] if len(kinds) == 1 else kinds}
    if code[-1:].isupper():
        schema["items"] = {"type": names[code[-1].lower()]}
    elif len(code) == 2 and code[0] == "a" and code[1] != "z":  # as packs before had it
        return {"type": "array", "items": {"type": names[code[1]]}}
    return schema


class Packer:
    """Packs JSON arrays with a dictionary made of some of them."""

    def __init__(self, dictionary: bytes) -> None:
        self.dictionary = dictionary

    @staticmethod
    def trained(texts: Sequence[str]) -> Packer:
        """A dictionary of texts drawn evenly, `_DICTIONARY` bytes of them: the window of zlib."""
        piece = 512
        step = max(1, len(texts) * piece // _DICTIONARY)
        return Packer("".join(text[:piece] for text in texts[::step]).encode("utf-8", "surrogatepass")[-_DICTIONARY:])

    def pack(self, text: str) -> bytes:
        """Compress a text."""
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=self.dictionary)
        return deflate.compress(text.encode("utf-8", "surrogatepass")) + deflate.flush()

    def unpack(self, data: bytes) -> str:
        """The text again."""
        return zlib.decompressobj(-15, zdict=self.dictionary).decompress(data).decode("utf-8", "surrogatepass")


def pack_all(entries: Iterable[list[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Arrays ``data``, ``offsets`` and ``dictionary`` of JSON arrays; `PackedRecords` reads them."""
    texts = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries]
    packer = Packer.trained(texts)
    pieces = [packer.pack(text) for text in texts]
    return {
        "data": np.frombuffer(b"".join(pieces), dtype=np.uint8),
        "offsets": np.concatenate([[0], np.cumsum([len(p) for p in pieces])]).astype(np.int64),
        "dictionary": np.frombuffer(packer.dictionary, dtype=np.uint8),
    }


class PackedRecords:
    """JSON arrays that `pack_all` packed, by number."""

    def __init__(self, data: Bytes, offsets: npt.NDArray[np.int64], dictionary: Bytes) -> None:
        self._data, self._offsets, self._packer = data, offsets, Packer(dictionary.tobytes())

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, i: int) -> list[Any]:
        data = self._data[self._offsets[i] : self._offsets[i + 1]].tobytes()
        found: list[Any] = json.loads(self._packer.unpack(data))
        return found
