"""The model card of a training run: data, settings, numbers, and the command that makes the model again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolscout.records import JsonObject

_HEAD = """# Tool encoder

A sentence encoder for finding tools: requests and tools' descriptions in one vector space, trained on requests with
their tools and on tools that look right and are not.

Intended use: the encoder of a Toolscout index (`TOOLSCOUT_ENCODER`). It knows the languages of its data, mostly
English, and reads {max_tokens} tokens of a text.
"""


def write_card(path: Path, identity: JsonObject, result: JsonObject, command: str) -> None:
    """Write the card of a finished run as Markdown; arguments as ``run.json`` and ``train.json`` hold them."""
    options = identity["options"]
    parts = [_HEAD.format(max_tokens=options["max_tokens"]), "## Data\n", "| | file | SHA-256 |\n|---|---|---|"]
    for kind, files in identity["files"].items():
        parts += [f"| {kind} | {file['file']} | `{file['sha256']}` |" for file in files]
    parts.append(f"| base weights | | `{identity['base']}` |")
    parts.append(f"| encoder of the negatives | | `{identity['miner']}` |")
    parts += ["\nDev files measured and guarded only: no training row is made of them.\n", _table(result["rows"])]
    parts += ["\n## Settings\n", _table({**options["rows"], **{k: v for k, v in options.items() if k != "rows"}})]
    run = {k: result[k] for k in ("steps", "device", "precision", "seconds", "seconds_a_step") if k in result}
    parts += ["\n## Run\n", _table(run | {"loss": result.get("loss")})]
    if "dev" in result:
        parts += ["\n## Recall on dev\n", "The encoder alone (PyTorch, full pool, no words, no fusion).\n"]
        parts += [_recall(result["dev"])]
    if command:
        parts += ["\n## Made by\n", f"```\n{command}\n```"]
    path.write_text("\n".join(parts) + "\n", "utf-8")


def _table(values: JsonObject) -> str:
    lines = [f"| {key.replace('_', ' ')} | {_cell(value)} |" for key, value in values.items()]
    return "\n".join(["| | |\n|---|---|", *lines])


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_cell(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return str(value).replace("|", "\\|").replace("\n", " ")


def _recall(dev: dict[str, dict[str, dict[str, float]]]) -> str:
    keys = list(next(iter(dev["trained"].values())))
    lines = [f"| encoder | reading | {' | '.join(keys)} |", f"|---|---|{'---|' * len(keys)}"]
    for name, readings in dev.items():
        for reading, scores in readings.items():
            lines.append(f"| {name} | {reading} | {' | '.join(f'{scores[k]:.3f}' for k in keys)} |")
    return "\n".join(lines)
