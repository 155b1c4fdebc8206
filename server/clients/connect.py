"""Write Toolscout into a client's configuration: preview, backup, exact undo."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, NotAllowed, NotFound, StorageError
from toolscout.files import locked, replace_file
from toolscout.server.clients import edit
from toolscout.server.clients.documents import load_document, parse_document
from toolscout.server.clients.importing import plan_import
from toolscout.server.clients.known import Client, Machine, Place
from toolscout.server.clients.read import IS_DISABLED, IS_TOOLSCOUT, Reading, is_toolscout, read_place, usual
from toolscout.server.clients.redact import Redactor, mask_line
from toolscout.server.config import UpstreamConfig

NAME = "toolscout"


@dataclass(frozen=True)
class Change:
    """A planned edit of one file. ``before`` is None where the file does not exist yet, ``after`` where it goes."""

    client: str
    path: Path
    keys: tuple[str, ...]
    before: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)
    scope: str = "user"
    had: tuple[str, ...] = ()
    """Other servers of the file that Toolscout has too: the client need not load them any more."""

    only_here: tuple[str, ...] = ()
    """Other servers of the file that Toolscout does not have."""

    taken_out: tuple[str, ...] = ()
    """Those of ``had`` that the edit takes out."""

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values that stand with those that are taken out, by the names that Toolscout's entries refer to them by."""

    hidden: frozenset[str] = field(default_factory=frozenset, repr=False)
    """All values of the file's entries that are secrets, before and after."""

    @property
    def needed(self) -> bool:
        """Whether the file would change at all."""
        return self.before != self.after

    def diff(self) -> str:
        """A unified diff for people; values that look like secrets are masked in it."""
        old, new = ((data or b"").decode("utf-8-sig", "replace").splitlines() for data in (self.before, self.after))
        names = (
            "(no file)" if self.before is None else str(self.path),
            "(no file)" if self.after is None else str(self.path),
        )
        lines = difflib.unified_diff(old, new, *names, n=2, lineterm="")
        text = "\n".join(line if line.startswith(("---", "+++", "@@")) else mask_line(line) for line in lines)
        for value in sorted(self.hidden, key=len, reverse=True):
            lines_of = [line.strip() for line in value.splitlines()]
            for written in (value, json.dumps(value)[1:-1], *(line for line in lines_of if len(line) >= 8)):
                text = text.replace(written, "••••")
        return text


@dataclass
class _Record:
    """What was done to a file, for the undo."""

    client: str
    path: str
    keys: list[str]
    existed: bool
    backup: str | None
    after: str
    """SHA-256 of the file as it was left."""

    prune: int = 0
    """How many containers around the entry were made for it."""

    folders: list[str] = field(default_factory=list)
    """Folders that were made for the file, innermost first."""

    taken_out: dict[str, str] = field(default_factory=dict)
    """Servers that were taken out because Toolscout has them, and the backup that holds each."""


def own_command() -> tuple[str, list[str]]:
    """How a client starts this installation. Absolute: desktop programs do not see the shell's PATH."""
    parts = Path(sys.prefix).parts
    if "uv" in parts and any(part.startswith(("archive-v", "environments-v")) for part in parts):
        uvx = shutil.which("uvx")  # a throw-away environment of uvx: its path may be gone tomorrow
        if uvx:
            return uvx, ["toolscout", "serve"]
    folder = Path(sys.executable).parent
    for name in ("toolscout", "toolscout.exe"):
        script = folder / name
        if script.is_file() and os.access(script, os.X_OK):
            return str(script), ["serve"]
    return sys.executable, ["-P", "-m", "toolscout", "serve"]


