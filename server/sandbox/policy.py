"""What a sandboxed upstream may do: the ``sandbox`` of its entry in ``mcp.json``, or the default of the settings.

``true`` allows nothing beyond running; an object opens what it names::

    "sandbox": {"network": ["api.example.com"], "read": ["~/notes"], "write": ["~/drafts"], "memory": 2048}
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from toolscout.errors import BadInput, NotAllowed

Default = Literal["off", "on", "network"]
"""What holds for servers whose entry says nothing: no sandbox, one without network, one with the machine's network."""

_FIELDS = ("network", "read", "write", "memory", "processes")
_HOST = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?", re.IGNORECASE)
_NEVER = ("/proc", "/sys", "/dev", "/run/toolscout")
_HINT = "See docs/SANDBOX.md."


@dataclass(frozen=True)
class Policy:
    """What a sandbox opens.

    ``network``: False (none), True (the machine's, loopback included) or the hosts that are reached through a proxy.
    ``read`` and ``write`` are absolute paths. ``memory`` in MiB and ``processes`` (threads count) are limits.
    """

    network: bool | tuple[str, ...] = False
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    memory: int = 4096
    processes: int = 1024

    @classmethod
    def parse(cls, name: str, value: object) -> Policy | None:
        """The ``sandbox`` of an entry; None for ``false``. Raises BadInput that says what is wrong with it."""
        if isinstance(value, bool):
            return cls() if value else None
        if not isinstance(value, Mapping):
            raise BadInput(f"Server '{name}': 'sandbox' must be true, false or an object.", _HINT)
        if unknown := [str(key) for key in value if key not in _FIELDS]:
            # A word that is not understood might have been meant to forbid something.
            raise BadInput(
                f"Server '{name}': its sandbox has no '{unknown[0]}'.", f"Known are: {', '.join(_FIELDS)}. {_HINT}"
            )
        return cls(
            network=_network(name, value.get("network", False)),
            read=_paths(name, "read", value.get("read")),
            write=_paths(name, "write", value.get("write")),
            memory=_count(name, "memory", value.get("memory"), cls.memory),
            processes=_count(name, "processes", value.get("processes"), cls.processes),
        )

    @classmethod
    def default(cls, said: Default) -> Policy | None:
        """What the settings give to servers that say nothing themselves."""
        return None if said == "off" else cls(network=said == "network")

    def check(self, name: str, home: Path) -> None:
        """Look at the paths as they are now. ``home`` is Toolscout's own, which no server may see.

        Raises NotAllowed for a path that is missing, is another one's inside, or holds what nobody may have.
        """
        real = {path: path.resolve() for path in (*self.read, *self.write)}
        own = home.resolve()
        for path, target in real.items():
            what = f"The sandbox of '{name}' is given {path}"
            if not path.exists():
                raise NotAllowed(f"{what}, which does not exist.", "Make it, or name another.")
            if target in (Path("/"), Path("/tmp")) or any(target.is_relative_to(n) for n in _NEVER):
                raise NotAllowed(f"{what}, and that is never handed on.", "Name the folders that it needs.")
            if own.is_relative_to(target) or target.is_relative_to(own):
                raise NotAllowed(
                    f"{what}, which holds Toolscout's own files ({home}).", "Name the folders that it needs."
                )
            for other in self.write:
                # Else it could put a link there and have anything bound in its place at the next start.
                if other != path and (path.is_relative_to(other) or target.is_relative_to(real[other])):
                    raise NotAllowed(f"{what}, which lies in {other}, where it may write.", "Leave one of them out.")

    def as_json(self) -> dict[str, Any] | bool:
        """The shortest form that says it, for ``mcp.json``."""
        said: dict[str, Any] = {}
        if self.network:
            said["network"] = list(self.network) if isinstance(self.network, tuple) else True
        for field in ("read", "write"):
            if paths := getattr(self, field):
                said[field] = [str(path) for path in paths]
        for field in ("memory", "processes"):
            if (number := getattr(self, field)) != getattr(Policy, field):
                said[field] = number
        return said or True

    def shown(self) -> str:
        """In words, for people."""
        network = "the network" if self.network is True else f"the hosts {', '.join(self.network or ())}"
        parts = [f"reaches {network}" if self.network else "has no network"]
        parts += [f"reads {', '.join(map(str, self.read))}"] if self.read else []
        parts += [f"writes {', '.join(map(str, self.write))}"] if self.write else []
        return "; ".join(parts if self.read or self.write else [*parts, "sees no files of yours"])


def _network(name: str, value: object) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list) or not value or any(not isinstance(host, str) for host in value):
        raise BadInput(
            f"Server '{name}': 'network' of its sandbox must be true, false or a list of hosts.",
            'For example ["api.example.com", "*.example.org", "localhost:8080"].',
        )
    for host in value:
        _check_host(name, host)
    return tuple(host.lower() for host in value)


def split_host(entry: str) -> tuple[str, int | None]:
    """``host``, ``host:port``, ``::1`` or ``[::1]:port`` as name and port. Raises ValueError for a bad port."""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        if rest and not rest.startswith(":"):
            raise ValueError(rest)
        return name, int(rest[1:]) if rest else None
    name, _, port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
    return name, int(port) if port or (entry.endswith(":") and entry.count(":") == 1) else None


def _check_host(name: str, given: str) -> None:
    try:
        host, port = split_host(given)
        if port is not None and not 0 < port < 65536:
            raise ValueError(port)
        if _HOST.fullmatch(host) is None or len(host) > 253:
            ipaddress.ip_address(host)
    except ValueError:
        raise BadInput(
            f"Server '{name}': {given!r} in its sandbox's network is no host.",
            "Give names or addresses, with :PORT where it is not 80 or 443; no schemes, no paths.",
        ) from None


def _paths(name: str, field: str, value: object) -> tuple[Path, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or any(not isinstance(item, str) or not item or "\0" in item for item in value):
        raise BadInput(f"Server '{name}': '{field}' of its sandbox must be a list of paths.")
    found = []
    for item in value:
        try:
            path = Path(item).expanduser()
        except RuntimeError:
            path = Path(item)
        if not path.is_absolute() or ".." in path.parts:
            raise BadInput(
                f"Server '{name}': {item!r} in its sandbox's '{field}' is no full path.", "Begin it with / or ~."
            )
        found.append(path)
    return tuple(dict.fromkeys(found))


def _count(name: str, field: str, value: object, otherwise: int) -> int:
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or not 16 <= value <= 10**7:
        raise BadInput(f"Server '{name}': '{field}' of its sandbox must be a number from 16 on.")
    return value
