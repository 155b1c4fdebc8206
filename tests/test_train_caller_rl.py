"""Reinforcement learning of the call generator: shared sampling, and real GRPO that turns a tiny model's doubt into
right calls, is stopped and resumed.

Needs the ``train`` extra; skipped without it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_caller_rewards import TOOLS, row
from tiny_llama import END, save_tiny_llama

from toolscout.errors import BadInput, NotFound
from toolscout.finetune.caller.attention import register
from toolscout.finetune.caller.base import load_adapted, load_base
from toolscout.finetune.caller.presets import CallerOptions
from toolscout.finetune.caller.rl import train_rl
from toolscout.finetune.caller.rl_data import gold_probabilities, held_out, usable_rows
from toolscout.finetune.caller.rl_options import RlOptions
from toolscout.finetune.caller.rl_rollout import sample
from toolscout.finetune.caller.rl_trainer import packed_logps, shared_packs
from toolscout.finetune.caller.tokens import TokenRow, chat_text, tokenize
from toolscout.finetune.caller.train import CallerRunning, train_caller
from toolscout.jsonl import write_records
from toolscout.prompt import answer
from toolscout.records import Tool
from toolscout.synth.call_rows import CallRow

torch = pytest.importorskip("torch")
for needed in ("transformers", "trl", "peft", "gguf"):
    pytest.importorskip(needed)


def tool(i: int) -> Tool:
    """All of one name: a tiny model learns to write it, not to look it up."""
    return Tool(tool_id=f"s{i}/go", server_id=f"s{i}", name="go", input_schema={"type": "object"})


KEPT = [tool(i) for i in range(60) if not held_out(row("", gold=f"s{i}/go"), 0.3)][:4]
HELD = [tool(i) for i in range(60) if held_out(row("", gold=f"s{i}/go"), 0.3)][:2]


def asked(query: str) -> list[dict[str, str]]:
    """A short prompt: what is learned here is one of two answers."""
    return [{"role": "system", "content": "One call, or none. Tool: go"}, {"role": "user", "content": query}]


def small_rows(*, doubt: bool = False) -> list[CallRow]:
    """Requests for a tool without parameters. With ``doubt`` each is answered with it twice, and with none thrice: a
    model that learns this is wrong when it is greedy, and right often enough to be rewarded."""
    out = []
    for group, one in enumerate([*KEPT, *HELD]):
        for i in range(4):
            query = "again " * i + "please"
            right, wrong = answer(one.name), answer("none")
            for text in (right, wrong, right, wrong, wrong) if doubt else (right,):
                out.append(
                    row(
                        text, gold=one.tool_id, id=f"{group}-{i}-{len(text)}", group=group, query=query,
                        tools=[one.tool_id], messages=asked(query),
                        style="compact", budget=3400,
                    )
                )  # fmt: skip
    return out


SMALL_TOOLS = {t.tool_id: t for t in [*KEPT, *HELD]}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def tuned(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that wavers between the right call and none, and leans to none."""
    folder = tmp_path_factory.mktemp("tuned")
    write_records(folder / "rows.jsonl", small_rows(doubt=True) * 16)
    options = CallerOptions(rank=8, alpha=16, rate=1e-2, warmup=0.05, batch=1, accumulate=1, share=True)
    train_caller(folder / "rows.jsonl", base, folder / "run", options, CallerRunning(threads=1))
    return folder / "run" / "adapter"


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    write_records(path, small_rows())
    return path


OPTIONS = RlOptions(
    group=8, prompts=4, batch=32, max_completion=40, rate=5e-4, warmup=0.0, steps=10, held_out=0.3, held_rows=8,
    easiest=0.999, hardest=0.0, share=True, beta=0.01,
)  # fmt: skip


def prompts_of(tokenizer: Any, rows: list[CallRow]) -> list[list[int]]:
    return [tokenizer(chat_text(tokenizer, r.messages), add_special_tokens=False)["input_ids"] for r in rows]


