"""The model card of a call generator: data, settings, numbers, and the command that makes it again."""

from __future__ import annotations

from pathlib import Path

from toolscout.finetune.card import _table
from toolscout.records import JsonObject

_HEAD = """# Call generator (LoRA adapter)

Writes the arguments of an MCP tool call, and says which of several candidate tools a request is for: one JSON object,
`{"name": ..., "arguments": {...}}`, with `"missing"` for required values that the request does not state and
`{"name": "none"}` where no candidate fits.

Intended use: `suggest_call` of Toolscout, over the base named below, with the prompt of `toolscout/prompt.py` in the
rendering named under *styles* and constrained decoding. Outside of that it has not been measured.
"""


def write_card(path: Path, identity: JsonObject, result: JsonObject, command: str) -> None:
    """Write the card of a finished run as Markdown; arguments as ``run.json`` and ``train.json`` hold them."""
    rows = identity["rows"]
    parts = [
        _HEAD,
        "## Data\n",
        "| | file | SHA-256 |\n|---|---|---|",
        f"| rows | {rows['file']} | `{rows['sha256']}` |",
        f"| base weights | | `{identity['base']}` |",
        *([f"| adapter it goes on from | | `{identity['adapter']}` |"] if "adapter" in identity else []),
        "",
        _table({key: result[key] for key in ("kinds", "candidates", "styles", "lengths", "too_long")}),
        "\n## Settings\n",
        _table(identity["options"]),
        "\n## Run\n",
        _table(
            {key: result[key] for key in ("steps", "device", "precision", "seconds_a_step")}
            | {"loss": {key: result["loss"][key] for key in ("first", "last")}}
        ),
    ]
    if command:
        parts += ["\n## Made by\n", f"```\n{command}\n```"]
    path.write_text("\n".join(parts) + "\n", "utf-8")
