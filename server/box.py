"""The pack behind a running server: opened, replaced when a newer one is fetched, joined with the own servers."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from toolscout.errors import ToolscoutError
from toolscout.server.launch import package_of

if TYPE_CHECKING:
    from toolscout.index.encoder import Encoder
    from toolscout.index.layers import LayeredIndex
    from toolscout.index.pack.search import PackIndex
    from toolscout.index.search import SearchIndex
    from toolscout.server.config import UpstreamConfig
    from toolscout.settings import Settings

logger = logging.getLogger(__name__)


def open_box(settings: Settings, encoder: Encoder, before: PackIndex | None) -> PackIndex | None:
    """Open the pack in use; ``before`` where it is that one. None where there is none, or none that can be read.

    A pack that cannot be read never stops a server: what is wrong is logged, and `toolscout doctor` says it.
    """
    from toolscout.index.pack.current import find_pack
    from toolscout.index.pack.search import PackIndex

    try:
        found = find_pack(settings, encoder.fingerprint)
        if found is None:
            return None
        if before is not None and before.storage.pack.path == found.path and before.encoder is encoder:
            return before
        return PackIndex.open_pack(found.path, encoder)
    except ToolscoutError as error:
        logger.warning("%s Only your own servers are searched.", error)
        return None


def join(own: SearchIndex | None, box: PackIndex, configured: Mapping[str, UpstreamConfig]) -> LayeredIndex:
    """One search over both, the pack's copies of configured and imported servers hidden."""
    from toolscout.index.layers import LayeredIndex, layer_params

    # A server that was added and could not be listed is still found as the pack knows it, to say so.
    listed = set(own.storage.server_ids()) if own is not None else set()
    packages = (package_of(config.fields) for name, config in configured.items() if name in listed)
    installed = {*listed, *filter(None, packages)}
    return LayeredIndex(own, box, layer_params(box.encoder), installed, copies(box, configured, listed))


def copies(box: PackIndex, configured: Mapping[str, UpstreamConfig], listed: Container[str]) -> dict[str, str]:
    """The pack's ids of configured servers whose tools could not be listed, with their names here."""
    found: dict[str, str] = {}
    for name, config in configured.items():
        if name in listed or config.disabled:
            continue
        package = package_of(config.fields)
        server = box.get_server(name) or (box.server_of(package) if package else None)
        if server is not None:
            found[server.server_id] = name
    return found
