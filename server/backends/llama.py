"""llama.cpp as xllamacpp brings it (extra ``local``), loaded with one GGUF file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from toolscout.errors import ModelError


def load_server(
    path: Path,
    *,
    lora: Path | None = None,
    context: int = 4096,
    threads: int = 0,
    slots: int = 1,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str = "",
    alias: str = "",
) -> Any:
    """An ``xllamacpp.Server``. It listens on ``host`` and ``port`` (0: any free one), too, until it is let go.

    :param lora: a GGUF adapter over ``path``.
    :param context: tokens of one request, prompt and answer.
    :param threads: 0 means one per free core.
    :param slots: requests worked on at once.
    :param alias: the name that it says the model has.
    :raises ModelError: the runtime or the file is missing, or the file cannot be loaded.
    """
    try:
        import xllamacpp
    except ImportError as error:
        raise ModelError(
            "The local model runtime is not installed.", "Install it with: pip install 'toolscout[local]'"
        ) from error
    if not path.is_file():
        raise ModelError(f"The model file {path} is gone.", "Pull it again: toolscout model pull")
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context * slots
    params.n_parallel = slots
    params.hostnames, params.port = [host], port
    threads = threads or free_cores()
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # Waiting threads sleep rather than spin: on a busy machine spinning slows everything, the model included.
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.verbosity = -1
    params.warmup = False
    params.cache_ram_mib = 0
    params.api_keys = [key] if key else []
    params.endpoint_slots = False
    params.ui = False
    # As in training: no thinking before the answer.
    params.default_template_kwargs = {"enable_thinking": "false"}
    if alias:
        params.model_alias = {alias}
    if lora is not None:
        adapter = xllamacpp.CommonAdapterLoraInfo()
        adapter.path, adapter.scale = str(lora), 1.0
        params.lora_adapters = [adapter]
    try:
        return xllamacpp.Server(params)
    except Exception as error:
        raise ModelError(
            f"The model {path.name} cannot be loaded: {error}.", "Pull it again, or choose another model."
        ) from error


def own_cores() -> int:
    """Cores that this process may run on, at least 1."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # neither Windows nor macOS has it
        return os.cpu_count() or 1


def free_cores() -> int:
    """Cores that are idle by the load of the last minute, at least 1.

    One thread too few costs its share of speed; one too many, waiting for a core at every layer, costs a factor of
    ten (seen: 60 tokens a second with one thread and 3 with two, on two cores that others keep busy).
    """
    cores = own_cores()
    try:
        busy = os.getloadavg()[0]
    except (AttributeError, OSError):  # not on Windows
        busy = 0.0
    return max(1, min(cores, round(cores - busy)))
