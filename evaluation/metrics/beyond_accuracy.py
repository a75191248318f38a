"""What lists are like apart from their hits: spread over the catalogue, novelty, diversity, serendipity, popularity.

Metrics of single lists give one value per user like those in `ranking.py`. Coverage, Gini and popularity lift are of
all lists together and have a `ListStatistic`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evaluation.arrays import BoolArray, FloatArray, IntArray, SparseRows, sum_by_code
from evaluation.errors import MetricError
from evaluation.metrics.catalogue import CatalogueFacts
from evaluation.metrics.ranking import NO_ITEM, RankedLists
from evaluation.metrics.statistic import Resampler, ratio

_BLOCK_ELEMENTS = 1 << 22


def novelty_at_k(lists: RankedLists, k: int) -> FloatArray:
    """Mean surprise -log2(share of users who took the item in training) of the first k, in bits: float64 [U].

    Zhou et al., "Solving the apparent diversity-accuracy dilemma", PNAS 2010. One user is added to all counts, so
    that an item nobody took has a finite surprise. 0 for an empty list.
    """
    facts = _facts(lists, "popularity")
    popularity = _known(facts.popularity)
    surprise = -np.log2((popularity + 1) / (facts.n_users + 1))
    return _mean_over_list(lists, k, surprise)


def average_popularity_at_k(lists: RankedLists, k: int) -> FloatArray:
    """Mean number of training users who took the recommended items: float64 [U]; 0 for an empty list."""
    return _mean_over_list(lists, k, _known(_facts(lists, "popularity").popularity))


def diversity_at_k(lists: RankedLists, k: int) -> FloatArray:
    """Mean of 1 - cosine of the attributes over the pairs in the first k: float64 [U].

    Intra-list diversity, Ziegler et al., "Improving recommendation lists through topic diversification", WWW 2005. An
    item without attributes is unlike every other. 0 for a list of fewer than two items.
    """
    vectors = _facts(lists, "attributes").vectors
    if vectors is None:  # `_facts` has made sure; for the type checker
        raise MetricError("diversity needs item attributes.")
    top = _top(lists, k)
    taken = _incidence(top, int(vectors.shape[0]))
    count = np.diff(taken.indptr).astype(np.float64)
    total = taken @ vectors
    # The squared length of the sum of unit vectors holds every pair twice, and each item with itself.
    squared = np.asarray(total.multiply(total).sum(axis=1), dtype=np.float64).ravel()
    own = np.asarray(taken @ vectors.multiply(vectors).sum(axis=1), dtype=np.float64).ravel()
    pairs = count * (count - 1)
    return np.nan_to_num(1 - ratio(squared - own, pairs), nan=0.0)


def serendipity_at_k(lists: RankedLists, k: int) -> FloatArray:
    """Share of the first k that are hits and not among the user's k most popular unseen items: float64 [U].

    Ge et al., "Beyond accuracy: evaluating recommender systems by coverage and serendipity", RecSys 2010, with
    popularity as the primitive recommender whose lists are expected.
    """
    expected = _facts(lists, "popularity").expected
    if expected is None or len(expected) != lists.n_users or expected.shape[1] < k:
        raise MetricError(f"serendipity@{k} needs the {k} most popular unseen items of every judged user.")
    top = _top(lists, k)
    is_expected: BoolArray = np.zeros(top.shape, dtype=bool)
    for place in range(k):  # k comparisons of [U, k]: no [U, k, k] is held
        is_expected |= top == expected[:, place, None]
    hits = (lists.relevance[:, :k] > 0) & ~is_expected
    result: FloatArray = hits.sum(axis=1) / k
    return result


@dataclass(frozen=True)
class ListStatistic:
    """A metric of all lists together.

    Attributes:
        from_counts: Maps how often each item is recommended [items shown at all, resamples], and the number of all
            items, to metric values [resamples].
    """

    from_counts: Callable[[FloatArray, int], FloatArray]

    def value(self, lists: RankedLists, k: int) -> float:
        """The metric of all users."""
        return float(self.resampler(lists, k)(np.ones((lists.n_users, 1)))[0])

    def resampler(self, lists: RankedLists, k: int) -> Resampler:
        """A function from weights of the judged users [U, resamples] to metric values [resamples]."""
        n_items = _facts(lists, "").n_items
        taken = _incidence(_top(lists, k), n_items)
        # Most of a large catalogue is never shown; its zeros are known without being held.
        by_item = taken[:, np.unique(taken.indices)].T.tocsr()
        size = max(1, _BLOCK_ELEMENTS // max(int(by_item.shape[0]), 1))

        def draw(weight: FloatArray) -> FloatArray:
            starts = range(0, weight.shape[1], size)
            return np.concatenate(
                [self.from_counts(by_item @ weight[:, at : at + size], n_items) for at in starts]
            )

        return draw


def _coverage(counts: FloatArray, n_items: int) -> FloatArray:
    return np.asarray((counts > 0).sum(axis=0) / n_items)


def _gini(counts: FloatArray, n_items: int) -> FloatArray:
    ascending = np.sort(counts, axis=0)
    place = np.arange(n_items - len(counts) + 1, n_items + 1)  # items that are not held come first
    return ratio((2 * place - n_items - 1) @ ascending, n_items * ascending.sum(axis=0))


class PopularityLiftStatistic:
    """Mean popularity of what is recommended, relative to that of what the same users took in training.

    Abdollahpouri et al., "The unfairness of popularity bias in recommendation", RMSE workshop at RecSys 2019: the
    relative change of the group average popularity. 0 is no bias, 1 is twice as popular. Users without history do
    not count.
    """

    def value(self, lists: RankedLists, k: int) -> float:
        """The metric of all users; nan if no user has a history."""
        return float(self.resampler(lists, k)(np.ones((lists.n_users, 1)))[0])

    def resampler(self, lists: RankedLists, k: int) -> Resampler:
        """See `ListStatistic.resampler`."""
        own = _known(_facts(lists, "popularity").own_popularity)[lists.users]
        counts = ~np.isnan(own)
        recommended = np.where(counts, average_popularity_at_k(lists, k), 0.0)
        before = np.where(counts, own, 0.0)
        return lambda weight: ratio(recommended @ weight, before @ weight) - 1


COVERAGE = ListStatistic(_coverage)
GINI = ListStatistic(_gini)
POPULARITY_LIFT = PopularityLiftStatistic()


def coverage_at_k(lists: RankedLists, k: int) -> float:
    """Share of the catalogue that is in somebody's first k (Herlocker et al., TOIS 2004, section 5.1)."""
    return COVERAGE.value(lists, k)


