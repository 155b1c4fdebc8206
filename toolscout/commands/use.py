"""``find``, ``suggest``, ``invoke``: the server's three tools from the command line, through the same engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from toolscout.commands.output import AsJson, confirm, emit, note, out, printable, progress, say, with_engine
from toolscout.errors import BadInput, InvalidArguments, NotAllowed, NotFound, ToolscoutError, UpstreamError

if TYPE_CHECKING:
    from toolscout.server.engine import Engine
    from toolscout.settings import Settings


def find(
    query: Annotated[str, typer.Argument(help="What you want to do, in plain words (English finds most).")],
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=1, max=50, help="How many tools to aim for; up to twice as many if about as good."
        ),
    ] = 5,
    server: Annotated[
        list[str] | None, typer.Option(help="Search only this server. Repeatable.", show_default=False)
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Only tools that declare to change nothing.")] = False,
    ready: Annotated[bool, typer.Option("--ready", help="Only tools that can be called right now.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With descriptions and input schemas.")] = False,
    exemplars: Annotated[int, typer.Option(min=0, max=10, help="Worked examples to show for each tool.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Find the tools that fit what you want to do. Exits with 3 if none fits."""
    settings, pack_date = _settings_and_pack(ready)
    answer = with_engine(
        lambda engine: engine.find_tools(
            query,
            limit=limit,
            detail="full" if full else "compact",
            exemplars=exemplars,
            servers=server,
            read_only=read_only,
            ready_only=ready,
        ),
        settings=settings,
    )
    if as_json:
        emit(answer)
    else:
        _show_found(answer)
        if pack_date and any(tool["state"] != "ready" for tool in answer["tools"]):
            note(f"Not installed: known from the built-in catalog of {pack_date}.")
    if answer["no_match"]:
        raise typer.Exit(NotFound.exit_code)


def _settings_and_pack(ready: bool) -> tuple[Settings, str]:
    """The settings of a search, and the date of the pack that it reaches, if any.

    On an empty home the pack is searched by itself: starting the starter set first would take seconds.
    """
    from toolscout.index.pack.current import find_pack
    from toolscout.settings import load_settings

    settings = load_settings()
    try:
        found = find_pack(settings)
    except ToolscoutError:
        found = None  # the search says what is wrong
    if found is not None and not ready and settings.starter and not settings.servers_file.exists():
        settings = settings.model_copy(update={"starter": False})
        note("Nothing is installed here yet. Three small servers to try: toolscout add starter")
    return settings, found.manifest.date if found is not None else ""


def _show_found(answer: dict[str, Any]) -> None:
    from rich.text import Text

    console = out()
    for tool in answer["tools"]:
        head = Text.assemble(
            (printable(tool["tool_id"]), "bold cyan"),
            f"  {tool['score']:.2f}  ",
            (tool["state"], "green" if tool["state"] == "ready" else "yellow"),
            f"  {printable(tool['publisher'])}" if "publisher" in tool else "",
        )
        console.print(head)
        if "needs" in tool:
            console.print(Text(printable(f"    needs {', '.join(tool['needs'])}"), style="yellow"))
        console.print(Text("    " + printable(tool["summary"])))
        if "kind" not in tool:
            console.print(Text(f"    ({printable(tool['signature'])})", style="dim"))
        if "description" in tool:
            console.print(Text(_indented(tool["description"].strip())))
            console.print(Text(_indented(json.dumps(tool["input_schema"], indent=2, ensure_ascii=False)), style="dim"))
        for exemplar in tool.get("exemplars", ()):
            text = f"    e.g. {exemplar['request']} -> {json.dumps(exemplar['arguments'], ensure_ascii=False)}"
            console.print(Text(printable(text), style="dim"))
    if answer["no_match"]:
        console.print(Text("No tool fits."))
        for near in answer.get("nearest", ()):
            console.print(Text(f"    near: {printable(near['tool_id'])}  {printable(near['summary'])}", style="dim"))
    if answer.get("advice"):
        note(answer["advice"])


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in printable(text).split("\n"))


