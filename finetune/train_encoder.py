"""Contrastive fine-tuning of a sentence encoder on requests and their tools (sentence-transformers).

    toolscout train encoder --calls train.jsonl.gz --tools tools.jsonl.gz --servers servers.jsonl.gz \\
        --base BASE_FOLDER --out RUN_FOLDER --dev dev.jsonl.gz

The run folder:

    run.json        what decides the run: options, hashes of the files and of the base
    rows.jsonl.gz   every row in training order: all that the model sees
    fit.jsonl.gz    requests split off for ``finetune.fit_search``: no row shows them
    checkpoints/    the same command goes on from the last one
    model/          the trained encoder (PyTorch), for ``finetune.export_encoder``
    train.json      numbers: rows, loss, time, recall on dev before and after
    README.md       the model card

A run is decided by its files, options and seed; interrupted and resumed it sees the same rows in the same order.
Needs the ``train`` extra.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, ModelError, NotFound
from toolscout.files import write_json
from toolscout.finetune.leakage import check_leakage, hold_out
from toolscout.finetune.losses import make_loss
from toolscout.finetune.model import Floats, encode, load_model, model_hash, use_threads
from toolscout.finetune.negatives import SOURCES, Miner
from toolscout.finetune.pairs import (
    NOTHING,
    NOTHING_TEXT,
    VIEWS,
    Pair,
    Pool,
    description_pairs,
    make_pairs,
    nothing_pairs,
    read_calls,
    read_pool,
    split_off,
)
from toolscout.finetune.precision import bfloat16_pays
from toolscout.finetune.recall import dense_recall
from toolscout.finetune.rows import RowOptions, TrainingRow, build_rows, row_texts
from toolscout.finetune.running import (
    Progress,
    Running,
    Say,
    Tick,
    follow,
    logged_losses,
    run_in,
    train_on,
)
from toolscout.index.asset import CARD, file_sha256
from toolscout.index.document import DOCUMENT_VERSION, query_text
from toolscout.index.encoder import OnnxEncoder
from toolscout.jsonl import read_records, write_records
from toolscout.records import Call, JsonObject

BEST = "equivalent_recall@5"
"""What the best checkpoint is chosen by when dev is asked during training."""


@dataclass(frozen=True)
class TrainFiles:
    """The files of one run. ``dev`` only measures and guards: no row is made of it. Calls without gold teach what
    no tool serves."""

    calls: Sequence[Path]
    tools: Sequence[Path]
    servers: Sequence[Path] = ()
    dev: Sequence[Path] = ()


@dataclass(frozen=True)
class TrainOptions:
    """How one run trains. What stands here decides the result; what only decides how it is run is in ``Running``."""

    rows: RowOptions = field(default_factory=RowOptions)
    steps: int = 0
    """At most so many steps; 0: all rows once."""
    rate: float = 1e-4
    warmup: float = 0.1
    scale: float = 20.0
    dropout: float = 0.0
    fit_share: float = 0.0
    """Share of the tools whose requests are split off for fitting the search."""
    max_tokens: int = 256
    query_prefix: str = ""
    document_prefix: str = ""
    max_gold: int = 1
    describe: bool = False
    """Also train on tools that no request names, asked for in their description's first sentence."""
    limit: int = 0
    """Only the first so many pairs, for trials; 0: all."""
    eval_steps: int = 0
    """Ask dev every so many steps and keep the best checkpoint; 0: keep the last."""


@dataclass(frozen=True)
class EncoderRunning(Running):
    """With ``measure``, dev is asked before and after."""

    measure: bool = True


