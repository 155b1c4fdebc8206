"""JSON Lines on disk (``.jsonl``, ``.jsonl.gz``): streaming reads with exact error places, atomic writes.

Text is normalised where it enters: a lone surrogate (half of a UTF-16 pair, as crawled pages hold them) becomes
U+FFFD, because no UTF-8 consumer behind us (database, tokenizer, protocol) can carry it. All other text is kept.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import ValidationError

from toolscout.errors import BadInput, NotFound
from toolscout.files import replacing
from toolscout.records import JsonObject, Record

MAX_LINE = 32 * 1024 * 1024
"""Longest line read, in bytes (after decompression): a larger one is an error, not an exhausted memory."""

R = TypeVar("R", bound=Record)
OnBad = Callable[[BadInput], None]

_SURROGATE = re.compile("[\ud800-\udfff]")
_BOM = b"\xef\xbb\xbf"


def well_formed(value: Any, *, deepest: int | None = None) -> Any:
    """The same JSON value with every lone surrogate (in texts and keys) replaced by U+FFFD; pairs are joined.

    A float that JSON cannot say (NaN, Infinity) becomes None, and so does what lies more than ``deepest`` levels down.
    """
    if isinstance(value, str):
        if _SURROGATE.search(value) is None:
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict | list) and deepest is not None:
        if deepest <= 0:
            return None
        deepest -= 1
    if isinstance(value, dict):
        return {well_formed(k): well_formed(v, deepest=deepest) for k, v in value.items()}
    if isinstance(value, list):
        return [well_formed(v, deepest=deepest) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_objects(path: Path | str, *, on_bad: OnBad | None = None) -> Iterator[tuple[int, JsonObject]]:
    """Stream ``(line number, object)`` of a JSON Lines file; blank lines are skipped, memory is one line.

    Args:
        path: ``.jsonl`` or ``.jsonl.gz`` (told by content, not by name).
        on_bad: called with the error of each malformed line, which is then skipped; without it the first one is raised.

    Raises:
        NotFound: the file does not exist.
        BadInput: a malformed line or a truncated file; the message starts with ``file:line:``.
    """
    path = Path(path)
    with _open_read(path) as stream:
        number = 0
        while True:
            number += 1
            try:
                line = stream.readline(MAX_LINE + 1)
                whole = len(line) <= MAX_LINE
                while not whole and line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_LINE)
            except (OSError, EOFError, zlib.error) as error:
                # Nothing after a broken gzip block can be read, so this ends the file even when bad lines are skipped.
                _report(
                    BadInput(f"{path}:{number}: the file breaks off: {error}.", "Fetch or export it again."), on_bad
                )
                return
            if not line:
                return
            try:
                if not whole:
                    raise BadInput(f"{path}:{number}: the line is longer than {MAX_LINE // 2**20} MiB.")
                found = _parse(line.removeprefix(_BOM) if number == 1 else line, f"{path}:{number}")
            except BadInput as error:
                _report(error, on_bad)
                continue
            if found is not None:
                yield number, found


def read_records(path: Path | str, record: type[R], *, on_bad: OnBad | None = None) -> Iterator[R]:
    """Stream the records of a JSON Lines file, validated. Arguments and errors as in `read_objects`."""
    for number, found in read_objects(path, on_bad=on_bad):
        try:
            parsed = parse_record(found, record, f"{path}:{number}")
        except BadInput as error:
            _report(error, on_bad)
            continue
        yield parsed


def parse_record(found: JsonObject, record: type[R], place: str) -> R:
    """One validated record. Raises `BadInput` whose message starts with ``place`` and names field and reason."""
    try:
        return record.model_validate(found)
    except ValidationError as error:
        reasons = [f"{'.'.join(map(str, e['loc'])) or 'record'}: {e['msg']}" for e in error.errors()[:3]]
        raise BadInput(f"{place}: not {_words(record.__name__)}: {'; '.join(reasons)}.") from None


def _words(name: str) -> str:
    """A class's name as people write it, with its article: "a structured row"."""
    return ("an " if name[0] in "AEIOU" else "a ") + re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def count_lines(path: Path | str) -> int:
    """How many lines a file has, for progress bars; of a file that breaks off, those before."""
    count = 0
    with _open_read(Path(path)) as stream, contextlib.suppress(OSError, EOFError, zlib.error):
        while block := stream.read(1 << 20):
            count += block.count(b"\n")
    return count


def write_records(path: Path | str, records: Iterable[Record]) -> int:
    """Write records as JSON Lines, gzip if the name ends in ``.gz``; returns how many.

    Atomic: the file appears under its name only when all of it is on disk; a failure leaves what was there before.
    gzip output holds no time or name, so equal records give equal bytes.

    Raises:
        StorageError: the folder cannot be written.
    """
    path = Path(path)
    count = 0
    with replacing(path) as raw, _compressed(raw) if path.suffix == ".gz" else contextlib.nullcontext(raw) as out:
        for record in records:
            out.write(_line(record))
            count += 1
    return count


def _line(record: Record) -> bytes:
    try:
        return record.to_json().encode() + b"\n"
    except UnicodeEncodeError:
        fixed = well_formed(record.model_dump(exclude_none=True))
        return json.dumps(fixed, ensure_ascii=False).encode() + b"\n"


def _parse(line: bytes, place: str) -> JsonObject | None:
    if not line.strip():
        return None
    try:
        found = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise BadInput(f"{place}: not UTF-8 text (byte {error.start + 1} of the line).") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{place}: not JSON: {error.msg} at column {error.colno}.", _hint(line)) from None
    except RecursionError:
        raise BadInput(f"{place}: the JSON is nested too deeply.") from None
    except ValueError as error:
        raise BadInput(f"{place}: not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise BadInput(f"{place}: a JSON object was expected, found {_kind(found)}.", _hint(line))
    if b"\\u" in line and (b"\\ud" in line or b"\\uD" in line):
        return dict(well_formed(found))
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _hint(line: bytes) -> str:
    if line.lstrip().startswith(b"["):
        return "The file looks like one JSON array; JSON Lines has one object per line."
    return "JSON Lines has one JSON object per line."


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null")


def _report(error: BadInput, on_bad: OnBad | None) -> None:
    if on_bad is None:
        raise error
    on_bad(error)


@contextlib.contextmanager
def _open_read(path: Path) -> Iterator[io.BufferedIOBase]:
    try:
        raw = path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.", "Check the path.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from None
    with raw:
        if raw.peek(2)[:2] == b"\x1f\x8b":
            # Its own readline gives every line before a break; a larger buffer around it would lose them.
            with gzip.GzipFile(fileobj=raw, mode="rb") as unzipped:
                yield unzipped
        else:
            yield raw


@contextlib.contextmanager
def _compressed(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    zipped = gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0)
    with zipped, io.BufferedWriter(zipped, 1 << 16) as out:
        yield out
