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

from toolscout.errors import NotAllowed, NotFound, StorageError
from toolscout.files import locked, replace_file
from toolscout.index.pack.file import SUFFIX, Manifest, PackFile
from toolscout.index.pack.signature import check, signature_file

if TYPE_CHECKING:
    from toolscout.settings import Settings

logger = logging.getLogger(__name__)

SHIPPED = Path(__file__).parent / "shipped"
CURRENT = "CURRENT"
OFF = "off"
DEFAULT = "default"
PINNED = " older"
"""Stands in CURRENT behind a pack that was taken although a newer one was in use."""


@dataclass(frozen=True)
class Found:
    """A pack that can be used, and why a better one cannot."""

    path: Path
    manifest: Manifest
    problem: str = ""

    def days_old(self) -> int:
        """Days since it was built."""
        return (datetime.now(UTC).date() - date.fromisoformat(self.manifest.date)).days


def find_pack(settings: Settings, encoder: str = "") -> Found | None:
    """The pack in use: of those that can be read the newest; None where packs are switched off or none is here.

    A fetched pack that cannot be read, or was made with another encoder, is left aside, with a warning: search goes on
    with the shipped one. One that was taken although it is older is used all the same.

    Args:
        encoder: fingerprint of the encoder that packs shall be of; empty for any.
    """
    if settings.pack == OFF:
        return None
    if settings.pack != DEFAULT:
        path = Path(settings.pack).expanduser()
        return Found(path, PackFile.open(path).for_encoder(encoder).manifest)
    found, problems = look(settings, encoder)
    for problem in problems:
        logger.warning("%s Another one is used, or none.", problem)
    return replace(found, problem=str(problems[0])) if found is not None and problems else found


def look(settings: Settings, encoder: str = "") -> tuple[Found | None, list[StorageError]]:
    """Find the pack to use among the shipped and fetched ones, and what is wrong with the others."""
    found: list[Found] = []
    fetched: list[Path] = []
    problems: list[StorageError] = []
    pinned = False
    try:
        fetched, pinned = _named(settings)
    except StorageError as error:
        problems.append(error)
    for path in [*fetched, *shipped()]:
        try:
            found.append(Found(path, PackFile.open(path).for_encoder(encoder).manifest))
        except StorageError as error:
            problems.append(error)
    kept = [one for one in found if pinned and one.path in fetched]
    return max(kept or found, key=lambda one: one.manifest.date, default=None), problems


def shipped() -> list[Path]:
    """Packs that came with Toolscout."""
    return sorted(SHIPPED.glob(f"*{SUFFIX}"))


def packs_folder(settings: Settings) -> Path:
    """Folder of fetched packs."""
    return settings.home / "packs"


def install_pack(
    source: Path, signature: Path, settings: Settings, *, older: bool = False, encoder: str = ""
) -> Manifest:
    """Take a pack into use: checked, copied whole, then named. The one before is kept for `roll_back`.

    Args:
        older: take one that is older than the one in use, too.
        encoder: fingerprint of the encoder that searches; empty for any.

    Raises:
        StorageError: it cannot be read or searched, or the disk is full. NotAllowed: its signature does not hold, or it
            is older.
    """
    manifest = PackFile.open(source).for_encoder(encoder).manifest
    digest = check(source, signature, settings.pack_keys)
    folder = packs_folder(settings)
    with locked(folder / CURRENT):
        before = find_pack(settings, encoder)
        if before is not None and manifest == before.manifest and not older:
            raise NotAllowed(f"The built-in catalog of {manifest.date} is in use already.", "There is nothing to do.")
        if before is not None and manifest.date <= before.manifest.date and not older:
            raise NotAllowed(
                f"That built-in catalog is of {manifest.date}, and one of {before.manifest.date} is in use.",
                "Give --older to use it all the same.",
            )
        target = folder / f"{manifest.date}-{digest[:12]}{SUFFIX}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for one, copy in ((source, target), (signature, signature_file(target))):
                if one.resolve() != copy.resolve():
                    part = copy.with_name(copy.name + ".part")
                    try:
                        shutil.copyfile(one, part)
                        _sync(part)
                        part.replace(copy)
                    finally:
                        part.unlink(missing_ok=True)
            is_older = before is not None and manifest.date < before.manifest.date
            replace_file(folder / CURRENT, f"{target.name}{PINNED if is_older else ''}\n")
        except OSError as error:
            raise StorageError(
                f"The built-in catalog cannot be written to {folder}: {error.strerror or error}.", "Make room there."
            ) from None
        _tidy(folder, keep={target.name, before.path.name if before is not None else ""})
    return manifest


def roll_back(settings: Settings) -> Manifest:
    """Go back to the pack before the fetched one that is in use. Raises NotFound where there is none."""
    folder = packs_folder(settings)
    try:
        now = next(iter(_named(settings)[0]), None)
    except StorageError:
        now = None
    if now is None:
        raise NotFound("No fetched built-in catalog is in use.", "See: toolscout catalog stats")
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
        raise NotFound("No built-in catalog is left.", "Get one with `toolscout catalog update`.")
    return found.manifest


def _named(settings: Settings) -> tuple[list[Path], bool]:
    """The fetched pack in use, if there is one, and whether it shall be used although a newer one is here.

    Raises StorageError where the file that names it names none.
    """
    folder = packs_folder(settings)
    try:
        text = (folder / CURRENT).read_text("utf-8").strip()
    except FileNotFoundError:
        return [], False
    except (OSError, ValueError):
        text = ""
    name = text.removesuffix(PINNED)
    if not name.endswith(SUFFIX) or Path(name).name != name:
        raise StorageError(f"{folder / CURRENT} names no built-in catalog.", "Remove that file.")
    return [folder / name], name != text


def _tidy(folder: Path, keep: set[str]) -> None:
    for path in folder.glob(f"*{SUFFIX}"):
        if path.name not in keep:
            path.unlink(missing_ok=True)
            signature_file(path).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
