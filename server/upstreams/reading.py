"""What an upstream sends, as JSON that every client can parse. All of it passes here, whatever the transport.

Half an emoji, a number beyond every float, a thousand brackets: whoever writes such a thing on fails, and with it
the connection to the client.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from pydantic_core import from_json

from toolscout.jsonl import well_formed

_DEEPEST = 190
"""Levels that are passed on: many readers take no more than 200."""
_BEYOND_FLOATS = re.compile(rb"[eE]\+?\d{3}|\d{200}")
"""What every number has that is beyond: with less than both, it is below 1e299."""
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(
    rb"%b%b" % (_HIGH, _LOW)  # a whole pair stays
    + rb"|(?P<cut>%b(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?$|\\(?:u[0-9a-fA-F]{0,3})?$|\xed[\xa0-\xbf]?$)"
    % _HIGH
    + rb"|(?P<half>%b|%b|\xed[\xa0-\xbf][\x80-\xbf])" % (_HIGH, _LOW)
    + rb"|\\.",
    re.DOTALL,
)
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


def read_json(data: bytes) -> Any:
    """One JSON value, mended where not every reader could take it.

    Raises ValueError or RecursionError if it is none.
    """
    if _BEYOND_FLOATS.search(data) is None:
        try:
            return from_json(data, allow_inf_nan=False)
        except ValueError:
            pass  # mostly no JSON at all, or what is mended below
    try:
        value = json.loads(data, strict=False)
    except UnicodeDecodeError:
        value = json.loads(data.decode("utf-8", "replace"), strict=False)
    return passable(value)


def passable(value: Any) -> Any:
    """A parsed JSON value without what could not be passed on."""
    return well_formed(value, deepest=_DEEPEST)


class WholeCharacters(httpx2.AsyncByteStream):
    """A body with every half of a surrogate pair replaced, as it arrives: the SDK's parser would refuse all of it."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner
        self._held = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            data, self._held = self._held + chunk, b""
            if b"\\" in data or b"\xed" in data:
                data = _ESCAPES.sub(self._mended, data)
            if data:
                yield data
        if self._held:
            yield self._held

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _mended(self, found: re.Match[bytes]) -> bytes:
        if found["cut"] is not None:
            self._held = found["cut"]  # the next chunk says what it is
            return b""
        return found[0] if found["half"] is None else _REPLACEMENT