def gini_at_k(lists: RankedLists, k: int) -> float:
    """Gini index of how often items are in somebody's first k: 0 all equally often, near 1 few items only."""
    return GINI.value(lists, k)


def popularity_lift_at_k(lists: RankedLists, k: int) -> float:
    """Mean popularity of the first k relative to that of the users' history, less 1; 0 is no popularity bias."""
    return POPULARITY_LIFT.value(lists, k)


def _facts(lists: RankedLists, need: str) -> CatalogueFacts:
    if lists.facts is None or not lists.facts.has(need):
        what = {"popularity": "the training interactions", "attributes": "item attributes"}.get(
            need, "the catalogue"
        )
        raise MetricError(f"This metric needs {what}: pass them to evaluate_ranking.")
    return lists.facts


def _known(values: FloatArray | None) -> FloatArray:
    if values is None:
        raise MetricError("This metric needs the training interactions: pass them to evaluate_ranking.")
    return values


def _top(lists: RankedLists, k: int) -> IntArray:
    if not 1 <= k <= lists.length:
        raise MetricError(f"k must be from 1 to the length of the lists, {lists.length}, got {k}.")
    return lists.items[:, :k]


def _incidence(top: IntArray, n_items: int) -> SparseRows:
    """CSR [U, items], 1 where an item is in the list."""
    from scipy import sparse  # slow to import, and the table of metrics is read without it

    real = top != NO_ITEM
    owner = np.broadcast_to(np.arange(len(top))[:, None], top.shape)[real]
    entries = (np.ones(len(owner)), (owner, top[real]))
    return sparse.csr_array(sparse.coo_array(entries, shape=(len(top), n_items)))


def _mean_over_list(lists: RankedLists, k: int, of_item: FloatArray) -> FloatArray:
    top = _top(lists, k)
    real = top != NO_ITEM
    owner = np.broadcast_to(np.arange(len(top))[:, None], top.shape)[real]
    total = sum_by_code(of_item[top[real]], owner.astype(np.int64), len(top))
    result: FloatArray = total / np.maximum(real.sum(axis=1), 1)
    return result
