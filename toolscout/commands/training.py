"""``train``: makes the models from data. Needs the ``train`` extra."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from toolscout.commands.options import Minutes, Pool, RunFolder, Servers, StopAt, Threads, TrainingCalls, card_command
from toolscout.commands.output import AsJson, emit, note, progress, say, table
from toolscout.errors import BadInput
from toolscout.eval.command import ManyFiles

app = typer.Typer(no_args_is_help=True, help="Train the models.")


@app.callback()
def train() -> None:
    """Train the models."""


@app.command("encoder", cls=ManyFiles)
def encoder(
    calls: TrainingCalls,
    tools: Pool,
    base: Annotated[Path, typer.Option(help="Folder of the sentence encoder to start from (config.json, weights).")],
    out: RunFolder,
    servers: Servers = None,
    dev: Annotated[
        list[Path] | None,
        typer.Option(help="Requests to measure with; nothing of them is trained on.", show_default=False),
    ] = None,
    miner: Annotated[
        Path | None,
        typer.Option(
            help="Encoder trained before (weights or exported) whose near misses become negatives.",
            show_default="the base",
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="How often each pair is shown.")] = 3,
    steps: Annotated[int, typer.Option(min=0, help="Stop learning after so many steps.", show_default="all rows")] = 0,
    batch: Annotated[int, typer.Option(min=2, help="Pairs in a batch.")] = 48,
    together: Annotated[int, typer.Option(min=1, help="Pairs of one server that share a batch.")] = 1,
    negatives: Annotated[int, typer.Option(min=1, max=16, help="Hard negatives of each pair.")] = 1,
    sources: Annotated[str, typer.Option(help="Where negatives come from, by commas.")] = "siblings,words,dense",
    views: Annotated[
        str, typer.Option(help="Shares of document views: full, no_description, no_parameters, no_server, server.")
    ] = "full=1",
    augment: Annotated[float, typer.Option(min=0, max=1, help="Share of requests shown in another form.")] = 0.0,
    kinds: Annotated[str, typer.Option(help="The forms: keywords, lower, typo.")] = "keywords,lower,typo",
    describe: Annotated[
        bool, typer.Option("--describe", help="Also train on tools without requests, by their descriptions.")
    ] = False,
    max_gold: Annotated[int, typer.Option(min=1, help="Leave out requests with more tools than this.")] = 1,
    scale: Annotated[float, typer.Option(min=1, help="Inverse temperature of the loss.")] = 20.0,
    rate: Annotated[float, typer.Option(min=0, help="Highest learning rate; linear after a warm-up.")] = 1e-4,
    dropout: Annotated[float, typer.Option(min=0, max=0.9, help="Dropout; 0 is a fifth faster on a CPU.")] = 0.0,
    fit_share: Annotated[
        float, typer.Option(min=0, max=0.5, help="Share of the tools whose requests are kept apart to fit the search.")
    ] = 0.0,
    warmup: Annotated[float, typer.Option(min=0, max=1, help="Share of the steps that warm up.")] = 0.1,
    max_tokens: Annotated[int, typer.Option(min=16, max=512, help="Tokens of a text that are read.")] = 256,
    query_prefix: Annotated[str, typer.Option(help="Put before every request, if the base wants it.")] = "",
    document_prefix: Annotated[str, typer.Option(help="Put before every document, if the base wants it.")] = "",
    seed: Annotated[int, typer.Option(help="Draws order, negatives, views and forms.")] = 0,
    limit: Annotated[int, typer.Option(min=0, help="Only the first pairs, for a trial.", show_default="all")] = 0,
    eval_steps: Annotated[
        int, typer.Option(min=0, help="Ask dev every so many steps, keep the best.", show_default="keep the last")
    ] = 0,
    save_steps: Annotated[int, typer.Option(min=1, help="A checkpoint every so many steps.")] = 50,
    stop_at: StopAt = 0,
    minutes: Minutes = 0.0,
    threads: Threads = 0,
    measure: Annotated[bool, typer.Option(help="Recall on dev before and after, over the whole pool.")] = True,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a sentence encoder on requests and their tools; checkpointed, seeded, on CPU or GPU.

    Refuses files that leak: a dev request, or a tool that dev calls unseen, among the training rows.
    """
    from toolscout.finetune.rows import RowOptions
    from toolscout.finetune.train_encoder import EncoderRunning, TrainFiles, TrainOptions, train_encoder

    rows = RowOptions(
        together=together,
        negatives=negatives,
        sources=_names(sources),
        views=_shares(views),
        augment=augment,
        kinds=_names(kinds),
        epochs=epochs,
        batch=batch,
        seed=seed,
    )
    options = TrainOptions(
        rows=rows,
        steps=steps,
        rate=rate,
        warmup=warmup,
        scale=scale,
        dropout=dropout,
        fit_share=fit_share,
        max_tokens=max_tokens,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        max_gold=max_gold,
        describe=describe,
        limit=limit,
        eval_steps=eval_steps,
    )
    running = EncoderRunning(
        threads=threads,
        save_steps=save_steps,
        stop_at=stop_at,
        minutes=minutes,
        measure=measure,
        command=card_command(sys.argv[1:]),
    )
    files = TrainFiles(calls, tools, servers or [], dev or [])
    with progress("Training") as tick:
        result = train_encoder(files, base, out, options, running, miner_model=miner, say=note, tick=tick)
    if as_json:
        emit(result)
    elif result["finished"]:
        say(f"The encoder is in {out / 'model'}, its card in {out / 'README.md'}.")
    else:
        say(f"Stopped at step {result['steps']} of {result['of']}. The same command goes on.")


