"""Which pack is used, what is believed of one that is fetched, and that nothing is lost when that fails."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pack_fixture import Built
from test_models import Site

from toolscout.cli import execute
from toolscout.commands.catalog import pack_facts
from toolscout.errors import BadInput, ModelError, NotAllowed, NotFound, StorageError
from toolscout.files import locked
from toolscout.index.encoder import make_encoder
from toolscout.index.layers import LayeredIndex
from toolscout.index.pack import current, signature
from toolscout.index.pack.current import CURRENT, find_pack, install_pack, packs_folder, roll_back
from toolscout.index.pack.file import PackFile, write_pack
from toolscout.index.pack.signature import believed, check, make_key, sha256, sign, signature_file
from toolscout.server.box import open_box
from toolscout.server.engine import Engine
from toolscout.server.pack_update import update_pack
from toolscout.settings import Settings


class Shop:
    """Where packs are built and signed, and a Toolscout that came with one and believes the shop's key."""

    def __init__(self, folder: Path, settings: Settings, built: Built) -> None:
        self.folder, self.built = folder, built
        self.shipped = folder / "shipped"
        self.shipped.mkdir(parents=True)
        self.key = folder / "key"
        public = make_key(self.key)
        self.settings = settings.model_copy(update={"pack_keys": [public], "pack": "default"})

    def make(self, date: str, name: str = "", padding: int = 0, **changes: Any) -> Path:
        """A signed pack of this date."""
        pack = PackFile.open(self.built.path)
        path = self.folder / (name or f"new-{date}.pack")
        more = {"zeros": np.zeros(padding, np.uint8)} if padding else {}
        write_pack(path, {**pack.arrays, **more}, replace(pack.manifest, date=date, **changes))
        sign(path, self.key)
        return path

    def ship(self, date: str) -> Path:
        return Path(shutil.copy(self.make(date), self.shipped / f"{date}.pack"))

    @property
    def in_use(self) -> str:
        found = find_pack(self.settings)
        return found.manifest.date if found else ""

    @property
    def kept(self) -> set[str]:
        """Names of what is in the folder of fetched packs."""
        folder = packs_folder(self.settings)
        return {path.name for path in folder.iterdir() if path.suffix != ".lock"} if folder.is_dir() else set()

    def take(self, path: Path, **options: Any) -> str:
        return install_pack(path, signature_file(path), self.settings, **options).date


@pytest.fixture
def shop(tmp_path: Path, settings: Settings, built_pack: Built, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(tmp_path / "shop", settings, built_pack)
    monkeypatch.setattr(current, "SHIPPED", made.shipped)
    made.ship("2026-11-01")
    return made


def test_two_updates_at_once_wait_for_each_other(shop: Shop) -> None:
    first, second = shop.make("2026-12-01", padding=1_000_000), shop.make("2026-12-02", padding=1_000_000)
    with ThreadPoolExecutor(2) as pool, locked(packs_folder(shop.settings) / CURRENT):
        waiting = [pool.submit(shop.take, path, older=True) for path in (first, second)]
        assert not wait(waiting, timeout=0.5).done and shop.in_use == "2026-11-01"
    assert sorted(done.result() for done in waiting) == ["2026-12-01", "2026-12-02"]
    assert not any(name.endswith(".part") for name in shop.kept)


# --- which one -------------------------------------------------------------------------------------------------------


def test_without_a_fetched_pack_the_shipped_one_is_used(shop: Shop) -> None:
    assert shop.in_use == "2026-11-01"
    shop.ship("2026-10-01")
    assert shop.in_use == "2026-11-01", "the newest of those that came along"


def test_without_any_pack_there_is_none(shop: Shop) -> None:
    shutil.rmtree(shop.shipped)
    assert find_pack(shop.settings) is None and open_box(shop.settings, make_encoder(shop.settings), None) is None


def test_packs_can_be_switched_off_and_named(shop: Shop, tmp_path: Path) -> None:
    assert find_pack(shop.settings.model_copy(update={"pack": "off"})) is None
    mine = shop.make("2020-01-01")
    named = shop.settings.model_copy(update={"pack": str(mine)})
    found = find_pack(named)
    assert found is not None and found.path == mine
    missing = shop.settings.model_copy(update={"pack": str(tmp_path / "none.pack")})
    with pytest.raises(StorageError, match="There is no built-in catalog"):
        find_pack(missing)
    assert open_box(missing, make_encoder(missing), None) is None, "a server starts all the same"


def test_a_newer_pack_is_taken_into_use_and_the_one_before_is_kept(shop: Shop) -> None:
    assert shop.take(shop.make("2026-11-10")) == "2026-11-10" == shop.in_use
    assert shop.take(shop.make("2026-11-20")) == shop.in_use == "2026-11-20"
    assert len([name for name in shop.kept if name.endswith(".pack")]) == 2
    shop.take(shop.make("2026-11-25"))
    assert {name[:10] for name in shop.kept if name.endswith(".pack")} == {"2026-11-20", "2026-11-25"}
    assert {name[:10] for name in shop.kept if name.endswith(".sig")} == {"2026-11-20", "2026-11-25"}


def test_a_shipped_pack_that_is_newer_than_the_fetched_one_is_used(shop: Shop) -> None:
    shop.take(shop.make("2026-11-10"))
    shop.ship("2026-12-01")
    assert shop.in_use == "2026-12-01"


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "gone"])
def test_a_damaged_fetched_pack_is_left_aside_with_a_warning(
    shop: Shop, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop.take(shop.make("2026-11-10"))
    (path,) = packs_folder(shop.settings).glob("*.pack")
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-5000], "empty": b"", "foreign": b"GIF89a" * 100}.get(damage, data))
    if damage == "gone":
        path.unlink()
    found = find_pack(shop.settings)
    assert found is not None and found.manifest.date == "2026-11-01" and path.name in found.problem
    assert path.name in caplog.text
    box = open_box(shop.settings, make_encoder(shop.settings), None)
    assert box is not None and box.storage.pack.manifest.date == "2026-11-01"
    assert shop.take(shop.make("2026-11-12")) == shop.in_use == "2026-11-12", "and a whole one can be taken"


