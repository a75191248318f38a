"""Simple recommenders that a model must beat. Each learns in well under a second per million interactions or so.

A baseline follows `Baseline`: `fit` once, then `scores` of all items for a block of users. `fit_baselines` gives
those that fit the data at hand, by name, ready for `evaluate_ranking`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Protocol, Self

import numpy as np
from scipy import sparse

from evaluation.arrays import FloatArray, IntArray, SparseRows, sort_within
from evaluation.errors import DataError, did_you_mean
from evaluation.interactions import Interactions, ItemAttributes
from evaluation.protocol import ScoreFunction
from evaluation.seeds import generator


class Baseline(Protocol):
    """What every baseline offers."""

    def fit(self, interactions: Interactions, items: ItemAttributes | None = None) -> Self:
        """Learn from interactions and, where the baseline uses them, item attributes."""

    def scores(self, users: IntArray) -> FloatArray:
        """Scores of all items [b, n_items] for user codes [b]; the larger, the better."""


class RandomBaseline:
    """A fixed random order for each user: what no knowledge at all reaches.

    Args:
        seed: Another seed gives other orders.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._n_items = 0

    def fit(self, interactions: Interactions, items: ItemAttributes | None = None) -> Self:
        """Note the number of items."""
        self._n_items = interactions.n_items
        return self

    def scores(self, users: IntArray) -> FloatArray:
        """See `Baseline.scores`; uniform in [0, 1)."""
        # One generator per user, so that a user's order does not depend on which block it is scored in.
        rows = [generator(self.seed, int(user)).random(self._n_items) for user in users]
        return np.array(rows).reshape(len(rows), self._n_items)


class PopularityBaseline:
    """The summed weight of interactions with each item, the same for every user."""

    def __init__(self) -> None:
        self._popularity = np.empty(0)

    def fit(self, interactions: Interactions, items: ItemAttributes | None = None) -> Self:
        """Count interactions by item."""
        self._popularity = _sum_by_item(interactions, interactions.weights)
        return self

    def scores(self, users: IntArray) -> FloatArray:
        """See `Baseline.scores`."""
        return np.tile(self._popularity, (len(users), 1))


class RecentPopularityBaseline:
    """Popularity in which an interaction counts half as much for every half-life that has passed since.

    Args:
        half_life: In the unit of the times; by default a tenth of the time they span.
    """

    def __init__(self, half_life: float | None = None) -> None:
        if half_life is not None and not half_life > 0:
            raise DataError(f"half_life must be above 0, got {half_life}.")
        self.half_life = half_life
        self._popularity = np.empty(0)

    def fit(self, interactions: Interactions, items: ItemAttributes | None = None) -> Self:
        """Count interactions by item, weighted by age.

        Raises:
            DataError: The interactions have no times.
        """
        if interactions.times is None:
            raise DataError("recent popularity needs the times of the interactions.")
        age = interactions.times.max(initial=-np.inf) - interactions.times
        half_life = self.half_life or float(age.max(initial=0.0)) / 10 or 1.0
        self._popularity = _sum_by_item(interactions, interactions.weights * np.exp2(-age / half_life))
        return self

    def scores(self, users: IntArray) -> FloatArray:
        """See `Baseline.scores`."""
        return np.tile(self._popularity, (len(users), 1))


class ContentBaseline:
    """Items whose attributes resemble those of what the user interacted with.

    Item vectors are TF-IDF of the tokens (smoothed idf, unit length, as scikit-learn's TfidfVectorizer); a user is
    the mean of its items' vectors; the score is their dot product.
    """

    def __init__(self) -> None:
        self._vectors: SparseRows = sparse.csr_array((0, 0))
        self._profiles: SparseRows = sparse.csr_array((0, 0))

    def fit(self, interactions: Interactions, items: ItemAttributes | None = None) -> Self:
        """Build item vectors and user profiles.

        Raises:
            DataError: There are no item attributes, or they are of another number of items.
        """
        if items is None:
            raise DataError("the content-based baseline needs item attributes.")
        if items.n_items != interactions.n_items:
            raise DataError(
                f"There are attributes of {items.n_items:,} items but {interactions.n_items:,} items."
            )
        self._vectors = _tf_idf(items.tokens)
        taste = interactions.matrix()
        norms: FloatArray = np.asarray(taste.sum(axis=1), dtype=np.float64)
        self._profiles = sparse.csr_array(_scale_rows(taste, _inverse(norms)) @ self._vectors)
        return self

    def scores(self, users: IntArray) -> FloatArray:
        """See `Baseline.scores`."""
        return np.asarray((self._profiles[users] @ self._vectors.T).toarray())


