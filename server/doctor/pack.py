"""The diagnosis of the built-in catalog: which pack is in use, how old it is, and whether it can be searched."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from toolscout.errors import NotAllowed, ToolscoutError
from toolscout.server.doctor.examine import Check

if TYPE_CHECKING:
    from toolscout.index.pack.current import Found
    from toolscout.settings import Settings

_OLD_DAYS = 120
_UPDATE = "Run: toolscout catalog update, or: pip install --upgrade toolscout"
_ALONE = "only your own servers are searched"


def examine_pack(settings: Settings) -> Check:
    """The pack in use. A damaged one never stops a server, so only here a person is told of it."""
    from toolscout.index.encoder import make_encoder
    from toolscout.index.pack.current import DEFAULT, OFF, find_pack, look
    from toolscout.index.pack.search import PackIndex

    if settings.pack == OFF:
        return Check("pack", "ok", f"switched off by TOOLSCOUT_PACK: {_ALONE}")
    started = time.perf_counter()
    try:
        encoder = make_encoder(settings)
        named = settings.pack != DEFAULT
        found, problems = (find_pack(settings), []) if named else look(settings, encoder.fingerprint)
        if found is None:
            said = " ".join([*map(str, problems), f"There is no built-in catalog, so {_ALONE}."])
            return Check("pack", "warn", said, problems[0].hint or _UPDATE if problems else _UPDATE)
        PackIndex.open_pack(found.path, encoder).close()
    except ToolscoutError as error:
        return Check("pack", "warn", f"{error} So {_ALONE}.", error.hint or _UPDATE)
    check = _use(found, problems, settings)
    return replace(check, seconds=time.perf_counter() - started)


def _use(found: Found, problems: Sequence[ToolscoutError], settings: Settings) -> Check:
    """What is said of a pack that can be searched."""
    manifest = found.manifest
    age = max(0, found.days_old())
    said = f"{manifest.date}, {manifest.servers:,} servers, {manifest.tools:,} tools, {age:,} days old"
    if problems:
        return Check("pack", "warn", f"{said}; it stands in, as: {problems[0]}", problems[0].hint or _UPDATE)
    if changed := _changed(found, settings):
        return Check("pack", "warn", f"{said}; {changed}", _UPDATE)
    if age > _OLD_DAYS:
        return Check("pack", "warn", f"{said}: newer servers are not in it", _UPDATE)
    return Check("pack", "ok", said)


def _changed(found: Found, settings: Settings) -> ToolscoutError | None:
    """What is wrong with a signed pack's signature. Search reads it all the same: to hash it takes too long there."""
    from toolscout.index.pack.signature import check, signature_file

    try:
        if signature_file(found.path).exists():
            check(found.path, signature_file(found.path), settings.pack_keys)
    except NotAllowed as error:
        return error
    return None