def train_encoder(
    files: TrainFiles,
    base: Path,
    out: Path,
    options: TrainOptions | None = None,
    running: EncoderRunning | None = None,
    *,
    miner_model: Path | None = None,
    say: Say = lambda _: None,
    tick: Tick = lambda done, total: None,
) -> JsonObject:
    """Train, or go on with the run in ``out``; returns what ``train.json`` says (``finished`` False if it was stopped).

    ``miner_model`` (default: ``base``) is the encoder whose near misses become negatives; one that is named is taken
    for trained on these requests, be it the base itself: so a second round goes on from the first. It is a model
    folder like ``base``, or an exported one (see ``index.asset``), which is several times as fast on a CPU.

    Raises BadInput for unusable files and options, for leakage from dev, and when ``out`` holds another run; NotFound
    without base weights; ModelError without the extra; StorageError when ``out`` cannot be written.
    """
    options, running = options or TrainOptions(), running or EncoderRunning()
    check_options(options)
    if not (base / "config.json").is_file():
        raise NotFound(f"There is no model in {base}.", "Give the folder that holds config.json and weights.")
    require_training()
    identity = _identity(files, base, miner_model or base, options) | {"trained_miner": miner_model is not None}
    run = _Run(files, base, miner_model or base, out, options, running, identity, say, tick)
    return run_in(out, identity, lambda: _train(run), say)


def check_options(options: TrainOptions) -> None:
    """Raises BadInput for options that say nothing."""
    for name in options.rows.views:
        if name not in VIEWS:
            raise BadInput(f"There is no document view {name!r}.", f"Views are {', '.join(VIEWS)}.")
    for name in options.rows.sources:
        if name not in SOURCES:
            raise BadInput(f"There is no source of negatives {name!r}.", f"Sources are {', '.join(SOURCES)}.")
    if sum(options.rows.views.values()) <= 0 or min(options.rows.views.values()) < 0:
        raise BadInput("The views' shares must be positive.", "For example: --views full=1,server=0.2")


def require_training() -> None:
    """Raises ModelError when the training libraries are not installed."""
    import importlib.util

    wanted = ("torch", "transformers", "sentence_transformers", "datasets", "accelerate")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(f"Training needs {', '.join(missing)}.", "Install it with `pip install 'toolscout[train]'`.")


def _identity(files: TrainFiles, base: Path, miner: Path, options: TrainOptions) -> JsonObject:
    """What decides the result, by content: paths may differ between machines."""
    hashes = {
        kind: [{"file": path.name, "sha256": _hash(path)} for path in getattr(files, kind)]
        for kind in ("calls", "tools", "servers", "dev")
    }
    return {
        "options": json.loads(json.dumps(asdict(options))),
        "files": hashes,
        "base": model_hash(base),
        "miner": model_hash(miner),
        "document_version": DOCUMENT_VERSION,
    }


def _hash(path: Path) -> str:
    if not path.is_file():
        raise NotFound(f"There is no file {path}.", "Check the path.")
    return file_sha256(path)


@dataclass
class _Run:
    """One run and what it has found out so far."""

    files: TrainFiles
    base: Path
    miner_model: Path
    out: Path
    options: TrainOptions
    running: EncoderRunning
    identity: JsonObject
    say: Say
    tick: Tick
    pool: Pool = field(default_factory=lambda: Pool({}))
    dev: list[Call] = field(default_factory=list)
    counts: JsonObject = field(default_factory=dict)

    def read(self) -> list[TrainingRow]:
        """Read the files, refuse leakage, and give the rows: those of the file if an earlier start wrote it."""
        calls = read_calls(self.files.calls)
        self.dev = read_calls(self.files.dev)
        check_leakage(calls, self.dev)
        self.pool = hold_out(read_pool(self.files.tools, self.files.servers), self.dev)
        path, counts = self.out / "rows.jsonl.gz", self.out / "rows.json"
        if path.is_file() and counts.is_file():
            self.counts = json.loads(counts.read_text("utf-8"))
            return list(read_records(path, TrainingRow))
        calls, fit = split_off(calls, self.options.fit_share, self.options.rows.seed)
        write_records(self.out / "fit.jsonl.gz", fit)
        pairs, left = make_pairs(calls, self.pool, max_gold=self.options.max_gold)
        nothing = nothing_pairs(calls)
        left.subtract({"without gold or words": len(nothing)})
        pairs += nothing
        if self.options.describe:
            pairs += description_pairs(self.pool, {pair.gold for pair in pairs})
        if self.options.limit:
            pairs = pairs[: self.options.limit]
        rows = self.mine(pairs)
        if self.options.steps:
            rows = rows[: self.options.steps * self.options.rows.batch]
        self.counts = row_counts(rows, pairs, left, self.pool)
        write_records(path, rows)
        write_json(counts, self.counts)
        return rows

    def mine(self, pairs: list[Pair]) -> list[TrainingRow]:
        """Negatives of the pairs, and rows with them."""
        self.say(f"{len(pairs)} pairs; looking for negatives among {len(self.pool.shown())} tools")
        documents = queries = None
        if "dense" in self.options.rows.sources:
            texts = [self.pool.text(t) for t in self.pool.shown()]
            documents, queries = _encode_with(self.miner_model, texts, [pair.query for pair in pairs], self.options)
        miner = Miner(self.pool, documents, trained=bool(self.identity["trained_miner"]))
        return build_rows(pairs, miner.mine(pairs, queries), miner, self.options.rows)

    def recall(self, model: Any) -> dict[str, dict[str, float]]:
        """Recall of the encoder alone on dev, over the whole pool (held-out tools too)."""
        dev = [call for call in self.dev if call.gold]
        queries = encode(model, [query_text(call.query) for call in dev], self.options.query_prefix)
        documents = encode(model, [self.pool.text(t) for t in self.pool.tools], self.options.document_prefix)
        return dense_recall(dev, queries, list(self.pool.tools), documents)


