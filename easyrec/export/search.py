"""The best items of many: exact, in blocks, and the same whatever the order of the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

_BLOCK_SCORES = 1 << 23


def top_k(scores: npt.NDArray[np.floating], k: int) -> Ints:
    """Positions of the `k` highest scores, best first; equal scores in the order of their positions.

    Args:
        scores: [N]. Minus infinity and NaN stand for items that are not to be returned.
        k: At most this many.

    Returns:
        [at most k] positions.
    """
    usable = np.where(np.isnan(scores), -np.inf, scores)
    k = min(k, int(np.count_nonzero(usable > -np.inf)))
    if k <= 0:
        return np.empty(0, np.int64)
    threshold = np.partition(usable, len(usable) - k)[len(usable) - k]
    candidates = np.flatnonzero(usable >= threshold)
    order = np.lexsort((candidates, -usable[candidates]))[:k]
    return candidates[order].astype(np.int64)


def search(
    queries: Floats, vectors: Floats, k: int, excluded: Sequence[Ints] | None = None
) -> Iterator[tuple[Ints, Floats]]:
    """The `k` vectors with the largest dot product, for each query.

    Args:
        queries: [Q, D].
        vectors: [N, D]; may be memory-mapped.
        k: At most this many a query.
        excluded: Positions that each query must not return.

    Yields:
        For each query, in order: positions and dot products, best first.
    """
    step = max(1, _BLOCK_SCORES // max(1, len(vectors)))
    for start in range(0, len(queries), step):
        scores = queries[start : start + step] @ vectors.T
        for row, values in enumerate(scores):
            if excluded is not None:
                values[excluded[start + row]] = -np.inf
            positions = top_k(values, k)
            yield positions, values[positions]
