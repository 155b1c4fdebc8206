"""From rows to a served model, for real but tiny: a random Llama is trained, resumed, exported, loaded by llama.cpp.

Needs the ``train`` extra; skipped without it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_call_rows import CALLS, STRANGERS, TOOLS
from tiny_llama import CHATML, END, SPECIAL, save_tiny_llama
from typer.testing import CliRunner

from toolscout.cli import app
from toolscout.errors import BadInput, NotFound
from toolscout.finetune.caller.attention import register
from toolscout.finetune.caller.base import WEIGHTS_FILE, load_base, prepare_base
from toolscout.finetune.caller.collate import collate
from toolscout.finetune.caller.export import permuted, served_as, write_gguf_adapter, write_gguf_merged, write_merged
from toolscout.finetune.caller.presets import CallerOptions, preset
from toolscout.finetune.caller.take_back import adapter_folder
from toolscout.finetune.caller.tokens import IGNORED, chat_text, make_packs, tokenize
from toolscout.finetune.caller.train import CallerRunning, train_caller
from toolscout.index.asset import file_sha256
from toolscout.jsonl import read_records, write_records
from toolscout.server.adapters import packaged_adapters
from toolscout.server.backends import make_backend
from toolscout.server.backends.gguf import GgufBackend
from toolscout.server.backends.tuning import Tuning, read_tuning
from toolscout.settings import Settings
from toolscout.synth.call_rows import CallRow, CallRowOptions, build_call_rows
from toolscout.synth.tool_pool import ToolPool

torch = pytest.importorskip("torch")
for needed in ("transformers", "trl", "peft", "gguf"):
    pytest.importorskip(needed)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def base_gguf(base: Path) -> Path:
    """The same weights as llama.cpp takes them."""
    import gguf

    model, tokenizer = load_base(base)
    config, out = model.config, base / "base.gguf"
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges(["Ġ a"])
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for key, value in model.state_dict().items():
        array = value.float().numpy()
        if key == "lm_head.weight":
            continue
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in key:
                array = permuted(array, heads)
        writer.add_tensor(names.get_name(key, try_suffixes=(".weight",)), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


@pytest.fixture(scope="module")
def rows() -> list[CallRow]:
    options = CallRowOptions(sizes={2: 1, 3: 1}, branches=4, missing=0.1)
    return build_call_rows(CALLS, ToolPool(TOOLS), STRANGERS, options)[0]


@pytest.fixture(scope="module")
def rows_file(rows: list[CallRow], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl.gz"
    write_records(path, rows)
    return path


OPTIONS = CallerOptions(
    rank=4, alpha=8, rate=3e-2, warmup=0.0, batch=1, accumulate=2, max_tokens=8192, share=True, steps=4, limit=40
)


@pytest.fixture(scope="module")
def run(base: Path, rows_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after two steps and resumed."""
    out = tmp_path_factory.mktemp("run") / "run"
    first = train_caller(rows_file, base, out, OPTIONS, CallerRunning(threads=1, stop_at=2, log_steps=1))
    assert not first["finished"] and first["steps"] == 2 and (out / "adapter" / "adapter_model.safetensors").is_file()
    second = train_caller(rows_file, base, out, OPTIONS, CallerRunning(threads=1, log_steps=1))
    assert second["finished"] and second["steps"] == 4
    return out


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_precision_is_as_asked(precision: str, base: Path, rows_file: Path, tmp_path: Path) -> None:
    options = replace(OPTIONS, steps=1, weight_decay=0.1)
    running = CallerRunning(threads=1, precision=precision)
    result = train_caller(rows_file, base, tmp_path / "run", options, running)
    assert result["precision"] == precision
    with pytest.raises(BadInput, match="no precision"):
        train_caller(rows_file, base, tmp_path / "odd", options, CallerRunning(precision="int4"))


