"""``toolscout eval``: measures retrieval and calls on files of the data contract. See docs/EVALUATION.md."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from toolscout.errors import BadInput, ToolscoutError
from toolscout.eval.adopt.cli import adopt
from toolscout.eval.agent.cli import agent
from toolscout.eval.apibank.cli import apibank
from toolscout.eval.command import Measuring
from toolscout.eval.diversity.cli import diversity
from toolscout.eval.execute.cli import execute
from toolscout.eval.guard.cli import guard
from toolscout.eval.needle.cli import needle
from toolscout.eval.pack.cli import pack
from toolscout.eval.plans.cli import plan
from toolscout.eval.provenance import write_result
from toolscout.eval.servers.cli import servers
from toolscout.eval.setup.cli import setup
from toolscout.eval.strategies.cli import strategies
from toolscout.eval.work_file import alone, work_place
from toolscout.files import replace_file

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="Measure search, calls, plans, execution, agents and servers, on your own tools and requests.",
)

Files = Annotated[
    list[Path], typer.Option(help="Files of requests with their gold calls (.jsonl, .jsonl.gz); several may follow.")
]


app.command("adopt", cls=Measuring, short_help="Read other benchmarks' files (BFCL, ACEBench).")(adopt)
app.command("agent", cls=Measuring, short_help="Tasks by an agent, in three arms.")(agent)
app.command("diversity", cls=Measuring, short_help="How various requests are.")(diversity)
app.command("execute", cls=Measuring, short_help="Make calls for real, judge the outcome.")(execute)
app.command("apibank", cls=Measuring, short_help="Search turn by turn in dialogues.")(apibank)
app.command("guard", cls=Measuring, short_help="Poisoned tools held back, false alarms.")(guard)
app.command("needle", cls=Measuring, short_help="One tool hidden in growing pools.")(needle)
app.command("pack", cls=Measuring, short_help="The built-in catalog, and below your servers.")(pack)
app.command("plan", cls=Measuring, short_help="Requests that take several calls.")(plan)
app.command("servers", cls=Measuring, short_help="Servers that do the same, side by side.")(servers)
app.command("setup", cls=Measuring, short_help="Look at your own servers.")(setup)
app.command("strategies", cls=Measuring, short_help="All tools, keyword match or search in a prompt.")(strategies)


@app.command(cls=Measuring, short_help="Search: recall, abstention, latency, peers.")
def retrieval(
    tools: Annotated[list[Path], typer.Option(help="Files of tools: the pool. Several may follow.")],
    calls: Files,
    servers: Annotated[list[Path] | None, typer.Option(help="Files of the tools' servers, if there are any.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page, the result and every row to this folder.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask only so many rows, the same ones every time.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the rows of --limit.")] = 0,
    peers: Annotated[
        str,
        typer.Option(help="Also measure these: fastmcp, fastmcp-regex, bm25s, bm25s-words, mcp-zero (commas between)."),
    ] = "",
    peer_encoder: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FOLDER", help="Also measure the plain vectors of the ONNX encoder in this folder."),
    ] = None,
    peer_command: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COMMAND", help="Also measure this program; see docs/EVALUATION.md, Peers."),
    ] = None,
    requests: Annotated[
        Path | None, typer.Option(help="Structured {server, tool} requests of the rows, to compare with plain queries.")
    ] = None,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="Measure what each part of the search is worth.")
    ] = False,
    refit: Annotated[
        bool, typer.Option("--refit", help="With --ablation: also with the weights of the rest fitted again.")
    ] = False,
    exemplars: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --ablation: files of other requests whose calls serve as exemplars; several may follow."
        ),
    ] = None,
    copies: Annotated[
        bool,
        typer.Option("--copies", help="Copies of a relevant tool are relevant, too: for pools joined from several."),
    ] = False,
    languages: Annotated[
        bool, typer.Option("--languages", help="Also by language, guessed where a row tells only the script.")
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Refusal curve, calibration and answer lengths go into --json, too.")
    ] = False,
    misses: Annotated[Path | None, typer.Option(help="Write the rows to read to this Markdown file.")] = None,
    encoder: Annotated[str, typer.Option(help="Encoder: default, a folder, st:MODEL or openai:MODEL.")] = "",
    cache: Annotated[Path | None, typer.Option(help="Keep embeddings here for later runs.")] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Answers and finished parts go here at once; the same command goes on after an interruption. Gone at "
            "the end. Default: beside --json or in --report."
        ),
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json to count answer tokens with.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as NAME=VALUE.")] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Build a throw-away index of the tools, ask every request, report recall, abstention, latency and cost."""
    from toolscout.eval.peers import PeerPlan
    from toolscout.eval.peers.report import NO_PLOT, PLOT
    from toolscout.eval.report import retrieval_report, retrieval_tables
    from toolscout.eval.retrieval.extras import Extras
    from toolscout.eval.retrieval.measure import RetrievalFiles, measure_retrieval

    if details and json_out is None and report is None:
        raise BadInput("--details go into --json or --report.", "Give --json FILE, or --report FOLDER.")
    work = work_place(work, json_out, report)
    run = measure_retrieval(
        RetrievalFiles(tools, calls, servers or []),
        settings=_settings(settings, encoder=encoder),
        limit=limit,
        seed=seed,
        cache=cache,
        tokenizer=tokenizer,
        peers=PeerPlan(
            names=[name.strip() for name in peers.split(",") if name.strip()],
            encoders={name: Path(value) for name, value in _named(peer_encoder, "--peer-encoder").items()},
            commands=_named(peer_command, "--peer-command"),
        ),
        extras=Extras(
            copies=copies,
            requests=requests,
            ablation=ablation,
            refit=refit,
            exemplars=exemplars or (),
            misses=misses is not None or report is not None,
            languages=languages,
        ),
        work=work,
        say=_say(quiet),
    )
    everything = {**run.result, **run.details}
    if json_out is not None:
        write_result(json_out, everything if details else run.result)
    if misses is not None:
        replace_file(misses, run.misses)
    if report is not None:
        page = retrieval_report(run, report)
        _say(quiet)(f"report: {page}")
        if "peers" in run.result and not (report / f"{PLOT}.svg").is_file():
            _say(quiet)(NO_PLOT)
    if work is not None and not any("failed" in part for part in run.result.get("peers", {}).values()):
        # The same command measures a changed search again and again: nothing of a finished run may stand for the next.
        with suppress(ToolscoutError, OSError), alone(work):  # another run has begun to write to it: its file stays
            work.unlink(missing_ok=True)
    _show(quiet, retrieval_tables(everything if details else run.result))


