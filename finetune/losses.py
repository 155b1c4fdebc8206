"""The contrastive losses by name, and the plain one without the padding's cost on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout.finetune.model import load_model

if TYPE_CHECKING:
    from toolscout.finetune.train_encoder import TrainOptions

LOSSES = ("mnrl", "cached", "gist", "cached-gist")
"""In-batch softmax (van den Oord et al., arXiv 1807.03748); the same in small pieces for large batches (Gao et al.,
arXiv 2101.06983); with false negatives masked by the base encoder (Solatorio, arXiv 2402.16829); both."""

CHUNK = 8
"""Texts of like length that go through the model together on a CPU. Half of the tools have fewer than 35 tokens, one
in a hundred 200: padded to the longest, a batch is mostly padding."""


def make_loss(model: Any, base: Path, options: TrainOptions, mini_batch: int) -> Any:
    """The loss that the options name; ``gist`` loads the base again as the guide."""
    losses = _library()
    if options.loss == "mnrl":
        kind = losses.MultipleNegativesRankingLoss if model.device.type == "cuda" else by_length(losses)
        return kind(model, scale=options.scale)
    if options.loss == "cached":
        return losses.CachedMultipleNegativesRankingLoss(model, scale=options.scale, mini_batch_size=mini_batch)
    guide = load_model(base, options.max_tokens)
    temperature = 1.0 / options.scale
    if options.loss == "gist":
        return losses.GISTEmbedLoss(model, guide, temperature=temperature)
    return losses.CachedGISTEmbedLoss(model, guide, temperature=temperature, mini_batch_size=mini_batch)


def _library() -> Any:
    try:
        from sentence_transformers.sentence_transformer import losses  # since 5.4
    except ImportError:
        from sentence_transformers import losses
    return losses


def by_length(losses: Any) -> Any:
    """The in-batch softmax whose texts are encoded in chunks of like length: the same loss, a fraction of the work."""

    class ByLength(losses.MultipleNegativesRankingLoss):  # type: ignore[misc, unused-ignore]
        def forward(self, sentence_features: Any, labels: Any) -> Any:
            return self.compute_loss_from_embeddings([embed(self.model, f) for f in sentence_features], labels)

    return ByLength


def embed(model: Any, features: dict[str, Any]) -> Any:
    """Embeddings [n, dim] of tokenised texts, in order, with padding cut off chunk by chunk."""
    import torch

    mask = features["attention_mask"]
    if not bool(mask[:, 0].all()):  # padded on the left: nothing can be cut off
        return model(dict(features))["sentence_embedding"]
    lengths = mask.sum(1)
    order = torch.argsort(lengths, stable=True)
    parts = []
    for rows in order.split(CHUNK):
        width = int(lengths[rows].max())
        part = {
            key: value[rows, :width] if torch.is_tensor(value) and value.shape == mask.shape else value
            for key, value in features.items()
        }
        parts.append(model(part)["sentence_embedding"])
    return torch.cat(parts)[torch.argsort(order)]