class CoOccurrenceBaseline:
    """Items that are often in the same histories as the user's items (item-to-item collaborative filtering).

    Similarity is the cosine of the items' user sets (Linden et al., "Amazon.com recommendations", 2003;
    Deshpande and Karypis, TOIS 2004), kept for the nearest neighbours of each item only.

    Args:
        neighbours: Number of neighbours kept per item.
        history: A user's latest interactions that are used, so that a few heavy users cost little.
    """

    def __init__(self, neighbours: int = 100, history: int = 300) -> None:
        if neighbours < 1 or history < 1:
            raise DataError(f"neighbours and history must be at least 1, got {neighbours} and {history}.")
        self.neighbours = neighbours
        self.history = history
        self._similar: SparseRows = sparse.csr_array((0, 0))
        self._taste: SparseRows = sparse.csr_array((0, 0))

    def fit(self, interactions: Interactions, items: ItemAttributes | None = None) -> Self:
        """Count items of the same histories and keep the nearest neighbours."""
        self._taste = _latest(interactions, self.history).matrix(binary=True)
        sets = self._taste.T.tocsr()
        norms: FloatArray = np.sqrt(np.diff(sets.indptr).astype(np.float64))
        unit = _scale_rows(sets, _inverse(norms))
        self._similar = _nearest(unit, self.neighbours)
        return self

    @property
    def similar(self) -> SparseRows:
        """CSR [items, items]: the cosine of each item's nearest neighbours."""
        return self._similar

    def scores(self, users: IntArray) -> FloatArray:
        """See `Baseline.scores`."""
        return np.asarray((self._taste[users] @ self._similar).toarray())


class LastItemBaseline:
    """Items that are often in the same histories as the one item the user took last.

    What a session-based model must beat. Similarity as in `CoOccurrenceBaseline`; "last" by time, or the last in the
    data where times are unknown.

    Args:
        neighbours: Number of neighbours kept per item.
        history: A user's latest interactions that similarity is counted from.
    """

    def __init__(self, neighbours: int = 100, history: int = 300) -> None:
        self._similarity = CoOccurrenceBaseline(neighbours, history)
        self._shared = False
        self._last = np.empty(0, dtype=np.int64)
        self._n_items = 0

    def share(self, similarity: CoOccurrenceBaseline) -> None:
        """Use the neighbours of another baseline, which is fitted before this one on the same interactions."""
        self._similarity = similarity
        self._shared = True

    def fit(self, interactions: Interactions, items: ItemAttributes | None = None) -> Self:
        """Find each user's last item and the neighbours of every item."""
        if not self._shared:
            self._similarity.fit(interactions)
        self._n_items = interactions.n_items
        self._last = np.full(interactions.n_users, -1, dtype=np.int64)
        latest = _latest(interactions, 1)
        self._last[latest.users] = latest.items
        return self

    def scores(self, users: IntArray) -> FloatArray:
        """See `Baseline.scores`; 0 for a user without history."""
        last = self._last[users]
        result = np.zeros((len(users), self._n_items))
        known = last >= 0
        result[known] = self._similarity.similar[last[known]].toarray()
        return result


BASELINES: Mapping[str, Callable[[int], Baseline]] = MappingProxyType(
    {
        "random": RandomBaseline,
        "popularity": lambda seed: PopularityBaseline(),
        "recent_popularity": lambda seed: RecentPopularityBaseline(),
        "content_based": lambda seed: ContentBaseline(),
        "co_occurrence": lambda seed: CoOccurrenceBaseline(),
        "last_item": lambda seed: LastItemBaseline(),
    }
)
"""Baselines by name, each made from a seed."""


_OF_NEIGHBOURS = ("content_based", "co_occurrence", "last_item")
"""They know nothing of most items, and of no item for a user without history."""