def test_the_loss_is_on_the_answer_alone_and_the_prompt_is_the_templates(rows: list[CallRow], base: Path) -> None:
    _, tokenizer = load_base(base)
    for row, tokens in zip(rows[:10], tokenize(rows[:10], tokenizer), strict=True):
        assert tokenizer.decode(tokens.ids[tokens.start :]) == row.answer + "<|im_end|>"
        assert tokenizer.decode(tokens.ids[: tokens.start]) == chat_text(tokenizer, row.messages)
        assert chat_text(tokenizer, row.messages).endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize("attention", ["sdpa", "branched"])
def test_sharing_computes_the_same_loss_from_fewer_tokens(attention: str, rows: list[CallRow], base: Path) -> None:
    plain, tokenizer = load_base(base)
    model = load_base(base, attention=register())[0] if attention == "branched" else plain
    tokens = tokenize(rows[:24], tokenizer)
    shared, _ = make_packs(tokens, max_tokens=8192, share=True)
    alone, _ = make_packs(tokens, max_tokens=8192, share=False)
    assert len(alone) == 24 > len(shared)
    assert sum(p.size for p in shared) < 0.6 * sum(p.size for p in alone)

    def loss(packs: Any, model: Any = model) -> float:
        batch = collate(packs, 0, sizes=model is not plain)
        labels = batch.pop("labels")
        with torch.no_grad():
            logits = model(**batch, use_cache=False).logits
        right = labels[:, 1:].flatten()
        return float(
            torch.nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), right, ignore_index=IGNORED, reduction="sum"
            )
        )

    each = sum(loss([p], plain) for p in alone)
    assert sum(loss([p]) for p in shared) == pytest.approx(each, rel=1e-4)
    assert loss(shared) == pytest.approx(each, rel=1e-4), "padded in one batch as well"


def test_rows_too_long_are_left_out_whole(rows: list[CallRow], base: Path) -> None:
    tokens = tokenize(rows[:8], load_base(base)[1])
    limit = sorted(len(t.ids) for t in tokens)[4]
    packs, left = make_packs(tokens, max_tokens=limit, share=True)
    assert left == sum(len(t.ids) > limit for t in tokens) > 0
    assert all(p.size <= limit for p in packs) and sum(len(p.branches) for p in packs) == 8 - left


