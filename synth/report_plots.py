"""Instructions on a plane: PCA by numpy, t-SNE and UMAP by scikit-learn and umap-learn (extra ``report``)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from toolscout.synth.report_facts import Points

ENOUGH = 50
"""Fewer points have no neighbourhoods worth a map."""

NOT_INSTALLED = "It needs {library}, which is not installed here: install toolscout[report] and make the page again."


FAILED = "It could not be drawn: "


@dataclass(frozen=True)
class Plane:
    """One plot: coordinates [n, 2], or why there are none."""

    name: str
    about: str
    points: Points | None = None
    why_not: str = ""


def planes(vectors: Points) -> list[Plane]:
    """PCA, t-SNE and UMAP of L2-normalised vectors [n, dim]; always the same for the same vectors and library."""
    return [pca(vectors), _whatever_happens(tsne, "t-SNE", vectors), _whatever_happens(umap, "UMAP", vectors)]


def _whatever_happens(draw: Callable[[Points], Plane], name: str, vectors: Points) -> Plane:
    """A plot, or why there is none: compilers and solvers of other people's libraries fail in ways of their own."""
    try:
        return draw(vectors)
    except Exception as error:
        return Plane(name, "", why_not=f"{FAILED}{one_line(error)}.")


def one_line(error: Exception) -> str:
    """Kind and beginning of an error, without its last full stop."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(". ")


def pca(vectors: Points) -> Plane:
    """The two directions of the largest variance (Pearson 1901). Signs are fixed, so that it does not flip."""
    if len(vectors) < 3:
        return Plane("PCA", "", why_not="There are too few instructions for a plot.")
    centred = vectors - vectors.mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2][np.arange(2), np.abs(axes[:2]).argmax(axis=1)])[:, None]
    whole = float((sizes**2).sum())
    share = float((sizes[:2] ** 2).sum()) / whole if whole else 0.0
    about = f"The two axes hold {100 * share:.0f} % of the variance: distances are what is left of them."
    return Plane("PCA", about, centred @ axes.T)


def tsne(vectors: Points) -> Plane:
    """t-SNE (van der Maaten and Hinton 2008), perplexity 30, by cosine."""
    about = "Perplexity 30. Who is near whom means something; distances between groups and their sizes do not."
    if len(vectors) < ENOUGH:
        return Plane("t-SNE", about, why_not=f"It takes at least {ENOUGH} instructions.")
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        return Plane("t-SNE", about, why_not=NOT_INSTALLED.format(library="scikit-learn"))
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    made = TSNE(n_components=2, metric="cosine", init="random", perplexity=perplexity, random_state=0)
    return Plane("t-SNE", about, np.asarray(made.fit_transform(vectors), dtype=np.float64))


def umap(vectors: Points) -> Plane:
    """UMAP (McInnes, Healy and Melville 2018), 15 neighbours, by cosine."""
    about = "15 neighbours. Who is near whom means something; distances between groups mean little."
    if len(vectors) < ENOUGH:
        return Plane("UMAP", about, why_not=f"It takes at least {ENOUGH} instructions.")
    try:
        from umap import UMAP
    except ImportError:
        return Plane("UMAP", about, why_not=NOT_INSTALLED.format(library="umap-learn"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that a fixed seed costs it its threads
        made = UMAP(n_components=2, n_neighbors=15, min_dist=0.1, metric="cosine", random_state=0)
        return Plane("UMAP", about, np.asarray(made.fit_transform(vectors), dtype=np.float64))
