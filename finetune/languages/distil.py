"""Multilingual knowledge distillation (Reimers & Gurevych 2020, arXiv 2004.09813): one more language, same vectors.

    toolscout train languages --strings FOLDER --base BASE_FOLDER --out RUN_FOLDER --tools tools.jsonl.gz

The teacher is the base on the English string. The student is the base with an enlarged vocabulary; it learns to put the
translation, and the English itself, where the teacher puts the English: squared distance, and the teacher's own
similarities within the batch. First only the new rows of the embedding table learn, then all layers; rows of tokens
that plain ASCII text uses never change.

The run folder:

    languages.json  options, hashes, packages' strings counted by language, seconds, retrieval before and after
    held_out.jsonl.gz   the strings that were not trained on
    model/          the student, as a sentence-transformers folder, for ``train encoder`` as base
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput, NotFound
from toolscout.finetune.languages.parallel import LANGUAGES, Parallel, balance, collect, hold_out, order_of
from toolscout.finetune.languages.vocabulary import learn_pieces, meanings, same_tokens, write_tokenizer
from toolscout.finetune.leakage import hold_out as hold_out_tools
from toolscout.finetune.model import model_hash
from toolscout.finetune.pairs import read_calls, read_pool
from toolscout.finetune.running import Say, Tick
from toolscout.index.encoder import printable
from toolscout.jsonl import write_records
from toolscout.records import JsonObject

Floats = npt.NDArray[np.float32]
BATCHES_A_CHUNK, WARM_UP = 40, 50


@dataclass(frozen=True)
class DistilOptions:
    """How a run goes. ``minutes`` (0: none) is what the training loop may take; it then ends early, rates at zero."""

    languages: tuple[str, ...] = tuple(LANGUAGES)
    each: int = 8000
    """Strings of a language of weight 1."""
    held_out: int = 200
    batch: int = 96
    max_tokens: int = 64
    rows_rate: float = 2e-3
    rate: float = 1e-4
    rows_only: float = 0.35
    """Share of the training in which only the new embedding rows learn."""
    joined: float = 0.12
    """Share of rows that are two or three strings of a language after each other, some left in English."""
    english: float = 0.1
    """Share of rows, counted on top, that are English on both sides."""
    similarity: float = 0.5
    """Weight of the term on the batch's similarities."""
    scale: float = 20.0
    minutes: float = 0.0
    keep: float = 0.4
    """Share of the base's weights in the result's layers (Wortsman et al. 2022, arXiv 2109.01903): English stays."""
    seed: int = 0


@dataclass(frozen=True)
class Example:
    """A text and the English string whose teacher vector it should get."""

    text: str
    english: str


def tool_documents(tools: Sequence[Path], dev: Sequence[Path] = (), seed: int = 0) -> list[str]:
    """Texts of the files' tools in an order by seed, of those only that training may show.

    ``dev`` are requests to measure with: what they hold out of training stays out here as well.
    """
    if not tools:
        return []
    pool = hold_out_tools(read_pool(tools), read_calls(dev))
    shown = pool.shown()
    return [printable(pool.text(t)) for t in random.Random(seed).sample(shown, len(shown))]


def make_examples(rows: Sequence[Parallel], documents: Sequence[str], options: DistilOptions) -> list[Example]:
    """What the student reads: each translation, some of them joined, and English strings and documents as they are."""
    draw = random.Random(options.seed)
    by_lang: dict[str, list[Parallel]] = defaultdict(list)
    for row in rows:
        by_lang[row.lang].append(row)
    examples = [Example(row.text, row.english) for row in rows]
    for row in draw.sample(rows, int(options.joined * len(rows))):
        parts = [row, *draw.choices(by_lang[row.lang], k=draw.choice((1, 1, 2)))]
        texts = [p.english if draw.random() < 0.15 else p.text for p in parts]
        stop = "。" if row.lang.startswith(("zh", "ja")) else ". "
        examples.append(Example(stop.join(texts), ". ".join(p.english for p in parts)))
    for row in draw.sample(rows, int(options.english * len(rows))):
        examples.append(Example(row.english, row.english))
    return examples + [Example(text, text) for text in documents]


