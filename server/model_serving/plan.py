"""What ``toolscout model serve`` starts vLLM with: base, adapters, the names they are served under, and the flags.

Each flag that is not vLLM's default is there because training and serving would drift without it, or because an
answer could break its schema. A served name says how its model wants to be asked
(:mod:`toolscout.server.backends.tuning`), read from the ``prompt.json`` that training leaves with the weights.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, NotAllowed, NotFound
from toolscout.records import JsonObject
from toolscout.server.backends.tuning import Tuning, bare_name, named, read_tuning

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as ``--max-lora-rank``."""

CONTEXT = 8192
"""Tokens of prompt and answer: the length that MCP-Flow trains with (arXiv 2510.24284)."""

SMALL = 2e9
"""Parameters below which the encoder chooses the tool: among ten it is right more often than such a model (as for
models in process, see ``Settings.model_chooses``)."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Base:
    """The model that is loaded: ``model`` is a checkpoint's folder or a hub id, ``config`` its ``config.json``."""

    model: str
    name: str
    tuning: Tuning = field(default_factory=Tuning)
    config: JsonObject = field(default_factory=dict)

    @property
    def served(self) -> str:
        """The name that requests give."""
        return named(self.name, self.tuning)


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in PEFT's layout. ``rank`` is the largest one in it."""

    folder: Path
    name: str
    rank: int
    tuning: Tuning

    @property
    def served(self) -> str:
        """The name that requests give."""
        return named(self.name, self.tuning)


