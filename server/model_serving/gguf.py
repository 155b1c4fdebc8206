"""A GGUF model of this machine behind an OpenAI-compatible address, by the llama.cpp that runs it in process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout.errors import NotAllowed, NotFound
from toolscout.server.adapters import packaged_adapters
from toolscout.server.backends import tuning
from toolscout.server.backends.llama import load_server, own_cores
from toolscout.server.backends.tuning import from_json, named
from toolscout.server.model_serving.plan import LOOPBACK
from toolscout.server.models import KNOWN, ModelStore

if TYPE_CHECKING:
    from toolscout.settings import Settings


@dataclass(frozen=True)
class GgufPlan:
    """One model to serve: ``served`` is the name that requests give, and that says how it wants to be asked.

    ``threads`` 0: all cores. What is busy at the start says nothing about the hours that a server runs.
    """

    path: Path
    lora: Path | None
    served: str
    host: str = "127.0.0.1"
    port: int = 0
    key: str = field(default="", repr=False)
    context: int = 4096
    threads: int = 0
    slots: int = 1

    def start(self) -> tuple[Any, str]:
        """(The running server, which ends when it is let go; its address, ending in ``/v1``). Raises ModelError."""
        server = load_server(
            self.path,
            lora=self.lora,
            context=self.context,
            threads=self.threads or own_cores(),
            slots=self.slots,
            host=self.host,
            port=self.port,
            key=self.key,
            alias=self.served,
        )
        return server, f"{server.listening_address}/v1"


def gguf_plan(text: str, settings: Settings, **given: Any) -> GgufPlan | None:
    """What serves ``text``: a model of ``toolscout model list``, a ``.gguf`` file, or either as ``NAME=MODEL``.

    None where ``text`` names neither. ``given`` are further fields of :class:`GgufPlan`.

    :raises NotFound: a known model or file that is not here.
    :raises NotAllowed: it would listen beyond this machine without a key.
    """
    name, equals, place = text.partition("=")
    if not equals or "@" in name or "/" in name:
        name, place = "", text
    if Path(place).expanduser().is_dir():
        return None
    store = ModelStore(settings)
    try:
        model = store.get(place)
    except NotFound:
        if place.endswith(".gguf"):
            raise NotFound(f"There is no file {place}.", "`toolscout model list` shows what is installed.") from None
        if place in KNOWN or place in packaged_adapters():
            raise
        return None
    plan = GgufPlan(model.path, None, "", key=settings.model_key, **given)
    if plan.host not in LOOPBACK and not plan.key:
        raise NotAllowed(
            f"On {plan.host} everybody in reach could use the model.", "Set TOOLSCOUT_MODEL_KEY, or leave --host out."
        )
    beside = tuning(model.path)
    asked = from_json(beside)
    # As in process, the encoder chooses the tool unless the model was made to.
    asked = replace(asked, chooses=bool(asked.chooses))
    if model.name in KNOWN:
        asked = replace(asked, none_at=KNOWN[model.name].none_at)
    if beside.get("base"):
        plan = replace(plan, path=store.get(str(beside["base"])).path, lora=model.path)
    return replace(plan, served=named(name or model.name, asked))