@app.command(cls=Measuring, short_help="Calls a model writes: Tool, Param, AST.")
def calls(
    tools: Annotated[list[Path], typer.Option(help="Files of tools: the candidates' pool. Several may follow.")],
    calls: Files,
    servers: Annotated[
        list[Path] | None, typer.Option(help="Files of the tools' servers: they say which marketplace a tool is from.")
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(min=1, help="Tools offered for each request, the right one included.", show_default="10"),
    ] = None,
    model: Annotated[str, typer.Option(help="Model: a name of `toolscout model list`, or the endpoint's.")] = "",
    model_url: Annotated[str, typer.Option(help="OpenAI-compatible endpoint instead of a local model.")] = "",
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page, the result and every row to this folder.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask only so many rows, the same ones every time.")] = None,
    seed: Annotated[int, typer.Option(help="Draws distractors, their order, and the rows of --limit.")] = 0,
    work: Annotated[
        Path | None,
        typer.Option(help="Every row goes here at once; a later run goes on. Default: beside --json or in --report."),
    ] = None,
    decoding: Annotated[
        str,
        typer.Option(
            help="free: as the model writes; constrained: by a grammar; repair: and checked, wrong values asked again; "
            "schema: by JSON Schema and checked, as endpoints without grammars are asked."
        ),
    ] = "repair",
    exemplars: Annotated[
        list[Path] | None,
        typer.Option(help="Files of other requests: the nearest five that call a candidate go into the prompt."),
    ] = None,
    any_tool: Annotated[
        bool, typer.Option("--any-tool", help="--exemplars: the nearest five of all, whichever tool they call.")
    ] = False,
    compare: Annotated[
        str, typer.Option(help="Measure several settings side by side: candidates, decoding or exemplars.")
    ] = "",
    sizes: Annotated[
        str | None,
        typer.Option(help="Numbers of candidates for --compare candidates.", show_default="1,5,10,20,50,100"),
    ] = None,
    random_tools: Annotated[
        int, typer.Option(min=0, help="Also let so many random tools be called for random requests: is all valid?")
    ] = 0,
    without_gold: Annotated[
        str, typer.Option(help="Take the right tools away: random others, or siblings on their servers. Is it refused?")
    ] = "",
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as NAME=VALUE.")] = None,
    quiet: Annotated[bool, typer.Option(help="No progress and no table.")] = False,
) -> None:
    """Let the model write the call for every request, report Tool, Param and AST accuracy and abstention."""
    from toolscout.eval.calls.commands import CallsOptions, measure

    options = CallsOptions(
        tools=tools,
        calls=calls,
        servers=servers or [],
        settings=_settings(settings, model=model, model_url=model_url),
        candidates=candidates,
        limit=limit,
        seed=seed,
        work=work_place(work, json_out, report),
        decoding=decoding,
        exemplars=exemplars or [],
        any_tool=any_tool,
        compare=compare,
        sizes=sizes,
        random_tools=random_tools,
        without_gold=without_gold,
        json_out=json_out,
        report=report,
    )
    _show(quiet, measure(options, _say(quiet)))


