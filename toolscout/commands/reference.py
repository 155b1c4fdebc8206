"""docs/CLI.md, written from the commands themselves: ``python -m toolscout.commands.reference > docs/CLI.md``.

It reads the functions' signatures and docstrings, not Typer's own objects: those differ between Typer's releases.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

HEAD = """# Command line

Written from the code by `python -m toolscout.commands.reference`; a test holds the two together.

Answers go to stdout, everything else (progress, questions, remarks, errors) to stderr. With `--json` a command writes
one JSON value to stdout and nothing else; a failure is then `{"error", "hint", "exit_code"}`. The `eval` commands
print tables and write that value to a file: `--json FILE`. Progress bars appear only on a terminal. What would change
something asks first; `--yes` answers, and without a terminal the answer is no.

Settings are environment variables `TOOLSCOUT_...` (see `toolscout/settings.py`); `TOOLSCOUT_HOME` is where everything
is kept. `TOOLSCOUT_DEBUG=1` shows the traceback of a fault.
"""

_VALUES: dict[Any, str] = {int: "N", float: "NUMBER", Path: "PATH", str: "TEXT"}


@dataclass(frozen=True)
class Parameter:
    """One argument or option of a command, as a person writes it."""

    written: str
    help: str
    default: str
    is_option: bool


@dataclass(frozen=True)
class Command:
    """One command: its path (``toolscout model pull``), what it does, its parameters."""

    path: str
    text: str
    parameters: list[Parameter]


def commands() -> list[Command]:
    """Every command of the command line, in its order."""
    from toolscout.cli import app

    return list(_walk(app, "toolscout"))


def render() -> str:
    """The whole page as Markdown."""
    from toolscout.cli import EXIT_CODES

    found = commands()
    parts = [HEAD, "## Exit codes\n", "| code | meaning |\n|---|---|"]
    parts += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    parts += ["\n## Commands\n", "| command | |\n|---|---|"]
    parts += [f"| [`{c.path}`](#{c.path.replace(' ', '-')}) | {_cell(_first(c.text))} |" for c in found]
    parts += [_section(command) for command in found]
    return "\n".join(parts).rstrip() + "\n"


def _walk(app: typer.Typer, path: str) -> Iterator[Command]:
    for info in app.registered_commands:
        callback = info.callback
        if callback is None:
            continue
        here = f"{path} {info.name or callback.__name__.replace('_', '-')}"
        if here == "toolscout eval":
            from toolscout.eval.cli import app as evaluation

            yield from _walk(evaluation, here)
            continue
        yield Command(here, _text(info.help or callback.__doc__ or ""), list(_parameters(callback)))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _walk(group.typer_instance, f"{path} {group.name}")


def _parameters(callback: Callable[..., Any]) -> Iterator[Parameter]:
    hints = get_type_hints(callback, include_extras=True)
    for name, parameter in inspect.signature(callback).parameters.items():
        kind, *extras = get_args(hints[name]) if hasattr(hints[name], "__metadata__") else (hints[name],)
        info: Any = next((e for e in extras if hasattr(e, "param_decls")), parameter.default)
        if not hasattr(info, "param_decls"):
            continue
        default = parameter.default
        if hasattr(default, "param_decls"):  # `name: type = typer.Option(default, ...)`
            default = ... if default.default is ... else default.default
        yield _parameter(name, kind, info, default)


def _parameter(name: str, kind: Any, info: Any, default: Any) -> Parameter:
    required = default is inspect.Parameter.empty or default is ...
    types = [t for t in (get_args(kind) or (kind,)) if t is not type(None)]
    many = any(getattr(t, "__origin__", None) is list or t is list for t in (kind, *types))
    inner = next((a for t in (kind, *types) for a in get_args(t) if a in _VALUES), types[0])
    shown = info.show_default if isinstance(info.show_default, str) else ""
    first = [info.default] if isinstance(info.default, str) and info.default.startswith("-") else []  # in Annotated
    declared = [*first, *(info.param_decls or ())]
    if isinstance(info, typer.models.ArgumentInfo):
        written = info.metavar or f"{name.upper()}{'...' if many else ''}"
        if not required and not written.startswith("["):
            written = f"[{written}]"
    elif kind is bool:
        names = declared or [f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}"]
        written = ", ".join(names)
        shown = "" if declared else f"`{names[not default]}`"
    else:
        names = declared or [f"--{name.replace('_', '-')}"]
        value = info.metavar or _VALUES.get(inner, "TEXT")
        written = ", ".join(f"{n} {value}" for n in names)
    if required:
        shown = "required"
    elif not shown and kind is not bool and default not in (None, "", (), []) and info.show_default is not False:
        shown = f"`{getattr(default, 'value', default)}`"
    return Parameter(written, info.help or "", shown, not isinstance(info, typer.models.ArgumentInfo))


def _section(command: Command) -> str:
    options = any(p.is_option for p in command.parameters)
    usage = [command.path, *(["[OPTIONS]"] if options else [])]
    usage += [p.written for p in command.parameters if not p.is_option]
    lines = [f"\n### {command.path}\n", command.text, f"\n```\n{' '.join(usage)}\n```"]
    if command.parameters:
        lines.append("\n| | | default |\n|---|---|---|")
        ordered = sorted(command.parameters, key=lambda p: p.is_option)
        lines += [f"| `{_cell(p.written)}` | {_cell(p.help)} | {_cell(p.default)} |" for p in ordered]
    return "\n".join(lines)


def _text(doc: str) -> str:
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(doc))
    return "\n\n".join(re.sub(r"\s+", " ", paragraph) for paragraph in paragraphs)


def _first(text: str) -> str:
    return re.split(r"(?<=[.])\s", text.split("\n\n")[0])[0]


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


if __name__ == "__main__":
    print(render(), end="")