def fit_baselines(
    interactions: Interactions,
    items: ItemAttributes | None = None,
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> dict[str, ScoreFunction]:
    """Fit baselines and return their score functions.

    Args:
        interactions: The training interactions; nothing from the evaluation period.
        items: Attributes of the items.
        names: Which of `BASELINES`; by default all that the data allows (recent popularity and the last
            item need times, content-based needs attributes).
        seed: Seed of the random baseline.

    Returns:
        Score functions by name. Items of which a baseline of neighbours knows nothing, all of them for a user without
        history, come last and by popularity: any order is better than that of the item codes.

    Raises:
        DataError: An unknown name, or a named baseline lacks what it needs.
    """
    lacking = {
        "recent_popularity": interactions.times is None,
        "content_based": items is None,
        "last_item": interactions.times is None,
    }
    chosen = [name for name in BASELINES if not lacking.get(name)] if names is None else list(names)
    for name in chosen:
        if name not in BASELINES:
            raise DataError(f"Unknown baseline {name!r}; {did_you_mean(name, BASELINES)}")
    fitted = {name: BASELINES[name](seed) for name in chosen}
    both = fitted.get("co_occurrence"), fitted.get("last_item")
    if isinstance(both[0], CoOccurrenceBaseline) and isinstance(both[1], LastItemBaseline):
        both[1].share(both[0])  # what takes time is the same for both
    popularity = _sum_by_item(interactions, interactions.weights)
    scores = {name: one.fit(interactions, items).scores for name, one in fitted.items()}
    return {
        name: partial(_popular_after, one, popularity) if name in _OF_NEIGHBOURS else one
        for name, one in scores.items()
    }


def _popular_after(score: ScoreFunction, popularity: FloatArray, users: IntArray) -> FloatArray:
    """Scores above 0 as they are; what is not like anything the user took comes after it, by popularity."""
    scores = np.asarray(score(users))
    return np.where(scores > 0, scores, popularity / (1 + popularity.max(initial=0.0)) - 1)


def _sum_by_item(interactions: Interactions, values: FloatArray) -> FloatArray:
    return np.bincount(interactions.items, values, interactions.n_items).astype(np.float64)


def _inverse(values: FloatArray) -> FloatArray:
    return np.where(values > 0, 1 / np.where(values > 0, values, 1.0), 0.0)


def unit_rows(tokens: SparseRows) -> SparseRows:
    """Rows scaled to length 1; a row of zeros stays."""
    lengths = np.sqrt(tokens.multiply(tokens).sum(axis=1))
    return _scale_rows(tokens, _inverse(lengths))


def _scale_rows(matrix: SparseRows, factor: FloatArray) -> SparseRows:
    result = matrix.copy()
    result.data = result.data * np.repeat(factor, np.diff(matrix.indptr))
    return result


def _tf_idf(tokens: SparseRows) -> SparseRows:
    n_items = int(tokens.shape[0])
    in_items = np.bincount(tokens.indices, minlength=int(tokens.shape[1]))
    idf = np.log((1 + n_items) / (1 + in_items)) + 1
    weighted = tokens.copy()
    weighted.data = weighted.data * idf[weighted.indices]
    return unit_rows(weighted)


def _latest(interactions: Interactions, history: int) -> Interactions:
    """At most `history` interactions of each user: the latest, or the last in the data where times are unknown."""
    clock = np.arange(len(interactions.users)) if interactions.times is None else interactions.times
    order = np.lexsort((clock, interactions.users))
    users = interactions.users[order]
    ends = np.searchsorted(users, users, side="right")
    kept = order[ends - np.arange(len(users)) <= history]
    return Interactions(
        users=interactions.users[kept],
        items=interactions.items[kept],
        n_users=interactions.n_users,
        n_items=interactions.n_items,
        times=None,
        weights=np.ones(len(kept)),
    )


def _nearest(unit: SparseRows, neighbours: int) -> SparseRows:
    """CSR [items, items]: the largest `neighbours` cosines of each item, its own left out."""
    n_items = int(unit.shape[0])
    other = unit.T.tocsr()
    rows, columns, values = [], [], []
    block = 512
    for start in range(0, n_items, block):
        part = (unit[start : start + block] @ other).tocsr()
        part.sort_indices()
        owner = np.repeat(np.arange(part.shape[0]) + start, np.diff(part.indptr))
        use = part.indices != owner
        owner, item, value = owner[use], part.indices[use], part.data[use]
        # Entries come by owner and item, so a stable sort leaves equal cosines in the order of the items.
        order = sort_within(owner - start, part.shape[0], np.argsort(-value, kind="stable"))
        owner, item, value = owner[order], item[order], value[order]
        first = np.searchsorted(owner, owner, side="left")
        near = np.arange(len(owner)) - first < neighbours
        rows.append(owner[near])
        columns.append(item[near])
        values.append(value[near])
    if not rows:
        return sparse.csr_array((n_items, n_items))
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    return sparse.csr_array(sparse.coo_array(entries, shape=(n_items, n_items)))
