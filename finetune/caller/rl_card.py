"""The model card of an adapter that reinforcement learning went on with."""

from __future__ import annotations

from pathlib import Path

from toolscout.finetune.card import _table
from toolscout.records import JsonObject

_HEAD = """# Call generator (LoRA adapter, fine-tuned, then GRPO)

Writes the arguments of an MCP tool call, and says which of several candidate tools a request is for: one JSON object,
`{"name": ..., "arguments": {...}}`, with `"missing"` for required values that the request does not state and
`{"name": "none"}` where no candidate fits.

Intended use: `suggest_call` of Toolscout with constrained decoding, over the base named below. The rewards of the
training were checked by programs alone: form, schema, tool, parameter names, values, abstention.
"""


def write_rl_card(path: Path, identity: JsonObject, result: JsonObject, command: str) -> None:
    """Write the card of a finished run as Markdown; arguments as ``run.json`` and ``train.json`` hold them."""
    rows, held = identity["rows"], result["held_out"]
    outcome = {key: held[key] for key in ("became_right", "became_wrong", "p_value", "answers_changed")}
    parts = [
        _HEAD,
        "## Data\n",
        "| | file | SHA-256 |\n|---|---|---|",
        f"| rows | {rows['file']} | `{rows['sha256']}` |",
        f"| tools shown | | `{identity['tools']}` |",
        f"| adapter it started from | | `{identity['adapter']}` |",
        f"| base weights | | `{identity['base']}` |",
        "",
        _table(result["rows"]),
        "\n## Held-out rows, answered greedily and freely\n",
        "Rows of tools that reinforcement did not train on (fine-tuning may have). The p-value is of a sign test over",
        "the rows that changed: above 0.05 the two adapters cannot be told apart here.\n",
        _before_after(held["before"], held["after"]),
        "",
        _table(outcome),
        "\n## Settings\n",
        _table(identity["options"]["rl"]),
        "\n## Run\n",
        _table({key: result[key] for key in ("steps", "device", "seconds_a_step")} | result["training"]),
    ]
    if command:
        parts += ["\n## Made by\n", f"```\n{command}\n```"]
    path.write_text("\n".join(parts) + "\n", "utf-8")


def _before_after(before: JsonObject, after: JsonObject) -> str:
    def line(name: str, old: object, new: object, rows: object) -> str:
        return f"| {name} | {rows} | {'-' if old is None else old} | {'-' if new is None else new} |"

    lines = ["| | rows | before | after |", "|---|---|---|---|"]
    lines.append(line("reward", before["reward"], after["reward"], before["rows"]))
    for name, value in before["rewards"].items():
        lines.append(line(name.replace("_", " "), value, after["rewards"][name], before["rows"]))
    for name in ("tool", "param", "ast"):
        lines.append(line(f"calls: {name}", before["calls"][name], after["calls"][name], before["calls"]["rows"]))
    for kind in ("none", "missing"):
        lines.append(line(f"{kind}: right", before[kind]["right"], after[kind]["right"], before[kind]["rows"]))
    return "\n".join(lines)