def test_shared_sampling_writes_what_one_by_one_writes(base: Path, tuned: Path) -> None:
    model, tokenizer = load_adapted(base, tuned)
    prompts = prompts_of(tokenizer, small_rows()[:6])
    found = sample(model, prompts, 2, max_new=30, temperature=0, end=[END], seed=0)
    plain, _ = load_adapted(base, tuned, share=False)
    for prompt, (one, other) in zip(prompts, found, strict=True):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            for _ in range(30):
                ids = torch.cat([ids, plain(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
                if ids[0, -1] == END:
                    break
        assert one == other == ids[0, len(prompt) :].tolist()
    drawn = [sample(model, prompts, 8, max_new=30, temperature=1, end=[END], seed=s) for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2] and len({tuple(a) for a in drawn[0][0]}) > 1
    assert all(END not in a[:-1] and len(a) <= 30 for some in drawn[0] for a in some)


def test_sampling_follows_the_models_probabilities(base: Path, tuned: Path) -> None:
    model, tokenizer = load_adapted(base, tuned)
    tokens = tokenize(small_rows()[:1], tokenizer)
    (chance,) = gold_probabilities(model, tokens)
    (found,) = sample(model, [tokens[0].ids[: tokens[0].start]], 400, max_new=40, temperature=1, end=[END], seed=0)
    share = sum(a == tokens[0].ids[tokens[0].start :] for a in found) / 400
    assert 0.05 < chance < 0.95, "else this shows nothing"
    assert share == pytest.approx(chance, abs=0.06)


def test_packed_probabilities_are_those_of_each_answer_alone(base: Path, tuned: Path) -> None:
    model, tokenizer = load_adapted(base, tuned)
    plain, _ = load_adapted(base, tuned, share=False)
    prompts = prompts_of(tokenizer, [small_rows()[i] for i in (0, 1, 5, 9)])
    found = sample(model, prompts, 3, max_new=12, temperature=1, end=[END], seed=3)
    rows = [TokenRow(0, p + a, len(p)) for p, answers in zip(prompts, found, strict=True) for a in answers]
    rows = rows[::2] + rows[1::2]
    packs, order = shared_packs(rows)
    assert sorted(order) == list(range(12)) and sum(p.size for p in packs) < 0.5 * sum(len(r.ids) for r in rows)
    for one_pass in (False, True):
        logps, entropies = packed_logps(model, rows, 0.7, one_pass=one_pass)
        for r, logp, entropy in zip(rows, logps, entropies, strict=True):
            with torch.no_grad():
                logits = plain(input_ids=torch.tensor([r.ids]), use_cache=False).logits[0] / 0.7
            each = torch.log_softmax(logits[r.start - 1 : -1], -1)
            wanted = each.gather(1, torch.tensor(r.ids[r.start :])[:, None])[:, 0]
            assert torch.allclose(logp, wanted, atol=2e-4)
            assert torch.allclose(entropy, -(each.exp() * each).sum(-1), atol=2e-4)


@pytest.fixture(scope="module")
def run(base: Path, tuned: Path, rows_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after four steps and resumed."""
    out = tmp_path_factory.mktemp("run") / "run"
    first = train_rl(rows_file, SMALL_TOOLS, base, tuned, out, OPTIONS, CallerRunning(threads=1, stop_at=4))
    assert not first["finished"] and first["steps"] == 4 and "held_out" not in first
    second = train_rl(rows_file, SMALL_TOOLS, base, tuned, out, OPTIONS, CallerRunning(threads=1, command="again"))
    assert second["finished"] and second["steps"] == 10
    return out


def test_reward_goes_up_and_the_numbers_are_told(run: Path, tuned: Path) -> None:
    result = json.loads((run / "train.json").read_text())
    assert [s["step"] for s in result["by_step"]] == list(range(1, 11))
    training = result["training"]
    assert training["first_quarter"]["reward"] < 0.65
    assert training["last_quarter"]["reward"] > training["first_quarter"]["reward"] + 0.15
    assert training["groups"] == 40 and 0 <= training["dead_groups"] < 40
    held = result["held_out"]
    assert held["before"]["rows"] == held["after"]["rows"] == 8 == held["before"]["calls"]["rows"]
    assert held["after"]["reward"] > held["before"]["reward"]
    assert all("kl" in s and s["kl"] >= 0 for s in result["by_step"]) and result["by_step"][0]["kl"] < 1e-4
    card = (run / "README.md").read_text()
    assert "GRPO" in card and "p value" in card and "again" in card and "| calls: ast | 8 |" in card
    assert sorted(p.name for p in (run / "adapter").iterdir() if p.is_dir()) == [], "no reference adapter is shipped"
    assert json.loads((run / "adapter" / "prompt.json").read_text()) == {"style": "compact", "budget": 3400}


def test_resumed_is_as_if_never_stopped(run: Path, base: Path, tuned: Path, rows_file: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    whole = train_rl(rows_file, SMALL_TOOLS, base, tuned, tmp_path / "whole", OPTIONS, CallerRunning(threads=1))
    one = load_file(run / "adapter" / "adapter_model.safetensors")
    other = load_file(tmp_path / "whole" / "adapter" / "adapter_model.safetensors")
    assert one.keys() == other.keys() and all(torch.allclose(one[k], other[k], atol=1e-5) for k in one)
    start = load_file(tuned / "adapter_model.safetensors")
    assert start.keys() == one.keys() and any(not torch.allclose(start[k], one[k], atol=1e-3) for k in one)
    resumed = json.loads((run / "train.json").read_text())
    assert [s["reward"] for s in whole["by_step"]] == [s["reward"] for s in resumed["by_step"]]
    assert train_rl(rows_file, SMALL_TOOLS, base, tuned, run, OPTIONS)["held_out"] == resumed["held_out"]


def test_trls_own_ways_work_as_well(base: Path, tuned: Path, rows_file: Path, tmp_path: Path) -> None:
    options = replace(OPTIONS, share=False, steps=2, batch=16, loss="dapo", scale="group", held_rows=2)
    result = train_rl(rows_file, SMALL_TOOLS, base, tuned, tmp_path / "run", options, CallerRunning(threads=1))
    assert result["finished"] and len(result["by_step"]) == 2
    assert all(s["grad_norm"] > 0 for s in result["by_step"])


def test_what_cannot_be_learned_from_is_left_out(base: Path, tuned: Path, rows_file: Path, tmp_path: Path) -> None:
    _, tokenizer = load_base(base, attention=register())
    rows = [*small_rows()[:2], row(answer("get_weather", {}), tools=["w/get_weather"], messages=[])]
    rows[2] = rows[2].model_copy(update={"messages": rows[0].messages})
    tools = {**SMALL_TOOLS, **TOOLS}
    options = replace(OPTIONS, max_completion=80)
    kept, left = usable_rows(rows, tools, tokenizer, options)
    assert [r.row.id for r in kept] == [r.id for r in rows[:2]] and left == {"gold breaks the rules": 1}
    assert usable_rows(rows, tools, tokenizer, replace(options, max_prompt=20))[1] == {"prompt too long": 3}
    assert usable_rows(rows, tools, tokenizer, replace(options, max_completion=8))[1]["answer too long"] == 3
    with pytest.raises(BadInput, match="middling"):
        train_rl(rows_file, SMALL_TOOLS, base, tuned, tmp_path / "easy", replace(OPTIONS, easiest=1e-9))
    with pytest.raises(BadInput, match="no rows"):
        train_rl(rows_file, SMALL_TOOLS, base, tuned, tmp_path / "none", replace(OPTIONS, skip=1000))
    with pytest.raises(NotFound, match="no adapter"):
        train_rl(rows_file, SMALL_TOOLS, base, tmp_path, tmp_path / "x", OPTIONS)


def test_another_run_is_not_mixed_in(run: Path, base: Path, tuned: Path, rows_file: Path) -> None:
    with pytest.raises(BadInput, match="other options"):
        train_rl(rows_file, SMALL_TOOLS, base, tuned, run, replace(OPTIONS, seed=1))
