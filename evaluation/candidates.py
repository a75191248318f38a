"""Ranking a few candidates a user instead of the whole catalogue: given lists, or relevant items among sampled ones.

Sampled figures are much higher than those of the whole catalogue, differ with the number of negatives, and may put
models in another order (Krichene and Rendle, "On sampled metrics for item recommendation", KDD 2020). Use them to
compare with a published figure made the same way, or where lists were given by another stage.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evaluation.arrays import BoolArray, IntArray, SparseRows
from evaluation.errors import DataError
from evaluation.metrics.ranking import NO_ITEM, positive_entries
from evaluation.seeds import generator

_BLOCK_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Candidates:
    """The items that compete for each user.

    Attributes:
        matrix: CSR [users, items]; stored entries compete.
        description: Where they come from, for reports.
        is_sampled: Whether chance has chosen them, so that figures depend on how many there are.
    """

    matrix: SparseRows
    description: str
    is_sampled: bool

    @classmethod
    def of_lists(cls, items: npt.ArrayLike, n_items: int) -> "Candidates":
        """Given lists, such as what a retrieval stage found.

        Args:
            items: Item codes [all users, length]; -1 where a list is shorter.
            n_items: Number of items.

        Returns:
            The candidates.

        Raises:
            DataError: Codes out of range or of another shape.
        """
        lists = np.asarray(items)
        if lists.ndim != 2 or lists.dtype.kind not in "iu":
            raise DataError(
                f"Candidate lists must be item codes [users, length], got {lists.dtype} {lists.shape}."
            )
        if lists.size and (lists.min() < NO_ITEM or lists.max() >= n_items):
            raise DataError(
                f"Candidates must be item codes from 0 to {n_items - 1} (or -1 for none), got {lists.min()} to "
                f"{lists.max()}."
            )
        real = lists != NO_ITEM
        owner = np.broadcast_to(np.arange(len(lists))[:, None], lists.shape)[real]
        matrix = _pattern(owner, lists[real].astype(np.int64), (len(lists), n_items))
        return cls(matrix, f"given lists of up to {lists.shape[1]:,} items", is_sampled=False)

    @classmethod
    def sampled(
        cls, relevant: SparseRows, seen: SparseRows | None = None, negatives: int = 100, *, seed: int = 0
    ) -> "Candidates":
        """Each user's relevant items and as many others, drawn uniformly from those neither relevant nor seen.

        Args:
            relevant: CSR [users, items], above 0 is relevant.
            seen: CSR [users, items] of what is never recommended.
            negatives: Sampled items a user; all there are if they are fewer.
            seed: Seed of the draws, which do not depend on each other's users.

        Returns:
            The candidates.

        Raises:
            DataError: `negatives` is below 1, or shapes differ.
        """
        if negatives < 1:
            raise DataError(f"negatives must be at least 1, got {negatives}.")
        truth = positive_entries(relevant)
        if seen is not None and seen.shape != truth.shape:
            raise DataError(f"seen has shape {seen.shape} but relevant has {truth.shape}.")
        n_users, n_items = truth.shape
        users = np.flatnonzero(np.diff(truth.indptr))
        size = max(1, _BLOCK_ELEMENTS // max(n_items, 1))
        owners, items = [], []
        for start in range(0, len(users), size):
            block = users[start : start + size]
            barred = _dense(truth, block) if seen is None else _dense(truth, block) | _dense(seen, block)
            chosen = _draw(barred, negatives, block, seed)
            owner, item = np.nonzero(chosen | _dense(truth, block))
            owners.append(block[owner])
            items.append(item)
        pattern = _pattern(
            np.concatenate([*owners, np.empty(0, np.int64)]).astype(np.int64),
            np.concatenate([*items, np.empty(0, np.int64)]).astype(np.int64),
            (int(n_users), int(n_items)),
        )
        return cls(pattern, f"relevant items and {negatives:,} sampled ones", is_sampled=True)


def _draw(barred: BoolArray, negatives: int, users: IntArray, seed: int) -> BoolArray:
    # One generator a user, so that a user's candidates do not depend on which others are judged.
    keys = np.stack([generator(seed, int(user)).random(barred.shape[1]) for user in users])
    keys[barred] = np.inf
    count = min(negatives, barred.shape[1])
    nearest = np.argpartition(keys, count - 1, axis=1)[:, :count]
    chosen = np.zeros(barred.shape, dtype=bool)
    np.put_along_axis(chosen, nearest, True, axis=1)
    return chosen & ~barred


def _dense(matrix: SparseRows, users: IntArray) -> BoolArray:
    result = np.zeros((len(users), int(matrix.shape[1])), dtype=bool)
    result[matrix[users].tocoo().coords] = True
    return result


def _pattern(owner: IntArray, item: IntArray, shape: tuple[int, int]) -> SparseRows:
    result = sparse.csr_array(sparse.coo_array((np.ones(len(owner)), (owner, item)), shape=shape))
    result.data[:] = 1.0
    return result
