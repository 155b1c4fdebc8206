"""What a base model is trained with unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from toolscout.errors import BadInput


@dataclass(frozen=True)
class CallerOptions:
    """How one run trains; all of it decides the result. The defaults are MCP-Flow's (arXiv 2510.24284)."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    targets: str = "all-linear"
    """Modules that get an adapter: ``all-linear``, or names by commas."""
    rate: float = 5e-5
    schedule: str = "cosine"
    warmup: float = 0.1
    batch: int = 2
    """Packs in a forward pass."""
    accumulate: int = 8
    """Forward passes in a step."""
    max_tokens: int = 8192
    """Longest row, and longest pack. Longer rows are left out: one cut off would teach half an answer."""
    share: bool = False
    """Compute what the rows of a group have in common once: one pack holds the shared tokens and each row's own."""
    steps: int = 0
    """At most so many steps; 0: all rows once."""
    limit: int = 0
    """Only the first so many rows, for trials and for scaling curves; 0: all."""
    skip: int = 0
    """Without the first so many rows: those that the adapter it goes on from has seen."""
    weight_decay: float = 0.0
    seed: int = 0


PRESETS: dict[str, CallerOptions] = {
    "qwen3-4b": CallerOptions(),
    "qwen2.5-coder-0.5b": CallerOptions(rate=2e-4, batch=1, accumulate=4, max_tokens=4096, share=True),
    "smollm2-135m": CallerOptions(rank=16, alpha=32, rate=1e-3, batch=1, accumulate=2, max_tokens=2560, share=True),
}
"""``qwen3-4b`` is the paper's setting. The small ones see each row cheaply (``share``) and learn faster."""


def preset(name: str, **changes: Any) -> CallerOptions:
    """A preset with changes; None means unchanged. Raises BadInput for an unknown name."""
    if name not in PRESETS:
        raise BadInput(f"There is no preset {name!r}.", f"Presets are {', '.join(PRESETS)}.")
    return replace(PRESETS[name], **{k: v for k, v in changes.items() if v is not None})
