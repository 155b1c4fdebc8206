"""The command line. Thin: a command's own imports happen when it runs, so that ``--help`` and ``list`` are quick."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from toolscout.commands import (
    auditing,
    catalog,
    configuring,
    connecting,
    crawl,
    health,
    importing,
    listing,
    logging_in,
    logs,
    managing,
    models,
    reviewing,
    secrets,
    servers,
    synth_plans,
    synth_trajectories,
    synthesis,
    training,
    training_caller,
    updating,
    use,
)
from toolscout.commands.output import note
from toolscout.errors import BadInput, Interrupted, ToolscoutError

HELP = """Toolscout: the one MCP server that finds, writes and makes the calls to all the others."""

EXIT_CODES = {
    0: "done",
    1: "something failed that has no code of its own; a check of doctor or demo failed; you declined",
    2: "bad input: an unknown option or command, a malformed file, unusable values",
    3: "not found: no such tool, server, file or model; find and suggest: no tool fits",
    4: "arguments that do not match the tool's schema",
    5: "an upstream server failed or lists nothing, or the tool reported an error",
    6: "the model is missing, unreachable or answered nonsense",
    7: "refused on purpose: needs approval, a key, a sandbox or an extra that is not installed; a hash does not match",
    8: "the catalog, the index or a file cannot be read or written",
    130: "interrupted with Ctrl-C",
    141: "the reader of the output went away",
}
_INTERRUPTED = 130
_GO_ON = {"crawl", "import", "index", "model pull", "refresh", "synth", "train"}
"""Commands whose work is kept piece by piece. Those of ``eval`` say themselves what they keep, and where."""

app = typer.Typer(
    name="toolscout", help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)


def _version(asked: bool) -> None:
    if asked:
        from toolscout import __version__

        print(f"toolscout {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options that come before a command."""


for _name, _command, _short in (
    ("serve", health.serve, "Run the MCP server (stdio, or --http)."),
    ("demo", health.demo, "Show the main job on real servers."),
    ("import", importing.import_servers, "Take over your clients' servers."),
    ("connect", connecting.connect, "Add Toolscout to a client, or undo it."),
    ("add", servers.add, "Add a server."),
    ("remove", servers.remove, "Remove servers."),
    ("set", managing.set_server, "Change a server."),
    ("enable", managing.enable, "Switch servers on."),
    ("disable", managing.disable, "Switch servers off."),
    ("update", updating.update, "Bring packages to their newest version."),
    ("restart", managing.restart, "Start servers anew."),
    ("logs", logs.logs, "Show what a server wrote."),
    ("list", servers.list_servers, "List the configured servers."),
    ("login", logging_in.login, "Log in to a remote server."),
    ("refresh", listing.refresh, "List servers' tools again."),
    ("review", reviewing.review, "Approve or block tools."),
    ("doctor", health.doctor, "Check everything, say what to do."),
    ("find", use.find, "Find tools for what you want to do."),
    ("suggest", use.suggest, "Write the call for a task."),
    ("invoke", use.invoke, "Call a tool."),
    ("audit", auditing.audit, "Show the log of calls."),
    ("crawl", crawl.crawl, "Find servers, list their tools."),
):
    app.command(_name, short_help=_short, cls=servers.RunsCommand if _name in ("add", "set") else None)(_command)
app.add_typer(configuring.app, name="config")
app.add_typer(secrets.app, name="secret")
app.add_typer(catalog.app, name="catalog")
app.add_typer(catalog.index_app, name="index")
app.add_typer(models.app, name="model")
synthesis.app.registered_commands += synth_trajectories.app.registered_commands
synthesis.app.registered_commands += synth_plans.app.registered_commands
app.add_typer(synthesis.app, name="synth")
training.app.registered_commands += training_caller.app.registered_commands
app.add_typer(training.app, name="train")