def _encode_with(
    folder: Path, documents: Sequence[str], queries: Sequence[str], options: TrainOptions
) -> tuple[Floats, Floats]:
    """Vectors of documents and queries by a model folder, or by an exported encoder."""
    if (folder / CARD).is_file():
        with OnnxEncoder(folder) as exported:
            return exported.encode(documents), exported.encode(queries, kind="query")
    model = load_model(folder, options.max_tokens)
    return encode(model, documents, options.document_prefix), encode(model, queries, options.query_prefix)


def row_counts(rows: Sequence[TrainingRow], pairs: Sequence[Pair], left: Counter[str], pool: Pool) -> JsonObject:
    """What the rows are made of, for the card."""
    return {
        "pairs": len(pairs),
        "rows": len(rows),
        "tools_named": len({row.gold for row in rows} - {NOTHING}),
        "tools_shown": len({t for row in rows for t in (row.gold, *row.negatives)} - {NOTHING}),
        "unanswerable": sum(pair.gold == NOTHING for pair in pairs),
        "tools_held_out": len(pool.held_out),
        "views": dict(Counter(row.view for row in rows)),
        "left_out": dict(left),
    }


def _train(run: _Run) -> JsonObject:
    from transformers.utils import logging

    logging.disable_progress_bar()
    use_threads(run.running.threads)
    started = time.perf_counter()
    rows = run.read()
    model = load_model(run.base, run.options.max_tokens, dropout=run.options.dropout)
    trainer = _trainer(run, model, rows)
    progress = Progress(run.running, run.say, run.tick)
    follow(trainer, progress)
    with _quiet_tokenizers():
        plan = f"{trainer.args.max_steps} steps of {run.options.rows.batch}"
        result = train_on(trainer, run.out, plan, run.say)
    result["precision"] = "bfloat16" if trainer.args.bf16 else "float32"
    if not result["finished"]:
        return result
    result |= {"seconds": round(time.perf_counter() - started, 1), "seconds_a_step": progress.seconds_a_step()}
    result["nothing"] = NOTHING_TEXT if run.counts["unanswerable"] else ""
    result |= {"loss": _losses(trainer.state.log_history), "rows": run.counts}
    if run.dev and run.running.measure:
        run.say("recall on dev")
        before = run.recall(load_model(run.base, run.options.max_tokens))
        result["dev"] = {"base": before, "trained": run.recall(model)}
    model.save_pretrained(str(run.out / "model"), create_model_card=False)
    from toolscout.finetune.card import write_card

    write_card(run.out / "README.md", run.identity, result, run.running.command)
    write_json(run.out / "train.json", result)
    return result


