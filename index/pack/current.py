"""Which pack is in use: the one that came with Toolscout, or a newer one that was fetched into the home.

home/packs/CURRENT            name of the fetched pack that is in use
home/packs/2026-11-25-1f3a.pack, .pack.sig
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from toolscout.errors import BadInput, NotAllowed, NotFound, StorageError, ToolscoutError
from toolscout.files import replace_file
from toolscout.index.encoder import make_encoder
from toolscout.index.pack.file import SUFFIX, Manifest, PackFile
from toolscout.index.pack.signature import check, signature_file

if TYPE_CHECKING:
    from toolscout.settings import Settings

logger = logging.getLogger(__name__)

SHIPPED = Path(__file__).parent / "shipped"
CURRENT = "CURRENT"
OFF = "off"
DEFAULT = "default"
_CHOSEN = "older"


@dataclass(frozen=True)
class Found:
    """A pack that can be used, and why a better one cannot."""

    path: Path
    manifest: Manifest
    problem: str = ""

    def days_old(self) -> int:
        """Days since it was built."""
        return (datetime.now(UTC).date() - date.fromisoformat(self.manifest.date)).days


def find_pack(settings: Settings) -> Found | None:
    """The pack in use: of those that can be read the newest; None where packs are switched off or none is here.

    A fetched pack that cannot be read is left aside, with a warning: search goes on with the shipped one.
    """
    if settings.pack == OFF:
        return None
    if settings.pack != DEFAULT:
        path = Path(settings.pack).expanduser()
        return Found(path, PackFile.open(path).manifest)
    found, problems = look(settings)
    for problem in problems:
        logger.warning("%s Another one is used, or none.", problem)
    return replace(found, problem=str(problems[0])) if found is not None and problems else found


def look(settings: Settings) -> tuple[Found | None, list[ToolscoutError]]:
    """Find the newest of the shipped and fetched packs that can be read, or the one that was chosen though older; and
    what is wrong with the others."""
    found: list[Found] = []
    problems: list[ToolscoutError] = []
    paths, chosen = shipped(), None
    try:
        fetched, is_chosen = _fetched(settings)
        paths, chosen = [*fetched, *paths], fetched[0] if is_chosen else None
    except BadInput as error:
        problems.append(error)
    for path in paths:
        try:
            found.append(Found(path, PackFile.open(path).manifest))
        except StorageError as error:
            problems.append(error)
    return max(found, key=lambda one: (one.path == chosen, one.manifest.date), default=None), problems


def shipped() -> list[Path]:
    """Packs that came with Toolscout."""
    return sorted(SHIPPED.glob(f"*{SUFFIX}"))


def packs_folder(settings: Settings) -> Path:
    """Folder of fetched packs."""
    return settings.home / "packs"


def install_pack(source: Path, signature: Path, settings: Settings, *, older: bool = False) -> Manifest:
    """Take a pack into use: checked, copied whole, then named. The one before is kept for `roll_back`.

    Args:
        older: take one that is older than the one in use, too.

    Raises:
        StorageError: it cannot be read, or the disk is full. NotAllowed: its signature does not hold, or it is older.
    """
    manifest = PackFile.open(source).manifest
    digest = check(source, signature, settings.pack_keys)
    if manifest.encoder != make_encoder(settings).fingerprint:
        raise NotAllowed(f"The pack {source.name} was made for another encoder than this one's.", "Update Toolscout.")
    before = find_pack(settings)
    if before is not None and manifest.date <= before.manifest.date and not older:
        raise NotAllowed(
            f"That pack is of {manifest.date}, and one of {before.manifest.date} is in use.",
            "Give --older to use it all the same.",
        )
    folder = packs_folder(settings)
    target = folder / f"{manifest.date}-{digest[:12]}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one, copy in ((source, target), (signature, signature_file(target))):
            if one.resolve() != copy.resolve():
                part = copy.with_name(copy.name + ".part")
                shutil.copyfile(one, part)
                _sync(part)
                part.replace(copy)
        replace_file(folder / CURRENT, target.name + (f"\n{_CHOSEN}\n" if older else "\n"))
    except OSError as error:
        raise StorageError(
            f"The pack cannot be written to {folder}: {error.strerror or error}.", "Make room there."
        ) from None
    _tidy(folder, keep={target.name, before.path.name if before is not None else ""})
    return manifest


def roll_back(settings: Settings) -> Manifest:
    """Go back to the pack before the fetched one that is in use. Raises NotFound where there is none."""
    folder = packs_folder(settings)
    now = next(iter(_fetched(settings)[0]), None)
    if now is None:
        raise NotFound("No fetched pack is in use.", "See: toolscout catalog stats")
    others = sorted(path for path in folder.glob(f"*{SUFFIX}") if path.name != now.name)
    try:
        if others:
            replace_file(folder / CURRENT, others[-1].name + "\n")
        else:
            (folder / CURRENT).unlink()
        for path in (now, signature_file(now)):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{folder} cannot be changed: {error.strerror or error}.") from None
    found = find_pack(settings)
    if found is None:
        raise NotFound("No pack is left.", "Get one with `toolscout catalog update`.")
    return found.manifest


def _fetched(settings: Settings) -> tuple[list[Path], bool]:
    """The fetched pack in use, if there is one, and whether it was chosen though older."""
    folder = packs_folder(settings)
    try:
        name, _, chosen = (folder / CURRENT).read_text("utf-8").strip().partition("\n")
    except OSError:
        return [], False
    if not name.endswith(SUFFIX) or Path(name).name != name:
        raise BadInput(f"{folder / CURRENT} names no pack.", "Remove that file.")
    return [folder / name], chosen == _CHOSEN


def _tidy(folder: Path, keep: set[str]) -> None:
    for path in folder.glob(f"*{SUFFIX}"):
        if path.name not in keep:
            path.unlink(missing_ok=True)
            signature_file(path).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