def in_batches(lengths: Sequence[int], size: int, seed: int) -> list[list[int]]:
    """Indexes in batches of like length (so that little is padded), the batches in random order."""
    draw = random.Random(seed)
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], draw.random()))
    batches = [order[i : i + size] for i in range(0, len(order), size)]
    draw.shuffle(batches)
    return batches


class Reader:
    """A BERT model and its tokenizer: texts to L2-normalised mean vectors."""

    def __init__(self, model: Any, tokenizer: Any, max_tokens: int) -> None:
        self.model, self.tokenizer = model, tokenizer
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=max_tokens)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, special tokens included."""
        return [e.ids for e in self.tokenizer.encode_batch(list(texts))]

    def forward(self, ids: Sequence[Sequence[int]]) -> Any:
        """Vectors of tokenised texts: a tensor [n, dim] with gradients."""
        import torch

        longest = max(map(len, ids))
        tokens = torch.zeros((len(ids), longest), dtype=torch.int64)
        mask = torch.zeros((len(ids), longest), dtype=torch.int64)
        for i, row in enumerate(ids):
            tokens[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
        device = self.model.device
        tokens, mask = tokens.to(device), mask.to(device)
        states = self.model(input_ids=tokens, attention_mask=mask).last_hidden_state
        keep = mask.unsqueeze(-1).to(states.dtype)
        return torch.nn.functional.normalize((states * keep).sum(1) / keep.sum(1), dim=1)

    def encode(self, texts: Sequence[str], batch: int = 64, tick: Tick = lambda done, total: None) -> Floats:
        """Vectors of texts: float32 [n, dim] in the order given."""
        import torch

        ids = self.ids(texts)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        vectors = np.empty((len(texts), self.model.config.hidden_size), np.float32)
        self.model.eval()
        with torch.inference_mode():
            for start in range(0, len(order), batch):
                own = order[start : start + batch]
                vectors[own] = self.forward([ids[i] for i in own]).float().cpu().numpy()
                tick(start, len(order))
        return vectors


def student_folder(
    base: Path, out: Path, rows: Sequence[Parallel], english: Sequence[str], say: Say
) -> tuple[list[int], int]:
    """Write the untrained student: larger tokenizer, new rows by alignment. Returns (frozen token ids, new tokens).

    Raises BadInput if the English texts would be tokenised otherwise than before.
    """
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModel

    before = Tokenizer.from_file(str(base / "tokenizer.json"))
    before.no_padding()
    before.no_truncation()
    pieces, words = learn_pieces(rows, before, english)
    say(f"{len(pieces)} new pieces and {len(words)} words")
    out.mkdir(parents=True, exist_ok=True)
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        if (base / name).is_file():
            shutil.copyfile(base / name, out / name)
    shutil.copytree(base / "1_Pooling", out / "1_Pooling", dirs_exist_ok=True)
    write_tokenizer(base, out, pieces, words)
    after = Tokenizer.from_file(str(out / "tokenizer.json"))
    after.no_padding()
    after.no_truncation()
    ascii_texts = [text for text in english if text.isascii()]
    changed = same_tokens(before, after, ascii_texts)
    if changed:
        raise BadInput(f"{len(changed)} English texts are tokenised otherwise: {changed[0][:80]!r}.", "See vocabulary.")
    model = AutoModel.from_pretrained(str(base)).float()
    old = model.config.vocab_size
    model.resize_token_embeddings(after.get_vocab_size(), mean_resizing=False)
    table = model.get_input_embeddings().weight
    pairs = [
        (f.ids, e.ids)
        for f, e in zip(
            after.encode_batch([r.text for r in rows], add_special_tokens=False),
            after.encode_batch([r.english for r in rows], add_special_tokens=False),
            strict=True,
        )
    ]
    with torch.no_grad():
        new = meanings(table[:old].numpy().copy(), range(old, len(table)), pairs)
        table[old:] = torch.from_numpy(new)
    model.save_pretrained(str(out))
    frozen = [i for token, i in before.get_vocab().items() if token.isascii()]
    return frozen, len(table) - old


class Targets:
    """Batches with the teacher's vectors, a chunk of examples at a time: a run that ends early has read no more.

    Examples come in the order of a hash of their English, so that a chunk's languages share strings, which the teacher
    reads once; within a chunk batches are of like length.
    """

    def __init__(self, teacher: Reader, student: Reader, examples: Sequence[Example], options: DistilOptions) -> None:
        self.teacher, self.student, self.options = teacher, student, options
        self.examples = sorted(examples, key=lambda e: order_of(e.english, options.seed))

    def __len__(self) -> int:
        return -(-len(self.examples) // self.options.batch)

    def __iter__(self) -> Iterator[tuple[list[list[int]], Floats]]:
        size = self.options.batch * BATCHES_A_CHUNK
        for start in range(0, len(self.examples), size):
            chunk = self.examples[start : start + size]
            english = sorted({e.english for e in chunk})
            row_of = {text: i for i, text in enumerate(english)}
            vectors = self.teacher.encode(english)
            ids = self.student.ids([e.text for e in chunk])
            for batch in in_batches([len(i) for i in ids], self.options.batch, self.options.seed + start):
                yield [ids[i] for i in batch], vectors[[row_of[chunk[i].english] for i in batch]]


def train(
    student: Reader, data: Targets, frozen: Sequence[int], options: DistilOptions, say: Say, tick: Tick
) -> JsonObject:
    """One pass over the examples, the rates going up quickly and down linearly. Changes the student in place."""
    import torch

    model = student.model
    table = model.get_input_embeddings().weight
    still = torch.ones(len(table), 1, device=table.device)
    still[torch.tensor(list(frozen))] = 0.0
    rest = [p for p in model.parameters() if p is not table]
    for parameter in rest:
        parameter.requires_grad_(False)
    adam = torch.optim.AdamW(
        [{"params": [table]}, {"params": rest}], lr=0.0, weight_decay=0.0, betas=(0.9, 0.98), foreach=True
    )
    model.eval()  # no dropout: the targets are exact
    started, losses, thawed = time.monotonic(), list[float](), 0
    for step, (ids, targets) in enumerate(data):
        done = step / len(data)
        if options.minutes:
            done = max(done, (time.monotonic() - started) / (60 * options.minutes))
            if done >= 1:
                break
        if not thawed and done >= options.rows_only:
            thawed = step or 1
            for parameter in rest:
                parameter.requires_grad_(True)
        adam.param_groups[0]["lr"] = options.rows_rate * min(1.0, (step + 1) / WARM_UP) * (1 - done)
        warm = min(1.0, (step + 1 - thawed) / WARM_UP) if thawed else 0.0
        adam.param_groups[1]["lr"] = options.rate * warm * (1 - done)
        loss = distance(student.forward(ids), torch.from_numpy(targets).to(table.device), options)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        table.grad.mul_(still)
        torch.nn.utils.clip_grad_norm_([p for p in rest if p.grad is not None], 1.0)
        adam.step()
        losses.append(float(loss.detach()))
        tick(step + 1, len(data))
        if len(losses) % 50 == 0:
            seconds = (time.monotonic() - started) / len(losses)
            say(f"step {len(losses)} of {len(data)}: loss {np.mean(losses[-50:]):.4f}, {seconds:.2f} s a step")
    some = max(1, min(50, len(losses) // 4))
    return {
        "steps": len(losses),
        "of": len(data),
        "rows_only_steps": thawed,
        "seconds": round(time.monotonic() - started, 1),
        "loss_first": round(float(np.mean(losses[:some])), 4),
        "loss_last": round(float(np.mean(losses[-some:])), 4),
    }


def blend(model: Any, base: Any, keep: float) -> None:
    """Take a share of the base's weights into the model's layers, in place; token embeddings stay as they are."""
    import torch

    weights = dict(base.named_parameters())
    table = model.get_input_embeddings().weight
    with torch.no_grad():
        for name, own in model.named_parameters():
            if own is not table:
                own.lerp_(weights[name].to(own.device), keep)


def distance(vectors: Any, targets: Any, options: DistilOptions) -> Any:
    """Mean squared distance of the rows, and how far their similarities to the batch's targets are from the teacher's.

    The second term's targets are soft: the same English in two languages of one batch is no negative.
    """
    import torch

    loss = ((vectors - targets) ** 2).sum(1).mean()
    if options.similarity:
        own = torch.log_softmax(options.scale * vectors @ targets.T, 1)
        right = torch.softmax(options.scale * targets @ targets.T, 1)
        loss = loss + options.similarity * torch.nn.functional.kl_div(own, right, reduction="batchmean")
    return loss


def accuracy(reader: Reader, held: Sequence[Parallel], english: Floats) -> dict[str, float]:
    """By language: share of held-out translations whose nearest English string of the language's is their own."""
    vectors = reader.encode([row.text for row in held])
    found: dict[str, float] = {}
    for lang in sorted({row.lang for row in held}):
        own = [i for i, row in enumerate(held) if row.lang == lang]
        nearest = (vectors[own] @ english[own].T).argmax(1)
        found[lang] = round(float((nearest == np.arange(len(own))).mean()), 3)
    return found