@dataclass(frozen=True)
class Plan:
    """One vLLM: what it serves, where, and how. ``threads`` 0 leaves the choice of cores to vLLM."""

    base: Base
    adapters: tuple[Adapter, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    key: str = field(default="", repr=False)
    context: int = 0
    dtype: str = ""
    threads: int = 0
    cache_gib: int = 0
    extra: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """What TOOLSCOUT_MODEL_URL is set to."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://[{host}]:{self.port}/v1" if ":" in host else f"http://{host}:{self.port}/v1"

    @property
    def served(self) -> list[str]:
        """The names that can be asked for, the one to use first: an adapter before its base."""
        return [*(a.served for a in self.adapters), self.base.served]

    def command(self, python: str, *, cli: bool = True) -> list[str]:
        """The arguments of vLLM's process. The key is not among them: any user of the machine can read those.

        :param cli: through the command line ``vllm``, which a build under another package name cannot start.
        """
        start = ["vllm.entrypoints.cli.main", "serve"] if cli else ["vllm.entrypoints.openai.api_server", "--model"]
        words = [python, "-P", "-m", *start, self.base.model]
        words += ["--served-model-name", self.base.served, "--host", self.host, "--port", str(self.port)]
        # vLLM would take sampling defaults from the base's generation_config.json: Qwen's has a penalty on
        # repetition, which punishes the very tokens of JSON and is not what the adapter was measured with.
        words += ["--generation-config", "vllm"]
        words += ["--structured-outputs-config", json.dumps({"backend": "xgrammar"})]
        # As in training and in process: no thinking before the answer.
        words += ["--default-chat-template-kwargs", json.dumps({"enable_thinking": False})]
        # Which of a prompt's tokens were computed before goes into the answers; requests do not go into the log.
        words += ["--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
        if context := self._context():
            words += ["--max-model-len", str(context)]
        if self.dtype:
            words += ["--dtype", self.dtype]
        if self.adapters:
            words += ["--enable-lora", "--max-lora-rank", str(max_rank(self.adapters))]
            words += ["--max-loras", str(len(self.adapters)), "--lora-modules"]
            for adapter in self.adapters:
                module = {"name": adapter.served, "path": str(adapter.folder), "base_model_name": self.base.served}
                words.append(json.dumps(module))
            template = chat_template(self.base, self.adapters)
            if template is not None:
                words += ["--chat-template", str(template)]
        return [*words, *self.extra]

    def environment(self, environ: Mapping[str, str], *, cpu: bool) -> dict[str, str]:
        """The environment of vLLM's process: ours, no usage reports, no hub for what lies on disk."""
        env = {k: v for k, v in environ.items() if not k.startswith("TOOLSCOUT_")}
        env |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}
        # Else what lies in the folder that this was started in could stand in for a package of vLLM's.
        env["PYTHONSAFEPATH"] = "1"
        for foreign in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VLLM_API_KEY"):
            env.pop(foreign, None)
        if self.base.config:
            env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        if self.key:
            env["VLLM_API_KEY"] = self.key
        if self.threads:
            env |= {"OMP_NUM_THREADS": str(self.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        if cpu:
            cache = str(self.cache_gib) if self.cache_gib else env.get("VLLM_CPU_KVCACHE_SPACE", "2")
            env["VLLM_CPU_KVCACHE_SPACE"] = cache
            # On a busy machine one step may take minutes; vLLM gives itself up after five.
            env.setdefault("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "1800")
            if self.adapters or not any(map(shutil.which, ("g++", "c++", "clang++"))):
                # With adapters vLLM compiles no model on CPUs, but still a line of its sampler, in C++, at the first
                # request for probabilities: slow, and the end of it where there is no compiler.
                env.setdefault("TORCH_COMPILE_DISABLE", "1")
        return env

    def _context(self) -> int:
        """Tokens, at most what the base was made for; 0 leaves it to vLLM, where the base is not on this disk."""
        most = self.base.config.get("max_position_embeddings")
        if not isinstance(most, int):
            return self.context
        return min(self.context or CONTEXT, most)


def make_plan(
    base: str, adapters: Sequence[str] = (), *, host: str = "127.0.0.1", key: str = "", **settings: Any
) -> Plan:
    """A plan from what a person names; ``settings`` are further fields of :class:`Plan`.

    :param base: checkpoint folder or hub id, with ``NAME=`` before it to choose its name.
    :param adapters: adapter folders, each perhaps with ``NAME=`` before it.
    :raises BadInput, NotFound: something named cannot be served.
    :raises NotAllowed: it would listen beyond this machine without a key.
    """
    if host not in LOOPBACK and not key:
        raise NotAllowed(
            f"On {host} everybody in reach could use the model.", "Set TOOLSCOUT_MODEL_KEY, or leave --host out."
        )
    root = read_base(base)
    loaded = tuple(read_adapter(a, root) for a in adapters)
    names = [root.served, *(a.served for a in loaded)]
    double = next((n for n in names if names.count(n) > 1), None)
    if double is not None:
        raise BadInput(f"Two models would be served as {bare_name(double)}.", "Name them: --adapter NAME=FOLDER")
    chat_template(root, loaded)
    return Plan(root, loaded, host=host, key=key, **settings)


def read_base(text: str) -> Base:
    """A checkpoint's folder, or a hub id as it is. Raises BadInput, NotFound."""
    name, model = _name_and_place(text)
    folder = Path(model).expanduser()
    if folder.is_dir():
        config = _json(folder / "config.json")
        if not config:
            if (folder / "adapter_config.json").is_file():
                raise BadInput(f"{folder} is an adapter.", "Give its base first, then: --adapter FOLDER")
            raise NotFound(f"There is no model in {folder}.", "Give the folder that holds config.json and weights.")
        tuning = _small_ones_do_not_choose(read_tuning(folder), config)
        return Base(str(folder.resolve()), name or _folder_name(folder), tuning, config)
    if folder.suffix == ".gguf":
        raise BadInput(
            "vLLM is given checkpoints, not GGUF files.",
            "A GGUF file needs no server: set TOOLSCOUT_MODEL to it. `train caller` leaves a checkpoint in RUN-base.",
        )
    if not _HUB_ID.fullmatch(model) or model.startswith("."):
        raise NotFound(f"There is no folder {model}.", "Give a checkpoint's folder, or a hub id: OWNER/NAME.")
    return Base(model, name or model.rpartition("/")[2])


def read_adapter(text: str, base: Base) -> Adapter:
    """A PEFT folder that vLLM can put on ``base``. Raises BadInput, NotFound."""
    name, place = _name_and_place(text)
    folder = Path(place).expanduser()
    settings = _json(folder / "adapter_config.json")
    weights = folder / "adapter_model.safetensors"
    if not settings or not weights.is_file():
        raise NotFound(
            f"There is no adapter in {folder}.", "Give the folder that holds adapter_config.json: RUN/adapter."
        )
    for wrong, why in (
        (settings.get("peft_type") != "LORA", "is no LoRA"),
        (settings.get("use_dora"), "uses DoRA"),
        (settings.get("modules_to_save"), "replaces whole modules"),
        (settings.get("bias", "none") != "none", "changes biases"),
    ):
        if wrong:
            raise BadInput(
                f"The adapter in {folder} {why}, and vLLM takes plain LoRA only.",
                "Serve it merged: toolscout train caller-export --merged FOLDER",
            )
    _check_fits(weights, base, folder)
    ranks = [settings.get("r", 8), *(settings.get("rank_pattern") or {}).values()]
    tuning = _small_ones_do_not_choose(read_tuning(folder), base.config)
    return Adapter(folder.resolve(), name or _folder_name(folder), max(map(int, ranks)), tuning)


def max_rank(adapters: Sequence[Adapter]) -> int:
    """The smallest of vLLM's ranks that holds them all. Raises BadInput."""
    largest = max(adapters, key=lambda a: a.rank)
    rank = next((r for r in RANKS if r >= largest.rank), None)
    if rank is None:
        raise BadInput(
            f"The adapter {largest.name} has rank {largest.rank}, and vLLM takes {RANKS[-1]} at most.",
            "Serve it merged: toolscout train caller-export --merged FOLDER",
        )
    return rank


def chat_template(base: Base, adapters: Sequence[Adapter]) -> Path | None:
    """The template that the adapters were trained with, if it is not the base's own. BadInput if they differ."""
    own = _template(Path(base.model)) if base.config else None
    files = {t: a for a in adapters if (t := _template(a.folder)) is not None}
    if len(files) > 1:
        first, second, *_ = files.values()
        raise BadInput(
            f"{first.name} and {second.name} were trained with different chat templates.",
            "Serve them from two processes: one adapter each, another --port.",
        )
    for text, adapter in files.items():
        if text != own and (adapter.folder / "chat_template.jinja").is_file():
            return adapter.folder / "chat_template.jinja"
    return None


def parameters(config: JsonObject) -> float:
    """About how many a decoder of that ``config.json`` has; 0 if it does not say."""
    try:
        width, layers, words = (float(config[k]) for k in ("hidden_size", "num_hidden_layers", "vocab_size"))
    except (KeyError, TypeError, ValueError):
        return 0.0
    return 12 * layers * width**2 + words * width


def _small_ones_do_not_choose(tuning: Tuning, config: JsonObject) -> Tuning:
    if tuning.chooses is None and 0 < parameters(config) < SMALL:
        return replace(tuning, chooses=False)
    return tuning


def _template(folder: Path) -> str | None:
    try:
        return (folder / "chat_template.jinja").read_text("utf-8").strip()
    except OSError:
        inside = _json(folder / "tokenizer_config.json").get("chat_template")
        return inside.strip() if isinstance(inside, str) else None


def _check_fits(weights: Path, base: Base, folder: Path) -> None:
    """vLLM says of an adapter for another base no more than that two shapes differ, and after a minute."""
    try:
        with weights.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        raise BadInput(f"{weights} is no safetensors file.", "Copy the adapter anew.") from error
    hidden, layers = base.config.get("hidden_size"), base.config.get("num_hidden_layers")
    for key, tensor in header.items():
        found = re.search(r"\.layers\.(\d+)\..*\.q_proj\.lora_A\.weight$", key)
        if found is None:
            continue
        if (hidden and tensor["shape"][-1] != hidden) or (layers and int(found[1]) >= layers):
            raise BadInput(
                f"The adapter in {folder} was trained on another base than {base.name}.",
                "Its adapter_config.json and the card beside it name the base.",
            )


def _name_and_place(text: str) -> tuple[str, str]:
    name, sep, place = text.partition("=")
    if not sep or "/" in name or Path(text).expanduser().exists():
        return "", text
    if not re.fullmatch(r"[\w.-]+", name):
        raise BadInput(f"{name!r} cannot be a model's name.", "Letters, digits, dots and dashes: NAME=FOLDER")
    return name, place


def _folder_name(folder: Path) -> str:
    """A run's folder names what lies in its ``adapter``."""
    folder = folder.resolve()
    if folder.name in ("adapter", "merged", "model") and folder.parent.name:
        folder = folder.parent
    return re.sub(r"[^\w.-]+", "-", folder.name).strip("-") or "model"


def _json(file: Path) -> JsonObject:
    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read: {error}.", "Copy the folder anew.") from error
    return found if isinstance(found, dict) else {}
