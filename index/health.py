"""How well servers answer, as measured elsewhere: a file of priors, one number a server.

    {"version": 1, "mean": 0.93, "servers": {"SERVER": {"health": 0.98, "calls": 120}}}

``toolscout eval servers --health FILE`` writes it. ``health`` is the share of calls that the server answered without a
fault of its own, drawn towards ``mean`` where there were few; ``calls`` is how many that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from toolscout.errors import BadInput, NotFound
from toolscout.files import write_json
from toolscout.records import Record

VERSION = 1
Share = Annotated[float, Field(ge=0, le=1)]


class Health(Record):
    """One server's health."""

    health: Share
    calls: int = Field(default=0, ge=0)


class HealthFile(Record):
    """The file as a whole."""

    version: int = VERSION
    mean: Share
    servers: dict[str, Health] = Field(default_factory=dict)

    def priors(self) -> dict[str, float]:
        """By server how much better (above 0) or worse than the mean it answers, from -1 to 1."""
        return {server_id: one.health - self.mean for server_id, one in self.servers.items()}


def write_health(path: Path, servers: Mapping[str, Health], mean: float) -> None:
    """Write the file. Raises StorageError."""
    write_json(path, HealthFile(mean=mean, servers=dict(servers)).model_dump(mode="json"))


def read_health(path: Path) -> HealthFile:
    """Read the file. Raises NotFound, and BadInput for one that is none or of a later version."""
    try:
        found = HealthFile.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise NotFound(f"There is no health file {path}.", "Write one: toolscout eval servers --health FILE") from None
    except (OSError, ValidationError):
        raise BadInput(f"{path} is no health file.", "Write one: toolscout eval servers --health FILE") from None
    if found.version > VERSION:
        raise BadInput(f"{path} was written by a newer Toolscout.", "Update, or write it anew.")
    return found
