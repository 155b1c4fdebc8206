"""``synth report``: the page of a run's folder, made anew at any time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolscout.commands.output import AsJson, emit, note, progress, say


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, finished or not.", show_default=False)],
    compare: Annotated[
        list[Path] | None,
        typer.Option(
            help="Files of rows whose figures stand beside the run's. Several may follow.", show_default=False
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Where to write the page.", show_default="report.html in the folder")
    ] = None,
    servers: Annotated[
        list[Path] | None,
        typer.Option(help="Files of servers, for their categories. Several may follow.", show_default="the run's"),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Encoder of distances and plots, as TOOLSCOUT_ENCODER.", show_default="default")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the page of a run: steps and drops, price, lengths and categories, diversity, samples to read.

    The folder is only read, also while a run works in it. t-SNE and UMAP plots need toolscout[report]. Give FOLDER
    before the options.
    """
    from toolscout.index.encoder import make_encoder
    from toolscout.jsonl import read_records
    from toolscout.records import Server
    from toolscout.settings import load_settings
    from toolscout.synth.report_page import PAGE, write_page

    settings = load_settings()
    made = make_encoder(settings.model_copy(update={"encoder": encoder}) if encoder else settings)
    known = {s.server_id: s.category for path in servers or [] for s in read_records(path, Server) if s.category}
    page = html or folder / PAGE
    with progress("Report") as tick:
        found = write_page(folder, encoder=made, compare=compare or [], categories=known, page=page, tick=tick)
    if as_json:
        emit(found)
        return
    kept = found["kept"]
    say(f"{kept['calls']} rows, {kept['tools']} tools, mean cosine distance {kept['mean_cosine_distance']}")
    for other in found["compared"]:
        say(f"{other['name']}: {other['calls']} rows, mean cosine distance {other['mean_cosine_distance']}")
    for name, why_not in found["plots"].items():
        if why_not != "drawn":
            note(f"{name}: {why_not}")
    if not found["finished"]:
        note("The run in this folder has not come to its end.")
    say(f"The page is {page}.")