def suggest(
    task: Annotated[str, typer.Argument(help="The task, with every value that the call needs.")],
    tool: Annotated[
        list[str] | None, typer.Option(help="Choose among these tool ids. Repeatable.", show_default="search")
    ] = None,
    context: Annotated[str, typer.Option(help="What happened so far.", show_default=False)] = "",
    steps: Annotated[int, typer.Option(min=1, max=10, help="More than 1 asks for a plan.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Write the call for a task. It is only shown, not made. Exits with 3 if no tool fits."""
    answer = with_engine(lambda engine: engine.suggest_call(task, tool, context=context, steps=steps))
    if as_json:
        emit(answer)
    else:
        _show_suggestion(answer)
    if answer["abstained"] and not answer["calls"]:
        raise typer.Exit(NotFound.exit_code)


def _show_suggestion(answer: dict[str, Any]) -> None:
    for call in answer["calls"]:
        arguments = json.dumps(call.get("skeleton") or call["arguments"], ensure_ascii=False)
        step = f"{call['id']}: " if call.get("id") else ""
        state = "ready" if call["ready"] else "not ready"
        say(f"{step}toolscout invoke {_quoted(call['tool_id'])} {_quoted(arguments)}")
        unsure = answer.get("model") and call["confidence"] < _UNSURE
        warning = "; the model is unsure: read tool and arguments first" if unsure else ""
        if call.get("advice"):
            say(f"    {call['advice']}")
        say(f"    {state}, confidence {call['confidence']:.2f}{warning}")
        if call["missing"]:
            say(f"    missing: {', '.join(map(printable, call['missing']))}")
        if call.get("signature"):
            say(f"    ({call['signature']})")
        if call.get("depends_on"):
            say(f"    after {', '.join(call['depends_on'])}")
    if answer.get("alternatives"):
        say(f"alternatives: {', '.join(map(printable, answer['alternatives']))}")
    if answer.get("reason"):
        note(answer["reason"])


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(printable(text))


def invoke(
    tool_id: Annotated[str, typer.Argument(help="As `toolscout find` shows it.")],
    arguments: Annotated[str, typer.Argument(help="A JSON object, @FILE, or - for stdin.")] = "{}",
    timeout: Annotated[
        float | None, typer.Option(min=0.1, max=3600, help="Seconds to wait.", show_default="60")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the arguments, do not make the call.")] = False,
    as_json: AsJson = False,
) -> None:
    """Call a tool. Its answer goes to stdout, an error to stderr.

    Where the policy wants a person to approve the call, it is shown and asked about on the terminal.

    Exits with 3 for a tool that is unknown or not installed, 4 for wrong arguments, 5 if the tool or its server fails,
    7 if it may not be called: it is quarantined, the policy refuses it, or its server needs a key or is not available.
    """
    given = read_arguments(arguments)

    async def work(engine: Engine) -> tuple[Any, int]:
        from toolscout.server.asking import Asking
        from toolscout.server.client_identity import local_identity

        asking = Asking(installs=False) if sys.stdin.isatty() else None

        async def call(**answer: Any) -> Any:
            with progress(tool_id) as tick:

                async def report(done: float, total: float | None, message: str | None) -> None:
                    tick(done, total)

                return await engine.invoke(
                    tool_id, given, timeout_s=timeout, dry_run=dry_run, on_progress=report, asking=asking,
                    client=lambda: local_identity("cli"), **answer,
                )  # fmt: skip

        result = await call()
        if (answer := _asked(result)) is not None:
            result = await call(**answer)
        return result, await _exit_code(engine, result, tool_id, given)

    result, code = with_engine(work)
    if as_json:
        emit(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    else:
        _show_result(result, sys.stderr if code else sys.stdout)
    if not hasattr(result, "content"):
        raise UpstreamError("The tool asks for input that the command line cannot give.", "Use it from an MCP client.")
    if code:
        raise typer.Exit(code)


def _asked(result: Any) -> dict[str, Any] | None:
    """The answer to the policy's question, which is asked here; None if the result is none."""
    from toolscout.server.policy.approval import KEY, a_yes

    question = (getattr(result, "input_requests", None) or {}).get(KEY)
    if question is None:
        return None
    note(question.params.message)
    confirm("Make this call?", yes=False)
    return {"input_responses": {KEY: a_yes()}, "request_state": result.request_state}


async def _exit_code(engine: Engine, result: Any, tool_id: str, arguments: Any) -> int:
    """Whose fault an error result is: an unknown or refused tool, wrong arguments, or the tool itself."""
    if not getattr(result, "is_error", False):
        return 0
    if isinstance(said := getattr(result, "structured_content", None), dict) and "refused" in said:
        return NotAllowed.exit_code
    if refusal := engine.invoker.refusal(tool_id):
        return refusal.exit_code
    from toolscout.validation import unwrap_envelope, validate

    tool = (await engine.index()).get_tool(tool_id)
    schema = tool.input_schema if tool is not None else {}
    try:
        wrong = bool(validate(unwrap_envelope(tool_id, arguments, schema), schema))
    except InvalidArguments:
        wrong = True
    return InvalidArguments.exit_code if wrong else UpstreamError.exit_code


def read_arguments(text: str) -> dict[str, Any] | str:
    """A call's arguments: a JSON object, ``@FILE`` or ``-``. Raises BadInput, NotFound (no such file)."""
    if text == "-":
        text, where = sys.stdin.read(), "stdin"
    elif text.startswith("@"):
        path = Path(text[1:]).expanduser()
        try:
            text, where = path.read_text("utf-8-sig"), str(path)
        except FileNotFoundError:
            raise NotFound(f"There is no file {path}.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path} cannot be read: {error}.") from None
    else:
        where = "the arguments"
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise BadInput(f"{where[0].upper()}{where[1:]} are not valid JSON: {error}.", _EXAMPLE) from None
    if not isinstance(value, dict):
        raise BadInput("Arguments must be a JSON object.", _EXAMPLE)
    return value


_UNSURE = 0.3
"""Confidence of a suggestion under which people are told to look twice."""

_EXAMPLE = """For example: toolscout invoke time/get_current_time '{"timezone": "Asia/Tokyo"}'"""


def _show_result(result: Any, stream: TextIO) -> None:
    def write(text: str) -> None:
        print(text, file=stream)

    blocks = getattr(result, "content", None) or []
    for block in blocks:
        kind = getattr(block, "type", "")
        if kind == "text":
            write(printable(block.text) if stream.isatty() else block.text)
        elif kind == "resource" and getattr(block.resource, "text", None) is not None:
            write(block.resource.text)
        elif kind == "resource_link":
            write(f"[{kind}: {printable(str(block.uri))}]")
        else:
            size = len(getattr(block, "data", "") or "") * 3 // 4
            write(
                f"[{kind}: {getattr(block, 'mime_type', None) or 'unknown type'}, {size:,} bytes; see it with --json]"
            )
    structured = getattr(result, "structured_content", None)
    if not blocks and structured is not None:
        write(json.dumps(structured, indent=2, ensure_ascii=False))
