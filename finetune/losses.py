"""The contrastive loss: softmax over the batch's documents (van den Oord et al., arXiv 1807.03748), for the text's one
vector and for its token vectors.

Late interaction (Khattab and Zaharia, ColBERT, arXiv 2004.12832): a document's score is the mean over the request's
tokens of the best cosine with one of the document's tokens. Both scores come from one pass through the model and are
trained side by side; the search ranks by the first and reranks by the second.
"""

from __future__ import annotations

from typing import Any

TOKEN_VECTORS = "token_vectors"
"""What the model's token projection calls its output."""

CHUNK = 8
"""Texts of like length that go through the model together on a CPU. Half of the tools have fewer than 35 tokens, one
in a hundred 200: padded to the longest, a batch is mostly padding. A GPU takes all at once."""

LATE_SCALE = 30.0
"""Scores are multiplied by this before the softmax: a mean of cosines spreads less than one cosine does."""


def project_tokens(model: Any, dim: int) -> Any:
    """Append a linear projection of the token vectors to ``dim`` numbers, unless the model has one. The model."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense

    if token_projection(model) is None:
        size = model.get_embedding_dimension()
        layer = Dense(
            size,
            dim,
            bias=False,
            activation_function=torch.nn.Identity(),
            module_input_name="token_embeddings",
            module_output_name=TOKEN_VECTORS,
        )
        # Rows at right angles keep cosines best before anything is learnt.
        torch.nn.init.orthogonal_(layer.linear.weight)
        model.append(layer.to(model.device))
    return model


def token_projection(model: Any) -> Any:
    """The weight [dim, hidden] of the model's token projection; None without one."""
    for module in model:
        if getattr(module, "module_output_name", None) == TOKEN_VECTORS:
            return module.linear.weight
    return None


def make_loss(model: Any, *, scale: float, late: float) -> Any:
    """The loss as a module. ``late`` weighs the token vectors' part; 0 leaves it out."""
    import torch
    from torch.nn.functional import cross_entropy

    class Contrastive(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        """Takes the columns anchor, positive, negative_1 ...; row i's positive is document i."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, sentence_features: Any, labels: Any) -> Any:
            columns = list(sentence_features)
            queries, query_tokens = embed(self.model, columns[0])
            parts = [embed(self.model, column) for column in columns[1:]]
            documents = torch.cat([vectors for vectors, _ in parts])
            size = len(queries)
            right = torch.arange(size, device=documents.device)
            same = same_documents(columns[1:], size)
            scores = scale * queries @ documents.T
            loss = cross_entropy(scores.masked_fill(same, -1e4), right)
            if late and query_tokens:
                tokens = [row for _, rows in parts for row in rows]
                close = LATE_SCALE * late_interaction(query_tokens, tokens)
                loss = loss + late * cross_entropy(close.masked_fill(same, -1e4), right)
            return loss

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


def late_interaction(queries: list[Any], documents: list[Any]) -> Any:
    """Scores [queries, documents] of token vectors, each [tokens, dim], L2-normalised: the mean best cosine."""
    import torch

    lengths = torch.tensor([len(d) for d in documents], device=documents[0].device)
    padded = torch.nn.utils.rnn.pad_sequence(documents, batch_first=True)
    beyond = torch.arange(padded.shape[1], device=padded.device)[None] >= lengths[:, None]
    rows = []
    for query in queries:
        close = torch.einsum("qe,dte->dqt", query, padded).masked_fill(beyond[:, None, :], -1.0)
        rows.append(close.amax(2).mean(1))
    return torch.stack(rows)


def embed(model: Any, features: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Of tokenised texts, in order: vectors [n, dim] and, if the model projects tokens, each text's [tokens, dim];
    L2-normalised. Padding is cut off chunk by chunk."""
    import torch
    from torch.nn.functional import normalize

    mask = features["attention_mask"]
    lengths = mask.sum(1)
    order = torch.argsort(lengths, stable=True)
    vectors: list[Any] = []
    tokens: list[Any] = []
    for rows in order.split(len(mask) if mask.is_cuda else CHUNK):
        width = int(lengths[rows].max())
        part = {
            key: value[rows, :width] if torch.is_tensor(value) and value.shape == mask.shape else value
            for key, value in features.items()
        }
        out = model(part)
        vectors.append(normalize(out["sentence_embedding"], dim=1))
        if TOKEN_VECTORS in out:
            projected = normalize(out[TOKEN_VECTORS], dim=2)
            tokens += [projected[i, : int(lengths[row])] for i, row in enumerate(rows)]
    back = torch.argsort(order)
    return torch.cat(vectors)[back], [tokens[int(i)] for i in back] if tokens else []
