"""Finds the items whose vectors have the largest dot product with a user's: exactly, or with an index of faiss.

Exact search multiplies all vectors, a few milliseconds for 100,000 items. An index looks at a share of them. It is made
of the bundle's own items when a model is loaded and never changes; items that were put since are searched exactly
beside it, and items that must not be found are left out of a longer list.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from easyrec.errors import BundleError
from easyrec.export.search import top_k

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
SearchName = Literal["exact", "faiss"]

_LISTS_LOOKED_AT = 32
_TRAINING_ROWS_PER_LIST = 64
# An index finds this many times as many items as are wanted, because some of them may be hidden.
_MORE = 4


class VectorSearch(Protocol):
    """Searches the bundle's own items."""

    def __call__(self, vector: Scores, k: int, allowed: npt.NDArray[np.bool_]) -> tuple[Rows, Scores]:
        """Rows and dot products of at most `k` items, best first; only of rows that are `allowed` [N]."""


class ExactSearch:
    """Multiplies all vectors.

    Args:
        vectors: [N, D]; may be memory-mapped.
    """

    def __init__(self, vectors: Scores) -> None:
        self._vectors = vectors

    def __call__(self, vector: Scores, k: int, allowed: npt.NDArray[np.bool_]) -> tuple[Rows, Scores]:
        """See `VectorSearch`."""
        scores = np.where(allowed, self._vectors @ vector, np.float32(-np.inf))
        found = top_k(scores, k)
        return found, scores[found]


class FaissSearch:
    """An inverted file over clusters of the vectors; the clusters nearest to the user are looked at.

    Falls back to all vectors when the index finds too few items that are allowed.

    Args:
        vectors: [N, D].

    Raises:
        BundleError: faiss is not installed.
    """

    def __init__(self, vectors: Scores) -> None:
        if importlib.util.find_spec("faiss") is None:
            raise BundleError(
                "search: faiss is not installed; `pip install easyrec[faiss]` installs it, or search exactly"
            )
        faiss = importlib.import_module("faiss")
        vectors = np.ascontiguousarray(vectors, np.float32)
        lists = max(1, int(4 * np.sqrt(len(vectors))))
        lists = min(lists, max(1, len(vectors) // _TRAINING_ROWS_PER_LIST))
        self._exact = ExactSearch(vectors)
        self._quantizer = faiss.IndexFlatIP(vectors.shape[1])
        self._index: Any = faiss.IndexIVFFlat(
            self._quantizer, vectors.shape[1], lists, faiss.METRIC_INNER_PRODUCT
        )
        self._index.nprobe = min(lists, _LISTS_LOOKED_AT)
        sample = np.random.default_rng(0).permutation(len(vectors))[: lists * _TRAINING_ROWS_PER_LIST]
        self._index.train(vectors[np.sort(sample)])
        self._index.add(vectors)

    def __call__(self, vector: Scores, k: int, allowed: npt.NDArray[np.bool_]) -> tuple[Rows, Scores]:
        """See `VectorSearch`."""
        wanted = min(_MORE * k, len(allowed))
        scores, rows = self._index.search(np.ascontiguousarray(vector[None], np.float32), wanted)
        usable = rows[0] >= 0
        usable[usable] = allowed[rows[0][usable]]
        if np.count_nonzero(usable) < min(k, int(np.count_nonzero(allowed))):
            return self._exact(vector, k, allowed)
        rows, scores = rows[0][usable], scores[0][usable]
        order = np.lexsort((rows, -scores))[:k]
        return rows[order].astype(np.int64), scores[order]


def make_search(name: SearchName, vectors: Scores) -> VectorSearch:
    """The search that settings name.

    Raises:
        BundleError: There is no such search, or faiss is not installed.
    """
    if name == "faiss":
        return FaissSearch(vectors)
    if name == "exact":
        return ExactSearch(vectors)
    raise BundleError(f"search must be exact or faiss, got {name!r}")
