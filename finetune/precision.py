"""In which precision a machine trains best."""

from __future__ import annotations


def bfloat16_pays() -> bool:
    """Whether this machine multiplies in bfloat16 faster than in float32: most GPUs, CPUs with AVX512-BF16 or AMX."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    # Private, and missing in some versions; without it training is only slower.
    asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(ask() for ask in asked if ask)
