"""``model``: the files that write calls for ``suggest``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import AsJson, Yes, confirm, emit, progress, say, table
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.server.models import InstalledModel

app = typer.Typer(no_args_is_help=True, help="Models for suggest: fetch, add, list, remove.")

Sha = Annotated[str, typer.Option(help="Refuse the file unless its SHA-256 is this one.", show_default=False)]


@app.command("pull")
def pull(
    source: Annotated[str, typer.Argument(help="A name from `model list`, hf:OWNER/REPO/FILE.gguf, or a URL.")],
    sha256: Sha = "",
    as_json: AsJson = False,
) -> None:
    """Fetch a model; goes on where an interrupted pull stopped. Known models have pinned hashes."""
    from toolscout.server.models import ModelStore

    with progress(f"Fetching {source}") as tick:
        model = ModelStore(load_settings()).pull(source, sha256=sha256, progress=lambda done, total: tick(done, total))
    _show(model, "Installed", as_json)


@app.command("add")
def add(
    source: Annotated[str, typer.Argument(help="A local .gguf file (used where it lies), hub id or URL.")],
    name: Annotated[str, typer.Option(help="What to call it.", show_default="the file's name")] = "",
    sha256: Sha = "",
    as_json: AsJson = False,
) -> None:
    """Register a model of your own. Use it by setting TOOLSCOUT_MODEL to its name."""
    from toolscout.server.models import ModelStore

    with progress(f"Adding {source}") as tick:
        store = ModelStore(load_settings())
        model = store.add(source, name=name, sha256=sha256, progress=lambda done, total: tick(done, total))
    _show(model, "Added", as_json)


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models that are installed and those that can be pulled."""
    from toolscout.errors import ToolscoutError
    from toolscout.server.models import KNOWN, ModelStore

    settings = load_settings()
    store = ModelStore(settings)
    installed = {m.name: m for m in store.installed()}
    try:
        chosen = store.resolve()
    except ToolscoutError:
        chosen = None
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys([*installed, *KNOWN]):
        have, known = installed.get(name), KNOWN.get(name)
        used = not settings.model_url and chosen is not None and chosen.name == name
        size = have.size if have else known.size if known else 0
        rows.append(
            {
                "name": name,
                "installed": have is not None,
                "used": used,
                "bytes": size,
                "licence": known.licence if known else None,
                "about": known.title if known else str(have.path) if have else "",
                "source": have.source if have else None,
            }
        )
    if as_json:
        emit({"models": rows, "endpoint": settings.model_url or None})
        return
    state = {True: "installed", False: "toolscout model pull"}
    table(
        [
            [r["name"], "in use" if r["used"] else state[r["installed"]], f"{r['bytes'] / 1e6:,.0f} MB", r["about"]]
            for r in rows
        ],
        ["name", "state", "size", "what"],
    )
    if settings.model_url:
        say(f"In use: {settings.model or 'the default model'} at {settings.model_url}")


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="A name from `model list`.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget a model; a pulled file is deleted, your own is kept."""
    from toolscout.server.models import ModelStore

    confirm(f"Remove the model {name}?", yes)
    _show(ModelStore(load_settings()).remove(name), "Removed", as_json)


def _show(model: InstalledModel, done: str, as_json: bool) -> None:
    if as_json:
        emit({"name": model.name, "path": str(model.path), "sha256": model.sha256, "bytes": model.size})
    else:
        say(f"{done} {model.name} ({model.size / 1e6:,.0f} MB).")