def test_resumed_is_as_if_never_stopped(run: Path, base: Path, rows_file: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    result = train_caller(rows_file, base, tmp_path / "whole", OPTIONS, CallerRunning(threads=1, log_steps=1))
    one = load_file(run / "adapter" / "adapter_model.safetensors")
    other = load_file(tmp_path / "whole" / "adapter" / "adapter_model.safetensors")
    assert one.keys() == other.keys() and all(np.allclose(one[k], other[k], atol=1e-5) for k in one)
    losses = [loss for _, loss in result["loss"]["by_step"]]
    assert losses[-1] < losses[0]
    card = (run / "README.md").read_text()
    assert "missing" in card and json.loads((run / "run.json").read_text())["rows"]["sha256"] in card


def test_an_adapter_learns_on_from_further_rows(run: Path, base: Path, rows_file: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    more = replace(OPTIONS, skip=16, steps=1, rate=0.0)
    kept = train_caller(rows_file, base, tmp_path / "kept", more, CallerRunning(threads=1), adapter=run / "adapter")
    moved = replace(more, rate=3e-2)
    train_caller(rows_file, base, tmp_path / "on", moved, CallerRunning(threads=1), adapter=run / "adapter")
    before, same, after = (
        load_file(folder / "adapter" / "adapter_model.safetensors")
        for folder in (run, tmp_path / "kept", tmp_path / "on")
    )
    assert all(np.array_equal(before[k], same[k]) for k in before) and before.keys() == after.keys()
    assert any(not np.array_equal(before[k], after[k]) for k in before)
    assert kept["lengths"]["rows"] == len(list(read_records(rows_file, CallRow))[16:56])
    with pytest.raises(BadInput, match="other adapter"):
        train_caller(rows_file, base, tmp_path / "on", moved)
    with pytest.raises(BadInput, match="no rows"):
        train_caller(rows_file, base, tmp_path / "none", replace(OPTIONS, skip=10_000))
    with pytest.raises(NotFound, match="no adapter"):
        train_caller(rows_file, base, tmp_path / "none", OPTIONS, adapter=tmp_path)


def test_another_run_is_not_mixed_in(run: Path, base: Path, rows_file: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="other options"):
        train_caller(rows_file, base, run, CallerOptions(rank=8))
    with pytest.raises(NotFound):
        train_caller(rows_file, tmp_path, tmp_path / "new", OPTIONS)
    with pytest.raises(BadInput, match="preset"):
        preset("gpt-17")


def greedy(folder: Path, adapter: Path | None, row: CallRow, count: int) -> str:
    from peft import PeftModel

    model, tokenizer = load_base(folder)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(adapter))
    ids = tokenizer(chat_text(tokenizer, row.messages), return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        for _ in range(count):
            nearest = model(input_ids=ids, use_cache=False).logits[0, -1].argmax()
            ids = torch.cat([ids, nearest.view(1, 1)], 1)
    return str(tokenizer.decode(ids[0, -count:]))


def served(backend: GgufBackend, row: CallRow, count: int) -> str:
    async def ask() -> str:
        try:
            # any text at all, but no end: what is compared are the model's own choices
            return (await backend.generate(row.messages, grammar="root ::= [^\\x00]*", max_tokens=count)).text
        finally:
            await backend.close()

    return asyncio.run(ask())


def test_llama_cpp_writes_what_pytorch_writes(
    run: Path, base: Path, base_gguf: Path, rows: list[CallRow], tmp_path: Path, home: Path
) -> None:
    pytest.importorskip("xllamacpp")
    row = min(rows, key=lambda r: len(r.messages[0]["content"]))
    adapter = run / "adapter"
    # a few tokens: of a random model, llama.cpp's half precision decides near ties otherwise sooner or later
    wanted = greedy(base, adapter, row, 6)
    assert wanted != greedy(base, None, row, 6), "the adapter changes what is written, else this shows nothing"
    lora = write_gguf_adapter(adapter, base, tmp_path / "caller.gguf", served_as(adapter, base=str(base_gguf)))
    backend = make_backend(Settings(model=str(lora), model_threads=1, starter=False))
    assert isinstance(backend, GgufBackend) and backend.lora == lora and backend.path == base_gguf
    assert (backend.style, backend.budget) == ("compact", 4000), "it is asked as it was trained"
    assert served(backend, row, 6) == wanted
    whole = write_gguf_merged(adapter, base, base_gguf, tmp_path / "whole.gguf", served_as(adapter), "F32")
    assert served(GgufBackend(whole, threads=1), row, 6) == wanted
    with pytest.raises(BadInput, match="Q4_K"):
        write_gguf_merged(adapter, base, base_gguf, tmp_path / "small.gguf", served_as(adapter), "Q4_K")
    small = write_gguf_merged(adapter, base, base_gguf, tmp_path / "small.gguf", served_as(adapter), "Q8_0")
    assert small.stat().st_size < whole.stat().st_size and len(served(GgufBackend(small, threads=1), row, 4)) > 0


def test_an_exported_adapter_can_be_packaged(run: Path, base: Path, tmp_path: Path) -> None:
    place = tmp_path / "tiny-calls"
    said = served_as(run / "adapter", base="smollm2-135m", title="Tiny, tuned", rank=1.5)
    write_gguf_adapter(run / "adapter", base, place / "caller.gguf", said)
    (adapter,) = packaged_adapters(tmp_path).values()
    assert (adapter.name, adapter.base, adapter.title, adapter.rank) == (
        "tiny-calls",
        "smollm2-135m",
        "Tiny, tuned",
        1.5,
    )
    assert adapter.sha256 == file_sha256(adapter.path)
    assert {p.name for p in place.iterdir()} == {"caller.gguf", "caller.json"}


def test_a_shipped_adapter_can_be_taken_back(run: Path, base: Path, rows: list[CallRow], tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    shipped = write_gguf_adapter(run / "adapter", base, tmp_path / "caller.gguf", served_as(run / "adapter"))
    back = adapter_folder(shipped, base, tmp_path / "back")
    for row in rows[:3]:
        assert greedy(base, back, row, 8) == greedy(base, run / "adapter", row, 8)
    before, after = load_file(run / "adapter" / WEIGHTS_FILE), load_file(back / WEIGHTS_FILE)
    assert before.keys() == after.keys()
    assert all(np.allclose(before[k], after[k], atol=1e-3) for k in before)
    assert (back / "prompt.json").read_text() == (run / "adapter" / "prompt.json").read_text()


def test_a_gguf_adapter_and_its_base_are_exported_for_vllm(
    run: Path, base: Path, base_gguf: Path, rows: list[CallRow], tmp_path: Path
) -> None:
    shipped = write_gguf_adapter(run / "adapter", base, tmp_path / "caller.gguf", served_as(run / "adapter"))
    out = tmp_path / "adapter"
    given = ["--adapter", str(shipped), "--base", str(base_gguf), "--folder", str(out)]
    ran = CliRunner().invoke(app, ["train", "caller-export", *given], catch_exceptions=False)
    assert ran.exit_code == 0 and ran.stdout.split() == [str(tmp_path / "adapter-base"), str(out)]
    assert greedy(tmp_path / "adapter-base", out, rows[0], 8) == greedy(base, run / "adapter", rows[0], 8)
    other = tmp_path / "other.gguf"
    other.write_bytes(shipped.read_bytes() + bytes(32))
    with pytest.raises(BadInput, match="made of another file"):
        adapter_folder(other, base, out)
    with pytest.raises(BadInput, match="made of another file"):
        prepare_base(other, tmp_path / "adapter-base")
    with pytest.raises(BadInput, match="a folder already"):
        CliRunner().invoke(
            app,
            ["train", "caller-export", "--adapter", str(out), "--base", str(base), "--folder", str(tmp_path / "x")],
            catch_exceptions=False,
        )


def test_what_is_no_adapter_is_not_taken_back(base: Path, base_gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a LoRA adapter"):
        adapter_folder(base_gguf, base, tmp_path / "back")
    with pytest.raises(NotFound, match="no file"):
        adapter_folder(tmp_path / "none.gguf", base, tmp_path / "back")


def test_a_merged_checkpoint_writes_the_same(run: Path, base: Path, rows: list[CallRow], tmp_path: Path) -> None:
    merged = write_merged(run / "adapter", base, tmp_path / "merged")
    assert read_tuning(merged) == read_tuning(run / "adapter") != Tuning()
    assert greedy(merged, None, rows[0], 8) == greedy(base, run / "adapter", rows[0], 8)


def test_a_gguf_base_becomes_a_checkpoint_that_writes_the_same(
    base: Path, base_gguf: Path, rows: list[CallRow], tmp_path: Path
) -> None:
    made = prepare_base(base_gguf, tmp_path / "made")
    model, tokenizer = load_base(made)
    assert not hasattr(model.config, "quantization_config")
    assert tokenizer.chat_template == CHATML and tokenizer.eos_token == "<|im_end|>"
    assert greedy(made, None, rows[0], 8) == greedy(base, None, rows[0], 8)


def test_adapters_that_do_not_fit_are_refused(run: Path, base: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no adapter"):
        write_gguf_adapter(tmp_path, base, tmp_path / "x.gguf", {})
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(BadInput, match="gpt2"):
        write_gguf_adapter(run / "adapter", tmp_path, tmp_path / "x.gguf", {})
    with pytest.raises(NotFound, match=r"no prompt\.json"):
        served_as(tmp_path)
