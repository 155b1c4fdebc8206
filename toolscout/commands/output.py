"""What commands share: JSON or text on stdout, everything else on stderr, a progress bar only for a person."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from toolscout.server.engine import Engine
    from toolscout.settings import Settings

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable: one JSON value on stdout, nothing else.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, do it.")]


def emit(value: Any) -> None:
    """One JSON value on stdout, what a terminal would obey escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    print("".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text))


def say(text: str = "") -> None:
    """A line of the answer, on stdout; see `printable`."""
    print(printable(text))


def note(text: str) -> None:
    """A remark for a person, on stderr; see `printable`."""
    print(printable(text), file=sys.stderr)


def out() -> Console:
    """A rich console on stdout: colours on a terminal, plain text in a pipe, never cut to a width."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def table(rows: list[list[str]], header: list[str]) -> None:
    """Aligned columns on stdout. Text of others (names, descriptions) is printed literally, never as markup."""
    shown = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(len(row[column]) for row in [header, *shown]) for column in range(len(header))]
        for row in [header, *shown]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in header:
        grid.add_column(title, overflow="fold")
    for row in shown:
        grid.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(grid)


def show_diff(diff: str) -> None:
    """A unified diff on stdout, colored on a terminal."""
    from rich.text import Text

    console = out()
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in diff.split("\n"):
        console.print(Text(printable(line), style=styles.get(line[:1], "")))


def printable(text: str) -> str:
    """Text of a foreign server without control characters: it cannot move the cursor or rewrite the screen."""
    return "".join(c if c == "\n" or c == "\t" or c.isprintable() else "�" for c in text)


def confirm(question: str, yes: bool) -> bool:
    """Ask on stderr; ``yes`` answers by itself. Without a terminal the answer is no, and it is said what to do."""
    if yes:
        return True
    if not sys.stdin.isatty():
        note("Nothing was done: there is no terminal to ask on. Add --yes to go ahead.")
        raise typer.Exit(1)
    with redirect_stdout(sys.stderr):  # where the prompt is written to a space goes to stdout all the same
        agreed = typer.confirm(printable(question), err=True)
    if not agreed:
        note("Nothing was done.")
        raise typer.Exit(1)
    return True


def agreed(question: str) -> bool:
    """Ask on stderr; yes is the default."""
    with redirect_stdout(sys.stderr):
        return typer.confirm(printable(question), default=True, err=True)


def ask(question: str, *, hidden: bool = False, default: str | None = None) -> str:
    """Ask for a value on stderr, again until there is one or the default is taken. Without ``hidden`` it is echoed."""
    with redirect_stdout(sys.stderr):
        answer = typer.prompt(printable(question), default, hide_input=hidden, show_default=False, err=True)
    return str(answer).strip()


def said_to_stay(names: Sequence[str], file: str) -> str:
    """Names of kept secrets whose value another one of ``file`` did not replace, as a sentence."""
    return (
        f"Kept already with another value than in {file}, which stays: {', '.join(names)}. "
        "To change one: toolscout secret set NAME"
    )


@contextmanager
def progress(label: str) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr: call with what is done and the total (None: unknown), and what is being done, if that
    is to be shown. Silent without a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total, doing="": None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total, doing="": bar.update(
            task, completed=done, total=total, description=f"{label}{doing and ', '}{escape(printable(doing))}"
        )


def counting(tick: Callable[[float, float | None], None]) -> Callable[..., None]:
    """A progress callback for work that reports (what,) done and total."""

    def report(*parts: Any) -> None:
        done, total = [part for part in parts if isinstance(part, (int, float))][:2]
        tick(done, total)

    return report


def with_engine(
    work: Callable[[Engine], Awaitable[T]], *, settings: Settings | None = None, logins: bool | None = None
) -> T:
    """Run one piece of work on the engine that the server uses too, and close it properly.

    ``logins``: whether a login that is due opens the browser; by default where a person sits at a terminal.
    """
    from toolscout.server.engine import Engine
    from toolscout.server.stdio import renew
    from toolscout.settings import load_settings

    logins = sys.stdin.isatty() and sys.stderr.isatty() if logins is None else logins

    async def main() -> T:
        async with Engine(settings or load_settings(), terminal=True, logins=logins) as engine:
            result = await work(engine)
            await renew(engine)
            return result

    return asyncio.run(main())