@contextlib.contextmanager
def _quiet_tokenizers() -> Iterator[None]:
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def _losses(history: list[dict[str, Any]]) -> JsonObject:
    """First and last logged training loss, and dev along the way."""
    steps = logged_losses(history)
    dev = {int(h["step"]): round(float(h[f"eval_{BEST}"]), 4) for h in history if f"eval_{BEST}" in h}
    return {"first": steps[0] if steps else None, "last": steps[-1] if steps else None, "dev_by_step": dev}


def _trainer(run: _Run, model: Any, rows: Sequence[TrainingRow]) -> Any:
    """A trainer that takes the rows as they come, batch by batch."""
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from torch.utils.data import SequentialSampler

    try:
        from sentence_transformers.base.sampler import DefaultBatchSampler  # since 5.4
    except ImportError:
        from sentence_transformers.sampler import DefaultBatchSampler

    options, running = run.options, run.running
    total = len(rows) // options.rows.batch
    gpu = torch.cuda.is_available()
    logging = max(1, min(10, total // 20))
    args = SentenceTransformerTrainingArguments(
        output_dir=str(run.out / "checkpoints"),
        max_steps=total,
        per_device_train_batch_size=options.rows.batch,
        learning_rate=options.rate,
        lr_scheduler_type="linear",
        warmup_steps=int(options.warmup * total),
        bf16=bfloat16_pays(),
        use_cpu=not gpu,
        seed=options.rows.seed,
        save_strategy="steps",
        save_steps=options.eval_steps or running.save_steps,
        save_total_limit=2,
        eval_strategy="steps" if options.eval_steps and run.dev else "no",
        eval_steps=options.eval_steps or None,
        load_best_model_at_end=bool(options.eval_steps and run.dev),
        metric_for_best_model=f"eval_{BEST}",
        greater_is_better=True,
        logging_steps=logging,
        disable_tqdm=True,
        report_to="none",
        dataloader_drop_last=True,
        dataloader_pin_memory=gpu,
    )

    class InOrder(SentenceTransformerTrainer):  # type: ignore[misc, unused-ignore]
        """Rows are in training order already."""

        def get_batch_sampler(self, dataset: Any, batch_size: int, drop_last: bool, **rest: Any) -> Any:
            return DefaultBatchSampler(SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last)

    return InOrder(
        model=model,
        args=args,
        train_dataset=Dataset.from_dict(_columns(run, rows)),
        loss=make_loss(model, scale=options.scale),
        evaluator=_evaluator(run) if options.eval_steps and run.dev else None,
    )


def _columns(run: _Run, rows: Sequence[TrainingRow]) -> dict[str, list[str]]:
    """The rows' texts by column. Raises BadInput for a row whose tool the pool holds out: a last guard."""
    for row in rows:
        for tool_id in (row.gold, *row.negatives):
            if not run.pool.may_show(tool_id):
                raise BadInput(f"The training rows show {tool_id!r}, which may not be shown.", "Choose another --out.")
    prefixes = (run.options.query_prefix, run.options.document_prefix)
    texts = [row_texts(row, run.pool, *prefixes) for row in rows]
    names = ["anchor", "positive", *(f"negative_{i + 1}" for i in range(run.options.rows.negatives))]
    return {name: [row[i] for row in texts] for i, name in enumerate(names)}


def _evaluator(run: _Run) -> Any:
    """Dev recall as sentence-transformers asks for it."""
    from sentence_transformers.evaluation import SentenceEvaluator

    class DevRecall(SentenceEvaluator):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.primary_metric = BEST
            self.greater_is_better = True

        def __call__(self, model: Any, output_path: Any = None, epoch: int = -1, steps: int = -1) -> dict[str, float]:
            found = run.recall(model)
            flat = {f"{name}_{key}".replace(" ", "_"): v for name, scores in found.items() for key, v in scores.items()}
            run.say(f"dev: equivalent recall@1 {flat['equivalent_recall@1']:.3f}, @5 {flat[BEST]:.3f}")
            return flat

    return DevRecall()
