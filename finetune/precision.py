"""In which precision a machine trains best."""

from __future__ import annotations

from toolscout.errors import BadInput

PRECISIONS = ("auto", "bfloat16", "float32")


def in_bfloat16(precision: str, automatic: bool) -> bool:
    """Whether to compute in bfloat16: as said, or with ``auto`` as the caller holds right. Raises BadInput."""
    if precision not in PRECISIONS:
        raise BadInput(f"There is no precision {precision!r}.", f"Known: {', '.join(PRECISIONS)}.")
    return automatic if precision == "auto" else precision == "bfloat16"


def bfloat16_pays() -> bool:
    """Whether this machine multiplies in bfloat16 faster than in float32: most GPUs, CPUs with AVX512-BF16 or AMX."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    # Private, and missing in some versions; without it training is only slower.
    asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(ask() for ask in asked if ask)
