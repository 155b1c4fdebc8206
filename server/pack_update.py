"""Fetch a newer pack: downloaded beside, checked, then taken into use in one step.

A download that breaks off goes on where it stopped. Until a pack and its signature are whole and checked nothing of it
is used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from toolscout.errors import BadInput, NotAllowed, StorageError
from toolscout.index.encoder import make_encoder
from toolscout.index.pack.current import install_pack, packs_folder
from toolscout.index.pack.file import SUFFIX, Manifest
from toolscout.index.pack.signature import signature_file
from toolscout.server.models import clear_disk_errors, download
from toolscout.settings import Settings

Progress = Callable[[int, int | None], None]
Take = Callable[[Path, Path], Manifest]


def update_pack(source: str, settings: Settings, *, older: bool = False, progress: Progress | None = None) -> Manifest:
    """Take the pack at an address or in a file into use.

    Args:
        source: ``https://...`` or a path; its signature is expected beside it.
        older: one that is older than the one in use, too.

    Raises:
        BadInput: nothing to fetch from. StorageError: it cannot be read, searched or written. NotAllowed: it is not
        signed by a key that is believed, was changed, or is no newer one. ModelError: the download failed.
    """
    take = partial(install_pack, settings=settings, older=older, encoder=make_encoder(settings).fingerprint)
    if urlsplit(source).scheme in ("http", "https"):
        return _fetched(source, settings, take, progress)
    path = Path(source).expanduser()
    if not path.is_file():
        raise BadInput(f"There is no file {path}.", "Give --from an address or a file that ends in .pack.")
    return take(path, signature_file(path))


def _fetched(url: str, settings: Settings, take: Take, progress: Progress | None) -> Manifest:
    name = Path(urlsplit(url).path).name
    if not name.endswith(SUFFIX):
        raise BadInput(f"{url} is no address of a built-in catalog.", f"It ends in {SUFFIX}.")
    folder = packs_folder(settings) / "fetching"
    part = folder / name
    with clear_disk_errors(settings.home):
        folder.mkdir(parents=True, exist_ok=True)
        signature_file(part).unlink(missing_ok=True)  # small, and may be another pack's
        download(f"{url}.sig", signature_file(part), None)
        download(url, part, progress)
    try:
        manifest = take(part, signature_file(part))
    except (NotAllowed, StorageError) as error:
        if not (isinstance(error, NotAllowed) and "in use" in str(error)):
            part.unlink(missing_ok=True)  # else the next try would go on with what is wrong
        raise
    for path in (part, signature_file(part)):
        path.unlink(missing_ok=True)
    return manifest