@app.command("eval", short_help="Measure: every experiment, on your data.", context_settings={"help_option_names": []})
def evaluate() -> None:
    """Measure search, calls, plans, execution, agents and servers. See: toolscout eval --help"""
    # Only here to be listed: `execute` hands everything after `eval` to the evaluation's own command line.


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0, or a code of `EXIT_CODES` after one clear sentence on stderr."""
    code = execute(sys.argv[1:] if arguments is None else arguments)
    sys.exit(code)


def execute(arguments: Sequence[str]) -> int:
    """Run one command; its exit code. Expected failures become a sentence on stderr (or JSON with ``--json``)."""
    try:
        if arguments[:1] == ["eval"]:
            from toolscout.eval.cli import app as evaluation

            result = evaluation(args=list(arguments[1:]), prog_name="toolscout eval", standalone_mode=False)
        else:
            result = app(args=list(arguments), prog_name="toolscout", standalone_mode=False)
        sys.stdout.flush()
        if result == _INTERRUPTED:  # so Typer tells of Ctrl-C
            return _ended(arguments)
        return result if isinstance(result, int) else 0
    except Interrupted as error:  # by a command that knows what is kept
        note(error.sentence())
        return _INTERRUPTED
    except ToolscoutError as error:
        _report(error, arguments)
        return error.exit_code
    except (KeyboardInterrupt, EOFError):
        return _ended(arguments)
    except typer.Abort as abort:
        interrupted = isinstance(abort.__cause__ or abort.__context__, KeyboardInterrupt)
        return _ended(arguments) if interrupted else 1
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Typer's answer to it
            return _reader_gone()
        raise
    except Exception as error:
        usage = getattr(error, "format_message", None)  # Typer's own usage errors
        if usage is None:
            return _unexpected(error)
        text = usage()
        if type(error).__name__ == "NoArgsIsHelpError":  # nothing was asked: the help is the answer
            note(text)
        else:
            hint = f"See: {_asked(error, arguments)} --help"
            _report(BadInput(text if text.endswith((".", "?", "!")) else f"{text}.", hint), arguments)
        return int(getattr(error, "exit_code", BadInput.exit_code))


def _ended(arguments: Sequence[str]) -> int:
    """An interruption, and what it leaves behind."""
    first = " ".join(arguments[:1])
    if first == "invoke":
        print("Interrupted. If the call was on its way already, it may have been carried out.", file=sys.stderr)
    elif first in _GO_ON or " ".join(arguments[:2]) in _GO_ON:
        print("Interrupted. What was finished is kept; run the same command again to go on.", file=sys.stderr)
    elif first != "serve":
        print("Interrupted.", file=sys.stderr)
    return _INTERRUPTED


def _reader_gone() -> int:
    # What is still buffered cannot be written: without this, Python would complain when it shuts down.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _unexpected(error: Exception) -> int:
    """A fault of ours: one line for people, the traceback for those who ask."""
    if os.environ.get("TOOLSCOUT_DEBUG"):
        raise error
    text = f"{type(error).__name__}: {error}".strip().split("\n")[0]
    note(f"toolscout: something unexpected went wrong: {text}")
    print("This is a fault in Toolscout. Run it again with TOOLSCOUT_DEBUG=1 to see where.", file=sys.stderr)
    return 1


def _asked(error: Exception, arguments: Sequence[str]) -> str:
    """The command that a usage error is about, as one would type it."""
    context = getattr(error, "ctx", None)
    if context is not None:
        return str(context.command_path)
    # The parser's own errors (an option without its value) do not say whose they are: the words before tell.
    path, node, rest = "toolscout", typer.main.get_command(app), list(arguments)
    if rest[:1] == ["eval"]:
        from toolscout.eval.cli import app as evaluation

        path, node, rest = "toolscout eval", typer.main.get_command(evaluation), rest[1:]
    for word in rest:
        found = getattr(node, "commands", {}).get(word)
        if found is None:
            break
        path, node = f"{path} {word}", found
    return path


def _report(error: ToolscoutError, arguments: Sequence[str]) -> None:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in own and own[:1] != ["eval"]:
        failure = {"error": str(error), "hint": error.hint, "exit_code": error.exit_code}
        failure |= {"choices": error.choices} if error.choices else {}
        print(json.dumps(failure, ensure_ascii=False))
        sys.stdout.flush()
    note(f"toolscout: {error.sentence()}")
