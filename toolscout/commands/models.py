"""``model``: the files that write calls for ``suggest``, and vLLM to serve larger ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolscout.commands.output import AsJson, Yes, confirm, emit, progress, say, table
from toolscout.settings import load_settings

if TYPE_CHECKING:
    from toolscout.server.models import InstalledModel

app = typer.Typer(no_args_is_help=True, help="Models for suggest: fetch, add, list, remove, serve.")

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
    from toolscout.server.adapters import packaged_adapters
    from toolscout.server.models import KNOWN, ModelStore, base_of

    settings = load_settings()
    store = ModelStore(settings)
    installed = {m.name: m for m in store.installed()}
    try:
        chosen = store.resolve()
    except ToolscoutError:
        chosen = None
    rows: list[dict[str, Any]] = []
    adapters = packaged_adapters()
    for name in dict.fromkeys([*installed, *adapters, *KNOWN]):
        have, known, adapter = installed.get(name), KNOWN.get(name), adapters.get(name)
        known = base_of(adapter) if adapter else known
        used = not settings.model_url and chosen is not None and chosen.name == name
        size = have.size if have else adapter.size if adapter else known.size if known else 0
        about = f"{adapter.title}, over {adapter.base}" if adapter else known.title if known else ""
        rows.append(
            {
                "name": name,
                "installed": have is not None,
                "used": used,
                "bytes": size,
                "licence": known.licence if known else None,
                "about": about or (str(have.path) if have else ""),
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


@app.command("serve")
def serve(
    base: Annotated[
        str,
        typer.Argument(
            help="Model of `model list` or .gguf file, checkpoint folder, or hub id OWNER/NAME; "
            "NAME=MODEL chooses the served name."
        ),
    ],
    extra: Annotated[
        list[str] | None, typer.Argument(help="After --: further options of vLLM itself.", show_default=False)
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(help="Folder of a LoRA adapter (RUN/adapter), or NAME=FOLDER. Repeatable.", show_default=False),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; beyond this machine it takes a key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8000,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter of an environment with vLLM.", show_default=False)
    ] = None,
    env: Annotated[
        Path | None, typer.Option(help="Folder of vLLM's environment, made if need be.", show_default="HOME/vllm")
    ] = None,
    build: Annotated[
        str, typer.Option(help="Which vLLM to install: cpu or cuda.", show_default="cuda with an NVIDIA GPU")
    ] = "",
    context: Annotated[int, typer.Option(min=0, help="Most tokens of a request.", show_default="8192")] = 0,
    dtype: Annotated[str, typer.Option(help="Number format of the weights.", show_default="vLLM's choice")] = "",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads, on no fixed cores.", show_default="all")] = 0,
    cache_gib: Annotated[int, typer.Option(min=0, help="On CPUs: GiB for the KV cache.", show_default="2")] = 0,
    slots: Annotated[int, typer.Option(min=0, help="GGUF: requests worked on at once.", show_default="1")] = 0,
    wait: Annotated[float, typer.Option(min=1, help="Seconds until it must be ready.")] = 900,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show vLLM's log on stderr.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Serve a model over an OpenAI-compatible address; Ctrl-C stops it.

    A GGUF model (of `toolscout model list`, or a file) is served by llama.cpp, in this process; a checkpoint or hub id,
    with adapters, by vLLM in an environment of its own, made once, after asking. When the model is ready, the settings
    that point Toolscout at it are printed: the served name tells Toolscout how the model was trained to be asked.
    TOOLSCOUT_MODEL_KEY, if set, is the key that requests must bring.
    """
    from toolscout.commands.serving import ServeOptions, serve_model

    options = ServeOptions(
        base=base,
        adapters=tuple(adapter or ()),
        extra=tuple(extra or ()),
        host=host,
        port=port,
        python=python,
        env=env,
        build=build,
        context=context,
        dtype=dtype,
        threads=threads,
        cache_gib=cache_gib,
        slots=slots,
        wait=wait,
        verbose=verbose,
        yes=yes,
        as_json=as_json,
    )
    serve_model(options, load_settings())


def _show(model: InstalledModel, done: str, as_json: bool) -> None:
    if as_json:
        emit({"name": model.name, "path": str(model.path), "sha256": model.sha256, "bytes": model.size})
    else:
        say(f"{done} {model.name} ({model.size / 1e6:,.0f} MB).")
