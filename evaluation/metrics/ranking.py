"""Metrics of ranked lists at a cut-off k, one value per user so that intervals and comparisons can be made.

A hit is a recommended item of relevance above 0. Every user has at least one relevant item (see `RankedLists`), so
every value is defined. The mean over users is the usual figure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from evaluation.arrays import BoolArray, FloatArray, IntArray, SparseRows
from evaluation.errors import DataError, MetricError
from evaluation.metrics.catalogue import CatalogueFacts

Gain: TypeAlias = Literal["linear", "exponential"]

NO_ITEM = -1


@dataclass(frozen=True)
class RankedLists:
    """What was recommended to each user, and how relevant it was. Build it with `of_items` or `of_relevance`.

    Attributes:
        users: int64 [U], codes of the users, each with at least one relevant item.
        items: int64 [U, K], item codes from the best; -1 where the list is shorter than K.
        relevance: float64 [U, K], relevance of each item, 0 where there is none.
        n_relevant: int64 [U], number of relevant items of each user, recommended or not.
        ideal: float64 [U, K], the relevance of the best possible list.
        n_excluded: Number of users left out because nothing is relevant to them.
        facts: What is known of the items and users apart from the lists; metrics beyond accuracy need it.
    """

    users: IntArray
    items: IntArray
    relevance: FloatArray
    n_relevant: IntArray
    ideal: FloatArray
    n_excluded: int = 0
    facts: CatalogueFacts | None = None

    @classmethod
    def of_items(
        cls,
        items: npt.ArrayLike,
        relevant: SparseRows,
        users: npt.ArrayLike | None = None,
        *,
        facts: CatalogueFacts | None = None,
    ) -> "RankedLists":
        """Look up what was recommended in what was relevant; users with nothing relevant are left out.

        Args:
            items: Item codes [U, K] from the best; -1 ends a short list.
            relevant: CSR [all users, items]; a stored value above 0 is the relevance of that item.
            users: The row of `relevant` of each list [U]; by default list 0 is user 0 and so on.
            facts: What metrics beyond accuracy need; its expected lists are those of the users given.

        Returns:
            The lists of users with at least one relevant item.

        Raises:
            DataError: Wrong shape, an item or user code out of range, or an item twice in one list.
        """
        lists = _integers(items, "items", 2)
        rows = np.arange(len(lists)) if users is None else _integers(users, "users", 1)
        _check_lists(lists, rows, relevant.shape)
        truth = positive_entries(relevant)
        n_relevant = np.diff(truth.indptr).astype(np.int64)[rows]
        keep = n_relevant > 0
        lists, rows = lists[keep], rows[keep]
        return cls(
            users=rows,
            items=lists,
            relevance=_look_up(truth, rows, lists),
            n_relevant=n_relevant[keep],
            ideal=_best_lists(truth, rows, lists.shape[1]),
            n_excluded=int((~keep).sum()),
            facts=None if facts is None else facts.of_users(keep),
        )

    @classmethod
    def of_relevance(cls, relevance: npt.ArrayLike, n_relevant: npt.ArrayLike | None = None) -> "RankedLists":
        """Lists given by the relevance at each position only.

        Args:
            relevance: Non-negative numbers or booleans [U, K], from the top of the list.
            n_relevant: Number of relevant items of each user [U], for binary relevance; by default those in the
                list, as when the list holds every candidate.

        Returns:
            The lists of users with at least one relevant item; items are numbered by position.

        Raises:
            DataError: Wrong shape, negative or missing relevance, fewer relevant items than hits, or
                `n_relevant` beyond the list together with graded relevance (the ideal list is then unknown).
        """
        values = np.asarray(relevance, dtype=np.float64)
        if values.ndim != 2:
            raise DataError(f"relevance must have shape [users, positions], got {values.shape}.")
        if not (values >= 0).all():
            raise DataError("relevance must be numbers of at least 0; NaN or a negative value was found.")
        hits = (values > 0).sum(axis=1)
        known = hits if n_relevant is None else _integers(n_relevant, "n_relevant", 1)
        if known.shape != hits.shape or (known < hits).any():
            raise DataError(
                "n_relevant must be one number per user, at least the number of hits in the list."
            )
        ideal = -np.sort(-values, axis=1)
        if (known > hits).any():
            if not np.isin(values, (0, 1)).all():
                raise DataError(
                    "Graded relevance needs every relevant item in the list; use RankedLists.of_items."
                )
            ideal = (np.arange(values.shape[1]) < known[:, None]).astype(np.float64)
        keep = known > 0
        places = np.broadcast_to(np.arange(values.shape[1]), values.shape)
        return cls(
            users=np.flatnonzero(keep),
            items=places[keep],
            relevance=values[keep],
            n_relevant=known[keep],
            ideal=ideal[keep],
            n_excluded=int((~keep).sum()),
        )

    @property
    def n_users(self) -> int:
        """Number of users judged."""
        return len(self.users)

    @property
    def length(self) -> int:
        """The number of positions K."""
        return int(self.items.shape[1])


def positive_entries(matrix: SparseRows) -> SparseRows:
    """A canonical CSR copy (sorted, duplicates summed) without stored values of 0 or less."""
    from scipy import sparse  # slow to import, and only full-catalogue rankings need it

    result = sparse.csr_array(matrix).astype(np.float64)
    result.sum_duplicates()
    result.data[result.data < 0] = 0.0
    result.eliminate_zeros()
    return result


def _integers(values: npt.ArrayLike, name: str, rank: int) -> IntArray:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != rank:
        raise DataError(
            f"{name} must be whole numbers of rank {rank}, got {array.dtype} of shape {array.shape}."
        )
    return array.astype(np.int64, copy=False)


def _check_lists(items: IntArray, users: IntArray, shape: tuple[int, ...]) -> None:
    n_users, n_items = shape
    if users.shape != (len(items),):
        raise DataError(f"There are {len(items):,} lists but {len(users):,} users.")
    if len(users) and (users.min() < 0 or users.max() >= n_users):
        raise DataError(f"users must be codes from 0 to {n_users - 1}, got {users.min()} to {users.max()}.")
    if len(np.unique(users)) != len(users):
        raise DataError("users has the same user twice; give one list per user.")
    if items.size and (items.min() < NO_ITEM or items.max() >= n_items):
        raise DataError(
            f"items must be codes from 0 to {n_items - 1} (or -1 for none), got {items.min()} to {items.max()}."
        )
    ordered = np.sort(items, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_ITEM)
    if twice.any():
        row, column = np.argwhere(twice)[0]
        raise DataError(
            f"Item {ordered[row, column]} is recommended twice to user {users[row]} "
            f"({int(twice.any(axis=1).sum()):,} such lists); a hit would count twice. Remove duplicates first."
        )


def _look_up(truth: SparseRows, users: IntArray, items: IntArray) -> FloatArray:
    n_items = int(truth.shape[1])
    owner = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr))
    keys = owner * n_items + truth.indices
    wanted = users[:, None] * n_items + items
    place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    found: BoolArray = (
        (items != NO_ITEM) & (keys[place] == wanted) if len(keys) else np.zeros(items.shape, bool)
    )
    return np.where(found, truth.data[place], 0.0) if len(keys) else np.zeros(items.shape)


def _best_lists(truth: SparseRows, users: IntArray, length: int) -> FloatArray:
    best = np.zeros((len(users), length))
    owner = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    order = np.lexsort((-truth.data, owner))
    place = np.arange(len(owner)) - truth.indptr[owner]
    row_of_user = np.full(int(truth.shape[0]), -1)
    row_of_user[users] = np.arange(len(users))
    row = row_of_user[owner]
    use = (row >= 0) & (place < length)
    best[row[use], place[use]] = truth.data[order][use]
    return best


# --- metrics -----------------------------------------------------------------------------------------------


def _hits(lists: RankedLists, k: int) -> FloatArray:
    if k < 1:
        raise MetricError(f"k must be at least 1, got {k}.")
    if k > lists.length:
        raise MetricError(
            f"k is {k} but the lists have only {lists.length} positions; rank at least {k} items."
        )
    return (lists.relevance[:, :k] > 0).astype(np.float64)


def _count(lists: RankedLists, k: int) -> FloatArray:
    total: FloatArray = _hits(lists, k).sum(axis=1)
    return total


def precision_at_k(lists: RankedLists, k: int) -> FloatArray:
    """Hits among the first k, divided by k (also when the list is shorter): float64 [U]."""
    return _count(lists, k) / k


def recall_at_k(lists: RankedLists, k: int) -> FloatArray:
    """Hits among the first k, divided by the number of relevant items: float64 [U]."""
    return _count(lists, k) / lists.n_relevant


def f1_at_k(lists: RankedLists, k: int) -> FloatArray:
    """Harmonic mean of precision and recall at k, 0 without a hit: float64 [U]."""
    return 2 * _count(lists, k) / (k + lists.n_relevant)


def hit_rate_at_k(lists: RankedLists, k: int) -> FloatArray:
    """1 if there is a hit among the first k, else 0: float64 [U]."""
    return np.minimum(_count(lists, k), 1.0)


def ndcg_at_k(lists: RankedLists, k: int, *, gain: Gain = "linear") -> FloatArray:
    """Discounted cumulative gain at k, divided by that of the best possible list of length k.

    Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002; discount
    1 / log2(position + 1), as scikit-learn. For binary relevance both gains are the same.

    Args:
        lists: The ranked lists.
        k: Number of positions that count.
        gain: "linear": the relevance itself. "exponential": 2^relevance - 1 (Burges et al., ICML 2005).

    Returns:
        float64 [U] in [0, 1].

    Raises:
        MetricError: k is not between 1 and the list length, or an unknown gain.
    """
    _hits(lists, k)
    if gain not in ("linear", "exponential"):
        raise MetricError(f"gain must be 'linear' or 'exponential', got {gain!r}.")
    to_gain: Callable[[Any], FloatArray] = np.asarray if gain == "linear" else (lambda x: np.exp2(x) - 1)
    discount = 1 / np.log2(np.arange(2, k + 2))
    best = to_gain(lists.ideal[:, :k]) @ discount
    reached: FloatArray = to_gain(lists.relevance[:, :k]) @ discount
    return reached / best


def map_at_k(lists: RankedLists, k: int) -> FloatArray:
    """Average precision at k: the mean of the precision at each hit: float64 [U].

    The divisor is min(k, relevant items), so a list with k hits scores 1.
    """
    hits = _hits(lists, k)
    precision = np.cumsum(hits, axis=1) / np.arange(1, k + 1)
    total: FloatArray = (precision * hits).sum(axis=1)
    return total / np.minimum(lists.n_relevant, k)


def mrr_at_k(lists: RankedLists, k: int) -> FloatArray:
    """1 / position of the first hit among the first k, 0 without one: float64 [U]."""
    hits = _hits(lists, k)
    return np.where(hits.any(axis=1), 1 / (np.argmax(hits, axis=1) + 1), 0.0)


def mean_rank_at_k(lists: RankedLists, k: int) -> FloatArray:
    """Position of the first hit, k + 1 where there is none among the first k: float64 [U]. Lower is better."""
    hits = _hits(lists, k)
    return np.where(hits.any(axis=1), np.argmax(hits, axis=1) + 1.0, k + 1.0)


def exponential_ndcg_at_k(lists: RankedLists, k: int) -> FloatArray:
    """`ndcg_at_k` with the gain 2^relevance - 1, which counts what is very relevant for much more."""
    return ndcg_at_k(lists, k, gain="exponential")


def ndcg(lists: RankedLists, k: int = 10, *, gain: Gain = "linear") -> float:
    """Mean over users of `ndcg_at_k`; nan if there are no users."""
    return float(ndcg_at_k(lists, k, gain=gain).mean()) if lists.n_users else float("nan")
