"""Language models behind one interface: :class:`~toolscout.server.backends.base.Backend`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from toolscout.records import JsonObject
from toolscout.server.backends.base import Backend, ContextOverflow, Generation, Messages, Token
from toolscout.server.backends.tuning import from_json, setting_tuning
from toolscout.settings import Settings

__all__ = ["Backend", "ContextOverflow", "Generation", "Messages", "Token", "make_backend"]


def make_backend(settings: Settings, *, streams: bool = False) -> Backend | None:
    """The configured model, not loaded yet: the endpoint of ``model_url`` before a local file. None if there is none.

    :param streams: let an endpoint answer in pieces, so that the time of the first token is known.
    :raises NotFound: ``settings.model`` names a model that is not installed.
    """
    if settings.model_url:
        from toolscout.server.backends.openai import OpenAIBackend

        return OpenAIBackend(
            settings.model_url,
            model=settings.model,
            key=settings.model_key,
            timeout=settings.model_timeout,
            temperature=settings.model_temperature,
            tuning=setting_tuning(settings.model_prompt),
            chooses=settings.model_chooses,
            streams=streams,
        )
    from toolscout.server.models import KNOWN, ModelStore

    model = ModelStore(settings).resolve()
    if model is None or (not settings.model and importlib.util.find_spec("xllamacpp") is None):
        return None
    from toolscout.server.backends.gguf import GgufBackend

    known = KNOWN.get(model.name)
    beside = tuning(model.path)
    path, lora = model.path, None
    if beside.get("base"):
        path, lora = ModelStore(settings).get(str(beside["base"])).path, model.path
    tuned = setting_tuning(settings.model_prompt) or from_json(beside)
    return GgufBackend(
        path,
        name=model.name,
        context=settings.model_context,
        threads=settings.model_threads,
        temperature=settings.model_temperature,
        lora=lora,
        chooses=bool(tuned.chooses if settings.model_chooses is None else settings.model_chooses),
        none_at=known.none_at if known else tuned.none_at,
        style=tuned.style,
        budget=tuned.budget,
    )


def tuning(path: Path) -> JsonObject:
    """What stands beside a tuned model as ``NAME.json`` (written by ``toolscout train caller-export``): ``style`` and
    ``budget`` of the prompts it was trained on; for an adapter its ``base``, a model's name or path."""
    try:
        found = json.loads(path.with_suffix(".json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