@app.command("languages", cls=ManyFiles)
def languages(
    strings: Annotated[Path, typer.Option(help="Folder with translations (.mo, .po), such as unpacked packages.")],
    base: Annotated[Path, typer.Option(help="Folder of the sentence encoder to start from (config.json, weights).")],
    out: Annotated[Path, typer.Option(help="Folder of the run, new or empty.")],
    tools: Annotated[
        list[Path] | None,
        typer.Option(help="Files of tools whose vectors shall stay. Several may follow.", show_default=False),
    ] = None,
    dev: Annotated[
        list[Path] | None,
        typer.Option(
            help="Requests to measure with: their unseen tools stay out. Several may follow.", show_default=False
        ),
    ] = None,
    only: Annotated[str, typer.Option(help="Languages, by commas.", show_default="all that are known")] = "",
    each: Annotated[int, typer.Option(min=1, help="Strings of a language of middling weight.")] = 8000,
    hold_out: Annotated[int, typer.Option(min=0, help="Strings of each language that only measure.")] = 200,
    documents: Annotated[int, typer.Option(min=0, help="Tools' texts: half to train on, half to measure.")] = 2000,
    batch: Annotated[int, typer.Option(min=2, help="Strings in a batch.")] = 96,
    max_tokens: Annotated[int, typer.Option(min=8, max=512, help="Tokens of a string that are read.")] = 64,
    rows_rate: Annotated[float, typer.Option(min=0, help="Highest learning rate of the embedding rows.")] = 2e-3,
    rate: Annotated[float, typer.Option(min=0, help="Highest learning rate of the layers.")] = 1e-4,
    rows_only: Annotated[float, typer.Option(min=0, max=1, help="Share of the steps that leave the layers.")] = 0.35,
    keep: Annotated[float, typer.Option(min=0, max=1, help="Share of the base in the result's layers.")] = 0.4,
    minutes: Annotated[float, typer.Option(min=0, help="End training after so long.", show_default="never")] = 0.0,
    threads: Threads = 0,
    seed: Annotated[int, typer.Option(help="Draws strings and their order.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Teach an English sentence encoder other languages, from the translated strings of free software.

    Its vocabulary grows; translations get the vectors that it gives the English. The result is a base for ``encoder``.
    """
    from toolscout.finetune.languages.distil import DistilOptions, distil, tool_documents
    from toolscout.finetune.model import use_threads
    from toolscout.finetune.train_encoder import require_training

    require_training()
    use_threads(threads)
    options = DistilOptions(
        each=each,
        held_out=hold_out,
        batch=batch,
        max_tokens=max_tokens,
        rows_rate=rows_rate,
        rate=rate,
        rows_only=rows_only,
        keep=keep,
        minutes=minutes,
        seed=seed,
    )
    if only:
        options = replace(options, languages=_names(only))
    english = tool_documents(tools or [], dev or [], seed=seed)
    with progress("Training") as tick:
        result = distil(strings, base, out, english[:documents], options, english_texts=english, say=note, tick=tick)
    if as_json:
        emit(result)
        return
    scores = result["accuracy"]
    table(
        [[lang, *(f"{scores[name][lang]:.3f}" for name in scores)] for lang in scores["after"]],
        ["language", *(name.replace("_", " ") for name in scores)],
    )
    say(f"The encoder is in {out / 'model'}.")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _shares(text: str) -> dict[str, float]:
    """``full=1,server=0.2`` as shares; a name alone counts 1. Raises BadInput."""
    shares: dict[str, float] = {}
    for part in _names(text):
        name, _, value = part.partition("=")
        try:
            shares[name] = float(value or 1)
        except ValueError:
            raise BadInput(f"{part!r} is no share.", "For example: --views full=1,server=0.2") from None
    if not shares:
        raise BadInput("--views names no view.", "For example: --views full=1,server=0.2")
    return shares