def own_entry(client: Client, *, url: str | None = None, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Toolscout's entry in that client's form. Raises NotAllowed for a URL where the client takes only commands."""
    form = client.form
    if url:
        if form.url is None:
            raise NotAllowed(
                f"{client.title} takes only local commands in its file.",
                "Leave --url out, or add the URL as a connector in the program's settings.",
            )
        return {**form.remote, form.url: url}
    command, args = own_command()
    started = {form.command: command, form.args: args} if form.args else {form.command: [command, *args]}
    entry: dict[str, Any] = {**form.local, **started}
    home = (os.environ if environ is None else environ).get("TOOLSCOUT_HOME")
    if home:
        entry[form.env] = {"TOOLSCOUT_HOME": str(Path(home).expanduser().absolute())}
    return entry


def snippet(client: Client, machine: Machine, *, url: str | None = None) -> tuple[str, str]:
    """Where a person would add Toolscout by hand, and the text to put there."""
    entry = own_entry(client, url=url, environ=machine.env)
    if client.paste:
        return client.paste, edit.block(Path("paste.json"), ["mcpServers", NAME], entry)
    place = choose_place(client, machine)
    if place.path.is_file():
        place = place.within(load_document(place.path))
    return str(place.path), edit.block(place.path, [*place.key, NAME], entry)


def choose_place(client: Client, machine: Machine, *, project: bool = False, file: Path | None = None) -> Place:
    """The file to write: the given one, the project's, or the user's file that exists (or whose folder does)."""
    if client.paste:
        raise NotAllowed(
            f"{client.title} takes servers only in its settings: {client.paste}.",
            f"Paste there what `toolscout connect {client.id} --print` shows.",
        )
    places = list(client.places(machine))
    if file is not None:
        return replace(places[0], path=file.expanduser().absolute(), scope="user")
    wanted = [p for p in places if p.scope == ("project" if project else "user") and not p.old]
    if not wanted:
        raise NotAllowed(f"{client.title} has no project-level configuration.", "Leave --project out.")
    for test in (Path.is_file, lambda path: path.parent.is_dir()):
        for place in wanted:
            if test(place.path):
                return place
    return wanted[0]


def plan_connect(
    client: Client,
    machine: Machine,
    *,
    project: bool = False,
    file: Path | None = None,
    url: str | None = None,
    existing: Mapping[str, UpstreamConfig] | None = None,
    replace: bool = False,
) -> Change:
    """The edit that adds Toolscout, and with ``replace`` takes out the servers that are in ``existing`` too.

    Raises BadInput if the file cannot be parsed: it is never overwritten then.
    """
    place = choose_place(client, machine, project=project, file=file)
    before = _read(place.path)
    entry = own_entry(client, url=url, environ=machine.env)
    try:
        document = parse_document((before or b"").decode("utf-8-sig"), place.path)
        place = place.within(document)
        keys = (*place.key, NAME)
        after = (
            before if edit.lookup(document, keys) == entry else edit.with_entry(before or b"", place.path, keys, entry)
        )
        others = _others(document, client, place, machine, existing or {})
        taken_out = others.had if replace else ()
        for name in taken_out:
            after = edit.without_entry(after or b"", place.path, (*place.key, name))
    except (BadInput, UnicodeDecodeError) as error:
        text = str(error) if isinstance(error, BadInput) else f"{place.path} is not UTF-8 text."
        raise BadInput(text, f"Repair it, or paste what `toolscout connect {client.id} --print` shows.") from None
    secrets = {name: value for server in taken_out for name, value in others.secrets[server].items()}
    return Change(
        client.id, place.path, keys, before, after, place.scope, others.had, others.only_here, taken_out, secrets,
        _hidden(client, place, machine, before, after),
    )  # fmt: skip


@dataclass(frozen=True)
class _Others:
    """The other servers of a file: those that Toolscout runs too and the rest, and secrets by the former's name."""

    had: tuple[str, ...]
    only_here: tuple[str, ...]
    secrets: Mapping[str, Mapping[str, str]]


def _others(
    document: dict[str, Any], client: Client, place: Place, machine: Machine, existing: Mapping[str, UpstreamConfig]
) -> _Others:
    """The other servers that the client loads from this file: those that Toolscout runs too, and the rest.

    Two entries that differ only in their keys (two accounts of one service) are one server to an import: then only
    the one that Toolscout calls by the same name counts as its own.
    """
    enabled = {name: config for name, config in existing.items() if not config.disabled}
    loaded: list[str] = []
    found: dict[str, list[str]] = {}
    secrets: dict[str, Mapping[str, str]] = {}
    for entry in read_place(document, client, place, machine):
        ours = entry.name == NAME or entry.problem == IS_TOOLSCOUT
        if ours or entry.problem == IS_DISABLED or entry.scope != place.scope:
            continue
        loaded.append(entry.name)
        for item in plan_import(Reading([entry]), enabled).items:
            if item.same_as:
                found.setdefault(item.same_as, []).append(entry.name)
                secrets[entry.name] = item.secrets_as(enabled[item.same_as])
    had = {own if own in names else names[0] for own, names in found.items() if own in names or len(names) == 1}
    return _Others(tuple(n for n in loaded if n in had), tuple(n for n in loaded if n not in had), secrets)


def _hidden(client: Client, place: Place, machine: Machine, *versions: bytes | None) -> frozenset[str]:
    """The secrets of all entries of a file, in whatever state: each may stand in a line that a preview shows."""
    hidden: set[str] = set()
    for data in versions:
        try:
            document = parse_document((data or b"").decode("utf-8-sig"), place.path)
            entries = read_place(document, client, place, machine)
        except (BadInput, UnicodeDecodeError):  # whoever edits it says so
            continue
        redactor = Redactor(values={})
        for entry in entries:
            found = redactor.clean(entry.name, entry.config)[1]
            hidden.update(secret.value for secret in found if not secret.placeholder)
    return frozenset(hidden)


def apply_connect(change: Change, home: Path) -> Path | None:
    """Write a planned edit; where the backup is (None for a new file).

    Raises StorageError if the file has changed since the plan, or cannot be written.
    """
    if not change.needed or change.after is None:
        return None
    if _read(change.path) != change.before:
        raise StorageError(f"{change.path} has just been changed by another program.", "Run the command again.")
    journal = _Journal(home)
    previous = journal.get(change.path)
    existed = change.before is not None
    record = _Record(change.client, str(change.path), list(change.keys), existed, None, _sha(change.after))
    if previous is not None and change.before is not None and previous.after == _sha(change.before):
        record.existed, record.backup = previous.existed, previous.backup  # undo goes back to before the first time
        record.prune, record.folders = previous.prune, previous.folders
        record.taken_out = previous.taken_out
    elif change.before is None:
        record.prune = len(change.keys) - 1
        record.folders = [str(f) for f in change.path.parents if not f.exists()]
    else:
        document = parse_document(change.before.decode("utf-8-sig"), change.path)
        record.prune = sum(edit.lookup(document, change.keys[:d]) is None for d in range(1, len(change.keys)))
        if edit.lookup(document, change.keys) is None or change.taken_out:
            record.backup = str(_back_up(change, home))
        if previous is not None and previous.taken_out:  # edited since: put single servers back, not a whole file
            record.taken_out, record.after, record.prune = dict(previous.taken_out), "", previous.prune
    record.taken_out |= dict.fromkeys(change.taken_out, record.backup or "")
    journal.put(record)
    replace_file(change.path, change.after, mode=0o644 if change.scope == "project" else 0o600)
    return Path(record.backup) if record.backup else None


def plan_undo(
    client: Client, machine: Machine, home: Path, *, project: bool = False, file: Path | None = None
) -> Change:
    """The edit that takes Toolscout out again.

    A file that nobody touched since gets its old bytes back (or goes, if it was made by us); from another one only
    our entry is taken, and the servers that were taken out for it are put back. Raises NotFound if there is nothing to
    undo, BadInput if the file cannot be parsed.
    """
    place = choose_place(client, machine, project=project, file=file)
    before = _read(place.path)
    record = _Journal(home).get(place.path)
    if before is None:
        raise NotFound(f"There is nothing to undo: {place.path} does not exist.")
    try:
        document = parse_document(before.decode("utf-8-sig"), place.path)
    except UnicodeDecodeError:
        raise BadInput(f"{place.path} is not UTF-8 text; it was left alone.") from None
    keys = tuple(record.keys) if record else (*place.within(document).key, NAME)

    def change(after: bytes | None) -> Change:
        hidden = _hidden(client, place, machine, before, after)
        return Change(client.id, place.path, keys, before, after, place.scope, hidden=hidden)

    if record is not None and record.after == _sha(before):
        if not record.existed:
            return change(None)
        old = _read(Path(record.backup)) if record.backup else None
        if old is not None:  # where another Toolscout stood in it, that goes too
            return change(edit.without_entry(old, place.path, keys))
    entry = edit.lookup(document, keys)
    if entry is None or not (record or (isinstance(entry, dict) and is_toolscout(NAME, usual(entry)))):
        raise NotFound(f"There is nothing to undo: {place.path} has no entry of Toolscout.")
    prune = record.prune if record else 0
    after = edit.without_entry(before, place.path, keys, prune=prune)
    for name, backup in (record.taken_out if record else {}).items():
        old = _read(Path(backup))
        if old is None:
            raise NotFound(f"The backup {backup} is gone: it held {name}.", f"Edit {place.path} by hand.")
        back = edit.lookup(parse_document(old.decode("utf-8-sig"), place.path), (*keys[:-1], name))
        if isinstance(back, dict) and edit.lookup(document, (*keys[:-1], name)) is None:
            after = edit.with_entry(after, place.path, (*keys[:-1], name), back)
    return change(after)


def apply_undo(change: Change, home: Path) -> None:
    """Carry out a planned undo. Raises StorageError if the file has changed since the plan."""
    if _read(change.path) != change.before:
        raise StorageError(f"{change.path} has just been changed by another program.", "Run the command again.")
    journal = _Journal(home)
    record = journal.get(change.path)
    if change.after is not None:
        replace_file(change.path, change.after, mode=0o600)
    else:
        change.path.resolve().unlink()
        for folder in map(Path, record.folders if record else ()):
            if not folder.is_dir() or any(folder.iterdir()):
                break
            folder.rmdir()
    journal.drop(change.path)


class _Journal:
    """``connections.json`` in the home folder: which files were changed, and how to undo it."""

    def __init__(self, home: Path) -> None:
        self._path = home / "connections.json"

    def get(self, path: Path) -> _Record | None:
        raw = self._load().get(str(path))
        try:
            return _Record(**raw) if isinstance(raw, dict) else None
        except TypeError:
            return None

    def put(self, record: _Record) -> None:
        with locked(self._path):
            self._save({**self._load(), record.path: asdict(record)})

    def drop(self, path: Path) -> None:
        with locked(self._path):
            self._save({key: value for key, value in self._load().items() if key != str(path)})

    def _load(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _save(self, records: Mapping[str, Any]) -> None:
        replace_file(self._path, json.dumps(records, indent=2) + "\n", mode=0o600)


def _back_up(change: Change, home: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = home / "backups"
    number = 0
    while True:
        extra = f"-{number}" if number else ""
        path = folder / f"{change.client}-{stamp}{extra}-{change.path.name.lstrip('.')}"
        if not path.exists():
            break
        number += 1
    replace_file(path, change.before or b"", mode=0o600)
    return path


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}.") from None


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
