"""Full-catalogue ranking: every item that a user has not seen competes for the top k, none are sampled."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from evaluation.arrays import AnyFloatArray, IntArray, SparseRows
from evaluation.errors import DataError
from evaluation.metrics.ranking import NO_ITEM

ScoreFunction: TypeAlias = Callable[[IntArray], npt.ArrayLike]
"""Maps user codes [b] to scores of every item [b, n_items]; the larger, the better; -inf bars an item."""

_BLOCK_ELEMENTS = 1 << 22  # scores held at once: 32 MiB in float64


def rank_full_catalogue(
    score: ScoreFunction,
    n_users: int,
    n_items: int,
    seen: SparseRows | None = None,
    k: int = 20,
    *,
    users: npt.ArrayLike | None = None,
    candidates: SparseRows | None = None,
    block_size: int | None = None,
) -> IntArray:
    """The k best items for each user among all it has not seen.

    The result does not depend on the block size: equal scores rank by item code.

    Args:
        score: Gives the scores of all items for a block of users; called with ascending positions of `users`.
        n_users: Number of user codes.
        n_items: Number of item codes.
        seen: CSR [n_users, n_items]; every stored entry is an item that must not be recommended.
        k: Length of the lists.
        users: Codes of the users to rank for [U]; all by default.
        candidates: CSR [n_users, n_items]; only stored entries compete. The whole catalogue unless given.
        block_size: Users scored at once; by default as many as keep a block of scores near 32 MiB.

    Returns:
        Item codes int64 [U, k] from the best; -1 where fewer than k items are left.

    Raises:
        DataError: Scores of the wrong shape or NaN, `seen` or `candidates` of the wrong shape, a user out of range, or
            k < 1.
    """
    who = np.arange(n_users) if users is None else np.asarray(users, dtype=np.int64)
    if k < 1:
        raise DataError(f"k must be at least 1, got {k}.")
    if len(who) and (who.min() < 0 or who.max() >= n_users):
        raise DataError(f"users must be codes from 0 to {n_users - 1}, got {who.min()} to {who.max()}.")
    for name, matrix in (("seen", seen), ("candidates", candidates)):
        if matrix is not None and matrix.shape != (n_users, n_items):
            raise DataError(f"{name} must have shape {(n_users, n_items)}, got {matrix.shape}.")
    size = block_size or max(1, _BLOCK_ELEMENTS // max(n_items, 1))
    result = np.full((len(who), k), NO_ITEM, dtype=np.int64)
    for start in range(0, len(who), size):
        block = who[start : start + size]
        scores = _checked_scores(score(block), block, n_items)
        if candidates is not None:
            competes = np.zeros(scores.shape, dtype=bool)
            competes[candidates[block].tocoo().coords] = True
            scores[~competes] = -np.inf
        if seen is not None:
            mine = seen[block].tocoo()
            scores[mine.coords] = -np.inf
        best = top_items(scores, min(k, n_items))
        result[start : start + size, : best.shape[1]] = best
    return result


def top_items(scores: AnyFloatArray, k: int) -> IntArray:
    """The k best columns of each row; equal scores rank by column, -inf never ranks.

    Args:
        scores: [b, n], no NaN.
        k: At most n.

    Returns:
        Columns int64 [b, k] from the best; -1 where fewer than k scores are above -inf.
    """
    n_rows, n = scores.shape
    if n_rows == 0 or k == 0:
        return np.empty((n_rows, k), dtype=np.int64)
    threshold = np.partition(scores, n - k, axis=1)[:, n - k, None]
    chosen = scores >= threshold
    # Where more than k reach the threshold, those that only equal it fill the places left, lowest code first.
    surplus = np.flatnonzero(chosen.sum(axis=1) > k)
    if len(surplus):
        above = scores[surplus] > threshold[surplus]
        equal = scores[surplus] == threshold[surplus]
        places = k - above.sum(axis=1, keepdims=True)
        chosen[surplus] = above | (equal & (np.cumsum(equal, axis=1) <= places))
    columns = np.nonzero(chosen)[1].reshape(n_rows, k)
    picked = np.take_along_axis(scores, columns, axis=1)
    order = np.argsort(-picked, axis=1, kind="stable")
    ranked = np.take_along_axis(columns, order, axis=1).astype(np.int64)
    ranked[np.take_along_axis(picked, order, axis=1) == -np.inf] = NO_ITEM
    return ranked


def _checked_scores(values: npt.ArrayLike, users: IntArray, n_items: int) -> AnyFloatArray:
    # A copy: seen items are overwritten, and a model may hand out a view of its own table.
    scores = np.array(values)
    if scores.dtype not in (np.float32, np.float64):
        scores = scores.astype(np.float64)
    if scores.shape != (len(users), n_items):
        raise DataError(
            f"Scores must have shape [users, items] = {(len(users), n_items)}, got {scores.shape}."
        )
    missing = np.isnan(scores)
    if missing.any():
        row, item = np.argwhere(missing)[0]
        raise DataError(
            f"The score of user {users[row]} for item {item} is NaN ({int(missing.sum()):,} such scores)."
        )
    return scores
