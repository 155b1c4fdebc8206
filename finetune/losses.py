"""The contrastive loss: softmax over the batch's documents (van den Oord et al., arXiv 1807.03748)."""

from __future__ import annotations

from typing import Any

CHUNK = 8
"""Texts of like length that go through the model together on a CPU. Half of the tools have fewer than 35 tokens, one
in a hundred 200: padded to the longest, a batch is mostly padding. A GPU takes all at once."""


def make_loss(model: Any, *, scale: float) -> Any:
    """The loss as a module; cosines are multiplied by ``scale`` before the softmax."""
    import torch
    from torch.nn.functional import cross_entropy

    class Contrastive(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        """Takes the columns anchor, positive, negative_1 ...; row i's positive is document i."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, sentence_features: Any, labels: Any) -> Any:
            columns = list(sentence_features)
            queries = embed(self.model, columns[0])
            documents = torch.cat([embed(self.model, column) for column in columns[1:]])
            size = len(queries)
            right = torch.arange(size, device=documents.device)
            same = same_documents(columns[1:], size)
            with torch.autocast(documents.device.type, enabled=False):  # cosines in half precision are too coarse
                scores = scale * queries @ documents.T
            return cross_entropy(scores.masked_fill(same, -1e4), right)

    return Contrastive()


def same_documents(columns: list[Any], size: int) -> Any:
    """bool [size, documents]: the document is not the row's positive and has its very tokens. No negative is that."""
    import torch

    width = max(column["input_ids"].shape[1] for column in columns)
    ids = torch.cat(
        [
            torch.nn.functional.pad(c["input_ids"] * c["attention_mask"], (0, width - c["input_ids"].shape[1]))
            for c in columns
        ]
    )
    same = (ids[:size, None, :] == ids[None, :, :]).all(-1)
    same[torch.arange(size), torch.arange(size)] = False
    return same


def embed(model: Any, features: dict[str, Any]) -> Any:
    """Vectors [n, dim] of tokenised texts, in order, L2-normalised. Padding is cut off chunk by chunk."""
    import torch
    from torch.nn.functional import normalize

    mask = features["attention_mask"]
    lengths = mask.sum(1)
    order = torch.argsort(lengths, stable=True)
    vectors: list[Any] = []
    for rows in order.split(len(mask) if mask.is_cuda else CHUNK):
        width = int(lengths[rows].max())
        part = {
            key: value[rows, :width] if torch.is_tensor(value) and value.shape == mask.shape else value
            for key, value in features.items()
        }
        vectors.append(normalize(model(part)["sentence_embedding"].float(), dim=1))
    return torch.cat(vectors)[torch.argsort(order)]