def distil(
    strings: Path,
    base: Path,
    out: Path,
    documents: Sequence[str] = (),
    options: DistilOptions | None = None,
    *,
    english_texts: Sequence[str] = (),
    say: Say = lambda _: None,
    tick: Tick = lambda done, total: None,
) -> JsonObject:
    """Make the multilingual student in ``out/model``; returns what ``languages.json`` says.

    ``documents`` are English texts that must keep their vectors: the first half is trained on, the rest measures
    (those in ASCII). ``english_texts``, where they are ASCII, are tokenised as before, like all English strings.
    Raises NotFound without strings or base, BadInput for too few strings or a used ``out``.
    """
    from tokenizers import Tokenizer
    from transformers import AutoModel

    options = options or DistilOptions()
    unknown = sorted(set(options.languages) - set(LANGUAGES))
    if unknown:
        raise BadInput(f"Not a known language: {', '.join(unknown)}.", f"Known are {', '.join(LANGUAGES)}.")
    if not (base / "config.json").is_file():
        raise NotFound(f"There is no model in {base}.", "Give the folder that holds config.json and weights.")
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"{out} is not empty.", "Choose another --out.")
    found = collect(strings, options.languages)
    counts = {lang: len(pairs) for lang, pairs in sorted(found.items())}
    say(f"strings: {counts}")
    started = time.monotonic()
    rows, held = hold_out(balance(found, options.each, seed=options.seed), options.held_out)
    out.mkdir(parents=True, exist_ok=True)
    write_records(out / "held_out.jsonl.gz", held)
    kept, checked = documents[: len(documents) // 2], documents[len(documents) // 2 :]
    guard = [*english_texts, *documents, *{row.english for row in rows}]
    frozen, new = student_folder(base, out / "model", rows, guard, say)
    say(f"student ready, {time.monotonic() - started:.0f} s")

    def reader(folder: Path) -> Reader:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return Reader(AutoModel.from_pretrained(str(folder)).float().eval(), tokenizer, options.max_tokens)

    teacher, student = reader(base), reader(out / "model")
    data = Targets(teacher, student, make_examples(rows, kept, options), options)
    say(f"{len(data.examples)} examples")
    trained = train(student, data, frozen, options, say, tick)
    blend(student.model, teacher.model, options.keep)
    untrained = reader(out / "model")
    student.model.save_pretrained(str(out / "model"))
    say("trained; measuring")
    english = teacher.encode([row.english for row in held])
    scores = {"before": teacher, "new_rows": untrained, "after": student}
    result: JsonObject = {
        "options": json.loads(json.dumps(asdict(options))),
        "base": model_hash(base),
        "strings": counts,
        "trained_on": dict(sorted(Counter(row.lang for row in rows).items())),
        "new_tokens": new,
        **trained,
        "seconds_in_all": round(time.monotonic() - started, 1),
        "accuracy": {name: accuracy(model, held, english) for name, model in scores.items()},
    }
    checked = [text for text in checked if text.isascii()]
    if checked:
        cosines = (teacher.encode(checked) * student.encode(checked)).sum(1)
        result["english_cosine"] = {"mean": round(float(cosines.mean()), 4), "worst": round(float(cosines.min()), 4)}
    (out / "languages.json").write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    return result


def mean(scores: dict[str, float]) -> float:
    """Mean over the languages."""
    return round(float(np.mean(list(scores.values()))), 3) if scores else 0.0
