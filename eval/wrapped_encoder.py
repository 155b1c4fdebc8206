"""An encoder around another one, whose vectors it gives in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolscout.index.encoder import Encoder


class WrappedEncoder:
    """What it does not do itself, the wrapped encoder does."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's: an index of these vectors is asked with its queries."""
        return self._encoder.fingerprint

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._encoder.dim

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)
