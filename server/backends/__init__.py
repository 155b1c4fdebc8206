"""Language models behind one interface: :class:`~toolscout.server.backends.base.Backend`."""

from __future__ import annotations

import importlib.util

from toolscout.server.backends.base import Backend, ContextOverflow, Generation, Messages, Token
from toolscout.settings import Settings

__all__ = ["Backend", "ContextOverflow", "Generation", "Messages", "Token", "make_backend"]


def make_backend(settings: Settings) -> Backend | None:
    """The configured model, not loaded yet: the endpoint of ``model_url`` before a local file. None if there is none.

    :raises NotFound: ``settings.model`` names a model that is not installed.
    """
    if settings.model_url:
        from toolscout.server.backends.openai import OpenAIBackend

        return OpenAIBackend(
            settings.model_url, model=settings.model, key=settings.model_key, timeout=settings.model_timeout
        )
    from toolscout.server.models import KNOWN, ModelStore

    model = ModelStore(settings).resolve()
    if model is None or (not settings.model and importlib.util.find_spec("xllamacpp") is None):
        return None
    from toolscout.server.backends.gguf import GgufBackend

    known = KNOWN.get(model.name)
    return GgufBackend(
        model.path,
        name=model.name,
        context=settings.model_context,
        threads=settings.model_threads,
        trust=known.trust if known else 1.0,
        none_at=known.none_at if known else 0.5,
    )