@app.command(cls=Measuring, short_help="Results by share of the training data.")
def scaling(
    runs: Annotated[
        list[str],
        typer.Option(metavar="SHARE=FILE", help="Share of the training data, and what eval calls --json wrote."),
    ],
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the points to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves into this PNG file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page, the points and the plot to this folder.")] = None,
    quiet: Annotated[bool, typer.Option(help="No table.")] = False,
) -> None:
    """Put the results of models trained on growing shares of the data side by side, and draw them."""
    from toolscout.eval.calls import scaling as curves_of_runs
    from toolscout.eval.calls.plots import scaling_plot
    from toolscout.eval.plots import NO_PLOTS
    from toolscout.eval.report import scaling_report, scaling_table

    result = curves_of_runs.scaling(runs)
    if json_out is not None:
        write_result(json_out, result)
    if plot is not None and scaling_plot(curves_of_runs.curves(result), plot) is None:
        _say(quiet)(NO_PLOTS)
    if report is not None:
        _say(quiet)(f"report: {scaling_report(result, report)}")
    _show(quiet, [scaling_table(result)])


def _named(pairs: list[str] | None, option: str) -> dict[str, str]:
    """``NAME=VALUE`` pairs of an option."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not name or not equals or not value:
            raise BadInput(f"{option} {pair} is not NAME=VALUE.")
        if name in found:
            raise BadInput(f"{option} names {name!r} twice.", "Give each peer a name of its own.")
        found[name] = value
    return found


def _set(pairs: list[str] | None, decided: Sequence[str] = ()) -> dict[str, str]:
    """What ``--set`` gives, by the settings' own names; ``TOOLSCOUT_NAME=VALUE`` is read, too.

    ``decided``: settings that the command has values of its own for, which would not hold: BadInput.
    """
    from toolscout.settings import Settings

    changed: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        name = name.removeprefix("TOOLSCOUT_").lower()
        if not equals or name not in Settings.model_fields:
            raise BadInput(f"--set {pair} is no setting.", f"Settings are {', '.join(sorted(Settings.model_fields))}.")
        if name in decided:
            raise BadInput(f"--set {pair} would not hold: this command decides {name} itself.", "Leave it out.")
        changed[name] = value
    return changed


def _settings(pairs: list[str] | None, **named: str) -> Any:
    """Settings from the environment, changed by ``--set NAME=VALUE`` and by options that were given.

    ``model_fields_set`` has what was named in either place, also where it is the default.
    """
    from pydantic import ValidationError

    from toolscout.settings import Settings

    changed = _set(pairs) | {name: value for name, value in named.items() if value}
    try:
        return Settings.model_validate(Settings().model_dump(exclude_unset=True) | changed)
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BadInput(f"The settings are not valid: {reasons}.") from None


def _say(quiet: bool) -> Any:
    def say(line: str) -> None:
        if not quiet:
            typer.echo(line, err=True)

    return say


def _show(quiet: bool, tables: Any) -> None:
    if quiet:
        return
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a file is read without the 80 columns that are assumed for one
    for table in tables:
        console.print(table.rich())
