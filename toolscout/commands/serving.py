"""``model serve``: the environment, the start, the words for a person, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, NoReturn, cast

from toolscout.commands.output import confirm, emit, note, printable, progress, say
from toolscout.errors import BadInput, ToolscoutError
from toolscout.records import JsonObject
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.server.model_serving.environment import VllmEnvironment
    from toolscout.server.model_serving.gguf import GgufPlan


@dataclass(frozen=True)
class ServeOptions:
    """The options of ``toolscout model serve``."""

    base: str
    adapters: tuple[str, ...]
    extra: tuple[str, ...]
    host: str
    port: int
    python: Path | None
    env: Path | None
    build: str
    context: int
    dtype: str
    threads: int
    cache_gib: int
    slots: int
    wait: float
    verbose: bool
    yes: bool
    as_json: bool


def serve_model(options: ServeOptions, settings: Settings) -> None:
    """Serve until a signal comes. All that can be wrong with the input is said before anything is installed."""
    from toolscout.server.model_serving.gguf import gguf_plan
    from toolscout.server.model_serving.plan import make_plan
    from toolscout.server.model_serving.run import ModelServer, free_port

    small = gguf_plan(
        options.base,
        settings,
        host=options.host,
        port=options.port,
        context=options.context or settings.model_context,
        threads=options.threads,
        slots=options.slots or 1,
    )
    if small is not None:
        _serve_gguf(replace(small, port=free_port(options.host, options.port)), options)
        return
    if options.slots:
        raise BadInput("vLLM decides itself how many requests it works on.", "Leave out --slots.")
    plan = make_plan(
        options.base,
        options.adapters,
        host=options.host,
        key=settings.model_key,
        port=free_port(options.host, options.port),
        context=options.context,
        dtype=options.dtype,
        threads=options.threads,
        cache_gib=options.cache_gib,
        extra=options.extra,
    )
    found = environment(options, settings)
    server = ModelServer(
        plan.command(str(found.python), cli=found.cli),
        plan.environment(os.environ, cpu=found.cpu),
        plan.url,
        on_line=(lambda line: note(printable(line))) if options.verbose else (lambda line: None),
    )
    note(f"Starting vLLM {found.version} ({'CPU' if found.cpu else 'GPU'}) with {plan.base.name}; Ctrl-C stops it.")
    with _signals_stop():
        try:
            server.start()
            with progress("Waiting for vLLM") as tick:
                seconds = server.wait_healthy(options.wait, lambda waited: tick(waited, None))
            mode = asyncio.run(_constraint(plan.url, plan.served[0], plan.key, options.wait))
            facts: JsonObject = {"vllm": found.version, "pid": server.pid}
            _tell(plan.url, plan.served, plan.key, seconds, mode, facts, options.as_json)
            sys.stdout.flush()  # whoever started this may read it through a pipe
            server.wait()
        except KeyboardInterrupt:
            note("Stopping vLLM.")
        finally:
            _ignore_signals()  # an end in order takes seconds; a second Ctrl-C must not leave half of it running
            server.stop()


def _serve_gguf(plan: GgufPlan, options: ServeOptions) -> None:
    """Serve a GGUF model by llama.cpp in this process until a signal comes."""
    given = {
        "--adapter": options.adapters, "--python": options.python, "--env": options.env, "--build": options.build,
        "--dtype": options.dtype, "--cache-gib": options.cache_gib, "--": options.extra,
    }  # fmt: skip
    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise BadInput(
            f"{wrong[0]} is for vLLM; a GGUF model is served by llama.cpp.", "Leave it out, or give a checkpoint."
        )
    note(f"Loading {plan.served.partition('@')[0]}; Ctrl-C stops it.")
    with _signals_stop():
        try:
            begun = time.monotonic()
            # Held for as long as it is to serve.
            server, url = plan.start()
            seconds = time.monotonic() - begun
            mode = asyncio.run(_constraint(url, plan.served, plan.key, options.wait))
            _tell(url, [plan.served], plan.key, seconds, mode, {"pid": os.getpid()}, options.as_json)
            sys.stdout.flush()
            while server:
                time.sleep(0.5)
        except KeyboardInterrupt:
            note("Stopping.")


def environment(options: ServeOptions, settings: Settings) -> VllmEnvironment:
    """The environment that was named, or the default one, made after asking. Raises NotFound, BadInput."""
    from toolscout.server.model_serving import environment as serving_env

    if options.build not in ("", "cpu", "cuda"):
        raise BadInput(f"There is no build {options.build!r} of vLLM.", "It is cpu or cuda.")
    if options.python is not None:
        return serving_env.look_at(options.python.expanduser())
    folder = (options.env or serving_env.default_folder(settings)).expanduser()
    python = serving_env.python_of(folder)
    if python.exists():
        with contextlib.suppress(ToolscoutError):
            return serving_env.look_at(python)
    build = cast('Literal["cpu", "cuda"]', options.build or serving_env.build_for_here())
    note(serving_env.what_is_installed(build, folder))
    confirm("Install it?", options.yes)
    return serving_env.create(folder, build, note)


def settings_for(url: str, served: str, key: str) -> dict[str, str]:
    """The variables that point Toolscout at a model. The key is named, not shown."""
    out = {"TOOLSCOUT_MODEL_URL": url, "TOOLSCOUT_MODEL": served}
    return out | ({"TOOLSCOUT_MODEL_KEY": "$TOOLSCOUT_MODEL_KEY"} if key else {})


async def _constraint(url: str, served: str, key: str, seconds: float) -> str:
    """How this server constrains answers, found out by Toolscout's own client: the way it will be used."""
    from toolscout.server.backends.openai import OpenAIBackend

    backend = OpenAIBackend(url, model=served, key=key, timeout=seconds)
    try:
        return await backend.probe()
    finally:
        await backend.close()


def _tell(
    url: str, served: Sequence[str], key: str, seconds: float, mode: str, facts: JsonObject, as_json: bool
) -> None:
    variables = settings_for(url, served[0], key)
    if as_json:
        emit(
            {
                "url": url,
                "served": list(served),
                "settings": variables,
                "constraint": mode,
                **facts,
                "seconds": round(seconds, 1),
            }
        )
        return
    say(f"Ready after {seconds:.0f} s at {url}, serving:")
    for name in served:
        say(f"  {name}")
    how = {
        "grammar": "grammars, from the answer's beginning",
        "json_schema": "JSON Schemas",
        "structured_outputs": "JSON Schemas",
    }
    say(f"Answers obey {how.get(mode, 'nothing: each is checked and asked for again')}.")
    say("Point Toolscout at it with:")
    for name, value in variables.items():
        say(f"  export {name}={value if value.startswith('$') else shlex.quote(value)}")
    if len(served) > 1:
        say("Any other name above can stand for TOOLSCOUT_MODEL.")


@contextlib.contextmanager
def _signals_stop() -> Iterator[None]:
    """SIGTERM, and a terminal that closes, end it as Ctrl-C does."""
    names = [n for n in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, n)]
    before = {n: signal.signal(getattr(signal, n), _interrupt) for n in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for name in ("SIGTERM", "SIGHUP", "SIGINT"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