@pytest.mark.parametrize("text", ["", "\n", "../../etc/passwd", "x.txt", "/tmp/x.pack", "a/b.pack", "\xff\xfe"])
def test_a_pointer_that_names_no_pack_is_left_aside_with_a_warning(
    shop: Shop, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    packs_folder(shop.settings).mkdir()
    (packs_folder(shop.settings) / current.CURRENT).write_bytes(text.encode("latin-1"))
    assert shop.in_use == "2026-11-01" and "names no built-in catalog" in caplog.text
    assert shop.take(shop.make("2026-11-12")) == shop.in_use


def test_a_pack_of_another_encoder_is_not_searched(
    shop: Shop, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = make_encoder(settings)
    named = settings.model_copy(update={"pack": str(shop.make("2026-11-10", encoder="of another"))})
    assert open_box(named, encoder, None) is None and "another encoder" in caplog.text
    assert "another encoder" in str(pack_facts(named)), "and the numbers do not say that it is"
    named = settings.model_copy(update={"pack": str(shop.make("2026-11-11", document_version=99))})
    assert open_box(named, encoder, None) is None


def test_the_shipped_pack_is_used_where_the_fetched_one_is_of_another_encoder(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.take(shop.make("2026-11-10", encoder="of an older toolscout"))
    box = open_box(shop.settings, make_encoder(shop.settings), None)
    assert box is not None and box.storage.pack.manifest.date == "2026-11-01"
    assert "another encoder" in caplog.text


def test_an_open_pack_stays_open_until_there_is_another(shop: Shop) -> None:
    encoder = make_encoder(shop.settings)
    first = open_box(shop.settings, encoder, None)
    assert first is not None and open_box(shop.settings, encoder, first) is first
    shop.take(shop.make("2026-11-10"))
    second = open_box(shop.settings, encoder, first)
    assert second is not None and second is not first
    assert first.find("will it rain in Oslo", abstain=False).hits, "the old one can be read as long as it is held"


async def test_a_running_server_takes_a_newer_pack_at_its_next_search(shop: Shop) -> None:
    async def searched(engine: Engine) -> str:
        engine._pointer_checked = 0.0  # as a second later
        index = await engine.index()
        assert isinstance(index, LayeredIndex)
        return index.box.storage.pack.manifest.date

    async with Engine(shop.settings) as engine:
        assert await searched(engine) == "2026-11-01"
        shop.take(shop.make("2026-11-10"))
        assert await searched(engine) == "2026-11-10"
        same = await engine.index()
        assert await searched(engine) == "2026-11-10" and await engine.index() is same, "nothing is opened in vain"
        roll_back(shop.settings)
        assert await searched(engine) == "2026-11-01"


# --- what is believed ------------------------------------------------------------------------------------------------


def refused(shop: Shop, path: Path, said: str, sig: Path | None = None, kind: type[Exception] = NotAllowed) -> None:
    before = shop.kept
    with pytest.raises(kind, match=said):
        install_pack(path, sig or signature_file(path), shop.settings)
    assert shop.kept == before and shop.in_use == "2026-11-01"


def test_a_pack_without_a_signature_is_refused(shop: Shop) -> None:
    path = shop.make("2026-11-10")
    signature_file(path).unlink()
    refused(shop, path, "not signed")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "{}", '{"key": 1}', '{"key":"a","sha256":"b","signature":"%"}', "\xff"]
)
def test_a_signature_that_is_none_is_refused(shop: Shop, text: str) -> None:
    path = shop.make("2026-11-10")
    signature_file(path).write_bytes(text.encode("latin-1"))
    refused(shop, path, "no signature|not believed|is wrong")


def test_a_foreign_key_is_refused(shop: Shop, tmp_path: Path) -> None:
    path = shop.make("2026-11-10")
    make_key(tmp_path / "other")
    sign(path, tmp_path / "other")
    refused(shop, path, "not believed")


def test_a_foreign_key_under_a_believed_name_is_refused(shop: Shop, tmp_path: Path) -> None:
    path = shop.make("2026-11-10")
    make_key(tmp_path / "other")
    sign(path, tmp_path / "other")
    told = json.loads(signature_file(path).read_text())
    signature_file(path).write_text(json.dumps(told | {"key": shop.settings.pack_keys[0]}))
    refused(shop, path, "is wrong")


@pytest.mark.parametrize("place", [-1, 20, 0.5])
def test_one_changed_byte_is_refused(shop: Shop, place: float) -> None:
    path = shop.make("2026-11-10")
    data = bytearray(path.read_bytes())
    # In the header a byte of its closing spaces, where it changes nothing that is read.
    at = int.from_bytes(data[:8], "little") + 7 if place == 20 else int(place * len(data)) if place == 0.5 else -1
    data[at] ^= 1
    if place == 20:
        data[at] = ord("\n")
    path.write_bytes(data)
    refused(shop, path, "changed or damaged|damaged or none", kind=(NotAllowed, StorageError))  # type: ignore[arg-type]


def test_a_signature_of_another_pack_is_refused(shop: Shop) -> None:
    path, other = shop.make("2026-11-10"), shop.make("2026-11-11")
    refused(shop, path, "changed or damaged", sig=signature_file(other))


def test_a_file_that_is_no_pack_is_refused_even_if_it_is_signed(shop: Shop) -> None:
    path = shop.folder / "page.pack"
    path.write_text("<html>Not found</html>" * 50)
    sign(path, shop.key)
    refused(shop, path, "damaged or none", kind=StorageError)


@pytest.mark.parametrize("date", ["2026-10-01", "2026-11-01"])
def test_a_pack_that_is_no_newer_is_refused_unless_asked_for(shop: Shop, date: str) -> None:
    path = shop.make(date)
    refused(shop, path, "in use")
    assert shop.take(path, older=True) == date == shop.in_use
    assert shop.take(shop.make("2026-11-10")) == "2026-11-10" == shop.in_use, "a newer one is taken as ever"


def test_a_pack_that_this_encoder_cannot_search_is_refused(shop: Shop) -> None:
    with pytest.raises(StorageError, match="another encoder"):
        update_pack(str(shop.make("2026-11-20", encoder="of another")), shop.settings)
    assert shop.in_use == "2026-11-01" and not shop.kept
    shop.take(shop.make("2026-11-25", encoder="of another"))
    assert update_pack(str(shop.make("2026-11-20")), shop.settings).date == "2026-11-20", "the other is no bar"


def test_going_back_uses_the_pack_before(shop: Shop) -> None:
    shop.take(shop.make("2026-11-10"))
    shop.take(shop.make("2026-11-20"))
    assert roll_back(shop.settings).date == "2026-11-10" == shop.in_use
    assert roll_back(shop.settings).date == "2026-11-01" == shop.in_use, "the shipped one"
    with pytest.raises(NotFound, match="No fetched built-in catalog"):
        roll_back(shop.settings)
    assert shop.kept == set()


def test_going_back_without_any_other_pack_is_said(shop: Shop) -> None:
    shop.take(shop.make("2026-11-10"))
    shutil.rmtree(shop.shipped)
    with pytest.raises(NotFound, match="No built-in catalog is left"):
        roll_back(shop.settings)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_is_private_and_never_overwritten(tmp_path: Path) -> None:
    public = make_key(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0 and len(bytes.fromhex(public)) == 32
    with pytest.raises(NotAllowed, match="already"):
        make_key(tmp_path / "key")
    assert public in believed([public]) and public not in believed()


def test_only_a_key_signs(tmp_path: Path, shop: Shop) -> None:
    path = shop.make("2026-11-10")
    for text in ("", "zz", "00" * 31):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(BadInput, match="no signing key"):
            sign(path, tmp_path / "bad")
    with pytest.raises(BadInput):
        sign(path, tmp_path / "none")
    assert check(path, signature_file(path), shop.settings.pack_keys) == sha256(path)


def test_a_line_of_the_key_file_may_have_a_comment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys.txt").write_text("# ours\nab12  # since 2026\n\n")
    monkeypatch.setattr(signature, "KEYS", tmp_path / "keys.txt")
    assert believed() == {"ab12"} and believed(["cd", ""]) == {"ab12", "cd"}


# --- what goes wrong on the way --------------------------------------------------------------------------------------


class KilledError(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("step", ["copy", "sync", "second copy", "name"])
def test_a_kill_between_the_steps_leaves_the_old_pack(shop: Shop, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.take(shop.make("2026-11-10"))
    path = shop.make("2026-11-20")
    copies = 0
    copyfile = shutil.copyfile

    def copy(source: Path, target: Path) -> object:
        nonlocal copies
        copies += 1
        if step == "copy" or (step == "second copy" and copies == 2):
            Path(target).write_bytes(b"half of")
            raise KilledError
        return copyfile(source, target)

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(current.shutil, "copyfile", copy)
        if step == "sync":
            patch.setattr(current, "_sync", killed)
        if step == "name":
            patch.setattr(current, "replace_file", killed)
        with pytest.raises(KilledError):
            shop.take(path)
    assert shop.in_use == "2026-11-10"
    box = open_box(shop.settings, make_encoder(shop.settings), None)
    assert box is not None and box.storage.pack.manifest.date == "2026-11-10"
    assert shop.take(path) == "2026-11-20" == shop.in_use, "the next try goes through"
    assert roll_back(shop.settings).date == "2026-11-10"


def test_a_full_disk_loses_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.take(shop.make("2026-11-10"))
    before = shop.kept

    def full(_: Path, target: Path) -> None:
        Path(target).write_bytes(b"as far as it went")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(current.shutil, "copyfile", full)
        with pytest.raises(StorageError, match="No space left") as caught:
            shop.take(shop.make("2026-11-20"))
    assert "room" in caught.value.hint
    assert shop.in_use == "2026-11-10" and shop.kept == before, "and leaves nothing behind that fills it"
    assert shop.take(shop.make("2026-11-20")) == shop.in_use


def test_an_update_from_a_file_needs_the_file(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="There is no file"):
        update_pack(str(tmp_path / "none.pack"), shop.settings)
    assert update_pack(str(shop.make("2026-11-10")), shop.settings).date == "2026-11-10" == shop.in_use


# --- over HTTP -------------------------------------------------------------------------------------------------------


class PackSite(Site):
    """A file server with a pack and its signature."""

    def __init__(self, pack: Path) -> None:
        super().__init__(pack.read_bytes())
        self.signature = signature_file(pack).read_bytes()
        self.whole = self.data
        site, handle = self, self.server.RequestHandlerClass.do_GET  # type: ignore[attr-defined]

        def answer(request: Any) -> None:
            site.data = site.signature if request.path.endswith(".sig") else site.whole
            if request.path.endswith(".sig"):
                kept, site.break_at = site.break_at, 0
                handle(request)
                site.break_at = kept
            else:
                handle(request)

        self.server.RequestHandlerClass.do_GET = answer  # type: ignore[attr-defined]


@pytest.fixture
def site(shop: Shop) -> Iterator[PackSite]:
    site = PackSite(shop.make("2026-11-20", "2026-11-20.pack", padding=3_000_000))  # several chunks
    yield site
    site.server.shutdown()
    site.server.server_close()
    site.thread.join()


def left(shop: Shop) -> list[Path]:
    return list((packs_folder(shop.settings) / "fetching").iterdir())


def test_a_pack_is_fetched_checked_and_used(shop: Shop, site: PackSite) -> None:
    seen: list[tuple[int, int | None]] = []
    found = update_pack(f"{site.url}/2026-11-20.pack", shop.settings, progress=lambda *p: seen.append(p))
    assert found.date == "2026-11-20" == shop.in_use
    assert seen[-1] == (len(site.whole), len(site.whole)) and left(shop) == []


def test_a_fetch_that_breaks_off_goes_on_where_it_stopped(shop: Shop, site: PackSite) -> None:
    site.break_at = 2_500_000
    with pytest.raises(ModelError):
        update_pack(f"{site.url}/2026-11-20.pack", shop.settings)
    assert shop.in_use == "2026-11-01"
    had = (packs_folder(shop.settings) / "fetching" / "2026-11-20.pack").stat().st_size
    assert 0 < had <= 2_500_000
    assert update_pack(f"{site.url}/2026-11-20.pack", shop.settings).date == shop.in_use == "2026-11-20"
    assert site.ranges[-1] == f"bytes={had}-" and left(shop) == []


def test_a_fetched_pack_that_was_changed_is_refused_and_fetched_anew(shop: Shop, site: PackSite) -> None:
    good = site.whole
    site.whole = good[:70_000] + bytes([good[70_000] ^ 1]) + good[70_001:]
    with pytest.raises(NotAllowed, match="changed or damaged"):
        update_pack(f"{site.url}/2026-11-20.pack", shop.settings)
    assert shop.in_use == "2026-11-01"
    site.whole = good
    assert update_pack(f"{site.url}/2026-11-20.pack", shop.settings).date == shop.in_use
    assert site.ranges[-1] is None, "nothing of the wrong one was gone on with"


def test_a_missing_page_or_a_page_instead_of_a_pack_is_said(shop: Shop, site: PackSite) -> None:
    with pytest.raises(ModelError, match="404"):
        update_pack(f"{site.url}/missing.pack", shop.settings)
    with pytest.raises(BadInput, match="no address of a built-in catalog"):
        update_pack(f"{site.url}/page.html", shop.settings)
    site.whole = b"<html>Log in first</html>" * 100
    with pytest.raises(StorageError, match="damaged or none"):
        update_pack(f"{site.url}/2026-11-20.pack", shop.settings)
    assert shop.in_use == "2026-11-01"


def test_nobody_at_the_address_is_said(shop: Shop) -> None:
    with pytest.raises(ModelError, match="could not be downloaded"):
        update_pack("http://127.0.0.1:9/2026-11-20.pack", shop.settings)


# --- commands --------------------------------------------------------------------------------------------------------


def test_the_command_updates_goes_back_and_tells(
    shop: Shop, site: PackSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLSCOUT_PACK_KEYS", ",".join(shop.settings.pack_keys))
    monkeypatch.setenv("TOOLSCOUT_PACK", "default")
    assert execute(["catalog", "update"]) == 2, "no address is set"
    assert execute(["catalog", "update", "--from", "x.pack", "--back"]) == 2
    capsys.readouterr()
    monkeypatch.setenv("TOOLSCOUT_PACK_URL", f"{site.url}/2026-11-20.pack")
    assert execute(["catalog", "update", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["date"] == "2026-11-20"
    assert execute(["catalog", "update"]) == 7 and "in use already" in capsys.readouterr().err
    assert execute(["catalog", "stats", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["pack"]
    assert (told["date"], told["known_as_a_whole"], told["worked_calls"]) == ("2026-11-20", 2, 2)
    assert execute(["catalog", "update", "--back"]) == 0 and "2026-11-01" in capsys.readouterr().out
    assert execute(["catalog", "update", "--back"]) == 3
    monkeypatch.setenv("TOOLSCOUT_PACK", "off")
    capsys.readouterr()
    assert execute(["catalog", "update"]) == 0
    told = capsys.readouterr()
    assert "in use" not in told.out and "not searched while TOOLSCOUT_PACK is off" in told.err
    assert execute(["catalog", "stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pack"] == "off"
    assert execute(["catalog", "stats"]) == 0 and "built-in      off" in capsys.readouterr().out
