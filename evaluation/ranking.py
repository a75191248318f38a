"""Judge and compare recommendation lists: START HERE for ranking metrics of models and baselines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from evaluation.arrays import IntArray, SparseRows
from evaluation.baselines import BASELINES
from evaluation.candidates import Candidates
from evaluation.cold_start import Apart, cold_parts
from evaluation.errors import DataError, EvaluationError, MetricError, did_you_mean
from evaluation.facts import catalogue_facts
from evaluation.interactions import Interactions, ItemAttributes
from evaluation.metrics.catalogue import CatalogueFacts
from evaluation.metrics.ranking import RankedLists, positive_entries
from evaluation.metrics.registry import METRICS, MetricAtK, parse_metric
from evaluation.model_draws import ModelDraws
from evaluation.popularity import popularity_shares
from evaluation.protocol import ScoreFunction, rank_full_catalogue
from evaluation.ranking_result import RankingResult
from evaluation.uncertainty import DEFAULT_LEVEL, DEFAULT_RESAMPLES, check_bootstrap

Ranker: TypeAlias = "ScoreFunction | RankedLists | npt.NDArray[np.integer]"

DEFAULT_KS = (5, 10, 20)
DEFAULT_METRICS = ("ndcg", "recall", "precision", "hit_rate", "map", "mrr")
DEFAULT_REFERENCE = "popularity"


def evaluate_ranking(
    models: Mapping[str, Ranker],
    relevant: SparseRows,
    seen: SparseRows | None = None,
    ks: Sequence[int] = DEFAULT_KS,
    *,
    metrics: Sequence[str] | None = None,
    interactions: Interactions | None = None,
    attributes: ItemAttributes | None = None,
    candidates: Candidates | None = None,
    reference: str | None = None,
    primary: str | None = None,
    intervals: bool = True,
    level: float = DEFAULT_LEVEL,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
    block_size: int | None = None,
) -> RankingResult:
    """Rank the full catalogue with every model and compare them on the same users.

    Users with nothing relevant are left out and counted. A relevant item that is also in `seen` cannot be
    recommended, so it does not count as relevant; such items are counted too.

    Args:
        models: By name: a score function (user codes [b] -> scores [b, items]), lists of item codes for all users
            [n_users, K], or `RankedLists` of exactly the users judged. Baselines are given like models, see
            `baselines.fit_baselines`.
        relevant: CSR [n_users, n_items], relevance of the held-out items, above 0.
        seen: CSR [n_users, n_items]; stored entries are never recommended.
        ks: Cut-offs.
        metrics: Names of ranking metrics without a cut-off; by default `DEFAULT_METRICS`, coverage and Gini, and
            those beyond accuracy that `interactions` and `attributes` allow.
        interactions: What users took in training: for novelty, serendipity and popularity bias, and to report users
            without history and items nobody took apart.
        attributes: Attributes of the items, for diversity.
        candidates: What competes instead of the whole catalogue.
        reference: The model others are compared with; "popularity" if there is one of that name.
        primary: The metric the verdict is about, e.g. "ndcg@10"; the default is the first metric at 10, or at the
            largest cut-off below 10, or at the smallest.
        intervals: Whether to compute intervals and differences.
        level: Confidence level.
        resamples: Number of bootstrap resamples of the users.
        seed: Seed of the resamples.
        block_size: Users scored at once, see `rank_full_catalogue`.

    Returns:
        Metrics of each model and its paired difference from the reference.

    Raises:
        DataError: Shapes that do not fit, NaN scores, lists too short or of other users, nobody to judge.
        MetricError: An unknown metric, or one that is not for ranked lists.
        EvaluationError: No models, an unknown reference, a bad level, too few resamples.
    """
    if intervals:
        check_bootstrap(level, resamples)
    if not models:
        raise EvaluationError("models is empty: there is nothing to evaluate.")
    truth = _Truth.of(relevant, seen)
    facts = catalogue_facts(
        int(truth.relevant.shape[1]), interactions, attributes, seen, max(ks, default=1), users=truth.users
    )
    columns = _columns(metrics if metrics is not None else _default_metrics(facts), ks)
    _refuse_unknown(columns, facts)
    against = _reference(models, reference)
    headline = _primary(primary, columns)
    ranker = _Ranker(truth, facts, seen, candidates, max(ks), block_size)
    lists = {name: ranker.lists(name, model) for name, model in models.items()}
    drawn = ModelDraws.of(lists, columns, resamples if intervals else 0, seed)
    strongest = _strongest(drawn, headline, against) if intervals and against is not None else None
    return RankingResult(
        models=drawn.estimates(level),
        differences=drawn.differences(against, level) if intervals and against is not None else {},
        reference=against,
        primary=headline,
        ks=tuple(sorted(set(ks))),
        n_users=len(truth.users),
        n_excluded=truth.n_excluded,
        n_items=int(truth.relevant.shape[1]),
        n_relevant_seen=truth.n_relevant_seen,
        level=level,
        resamples=resamples if intervals else 0,
        seed=seed,
        lists=lists,
        apart=_apart(lists, truth, interactions, columns, drawn, level),
        candidates=candidates.description if candidates is not None else "",
        is_sampled=candidates is not None and candidates.is_sampled,
        popularity=popularity_shares(lists, int(headline.partition("@")[2])),
        strongest=strongest,
        from_strongest={}
        if strongest is None
        else {name: gaps[headline] for name, gaps in drawn.differences(strongest, level).items()},
    )


def _strongest(drawn: ModelDraws, headline: str, reference: str) -> str | None:
    """The baseline that is best by the primary metric; None if that is the reference, or there is no baseline."""
    place = [column.name for column in drawn.columns].index(headline)
    sign = 1 if drawn.columns[place].metric.higher_is_better else -1
    known = [name for name in drawn.values if name in BASELINES]
    best = max(known, key=lambda name: sign * drawn.values[name][place], default=None)
    return None if best == reference else best


def _apart(
    lists: Mapping[str, RankedLists],
    truth: "_Truth",
    interactions: Interactions | None,
    columns: Sequence[MetricAtK],
    drawn: ModelDraws,
    level: float,
) -> Mapping[str, Apart]:
    if interactions is None:
        return {}
    plain = [column for column in columns if not column.metric.of_all_lists and not column.metric.needs]
    return cold_parts(lists, truth.relevant, interactions, plain, drawn.resamples, drawn.seed, level)


@dataclass(frozen=True)
class _Truth:
    """What is relevant, and to whom."""

    relevant: SparseRows
    users: IntArray
    n_excluded: int
    n_relevant_seen: int

    @classmethod
    def of(cls, relevant: SparseRows, seen: SparseRows | None) -> "_Truth":
        truth = positive_entries(relevant)
        before = truth.nnz
        if seen is not None:
            if seen.shape != truth.shape:
                raise DataError(f"seen has shape {seen.shape} but relevant has {truth.shape}.")
            known = seen.astype(bool)
            known.data[:] = True
            truth = positive_entries(truth - truth.multiply(known))
        counts = np.diff(truth.indptr)
        users = np.flatnonzero(counts)
        if not len(users):
            raise DataError("No user has a relevant item that it has not seen, so there is nobody to judge.")
        return cls(truth, users, int(len(counts) - len(users)), before - truth.nnz)


def _default_metrics(facts: CatalogueFacts) -> list[str]:
    beyond = [
        metric.name.removesuffix("@k")
        for metric in METRICS.values()
        if metric.is_ranking
        and metric.is_default
        and (metric.of_all_lists or metric.needs)
        and facts.has(metric.needs)
    ]
    return [*DEFAULT_METRICS, *beyond]


def _refuse_unknown(columns: Sequence[MetricAtK], facts: CatalogueFacts) -> None:
    needed = {
        "popularity": "the training interactions (interactions=)",
        "attributes": "item attributes (attributes=)",
    }
    for column in columns:
        if not facts.has(column.metric.needs):
            raise MetricError(f"Metric {column.name!r} needs {needed[column.metric.needs]}.")


def _columns(metrics: Sequence[str], ks: Sequence[int]) -> list[MetricAtK]:
    if isinstance(metrics, str) or not metrics or not ks:
        raise MetricError(f"metrics and ks must be lists that are not empty, got {metrics!r} and {ks!r}.")
    for name in metrics:
        plain, at, k = name.partition("@")
        if at and k != "k":
            raise MetricError(
                f"Metric {name!r}: say cut-offs with ks=[{k}], and metrics without, as {plain!r}."
            )
    return [parse_metric(f"{name.removesuffix('@k')}@{k}") for name in metrics for k in sorted(set(ks))]


def _reference(models: Mapping[str, Ranker], reference: str | None) -> str | None:
    if reference is None:
        return DEFAULT_REFERENCE if DEFAULT_REFERENCE in models and len(models) > 1 else None
    if reference not in models:
        raise EvaluationError(f"Unknown reference {reference!r}; {did_you_mean(reference, models)}")
    return reference


def _primary(primary: str | None, columns: Sequence[MetricAtK]) -> str:
    names = [column.name for column in columns]
    if primary is not None:
        if primary not in names:
            raise MetricError(f"primary {primary!r} is not computed; {did_you_mean(primary, names)}")
        return primary
    first = [column for column in columns if column.metric == columns[0].metric]
    return max(first, key=lambda column: (column.k or 0) if (column.k or 0) <= 10 else -(column.k or 0)).name


@dataclass(frozen=True)
class _Ranker:
    """Ranks what competes for the judged users."""

    truth: _Truth
    facts: CatalogueFacts
    seen: SparseRows | None
    candidates: Candidates | None
    k: int
    block_size: int | None

    def lists(self, name: str, model: Ranker) -> RankedLists:
        """The lists of a model.

        Raises:
            DataError: They do not fit; the message names the model.
        """
        truth = self.truth
        n_users, n_items = truth.relevant.shape
        try:
            if isinstance(model, RankedLists):
                if not np.array_equal(model.users, truth.users):
                    raise DataError(
                        f"its lists are of {model.n_users:,} users, not exactly the {len(truth.users):,} users judged."
                    )
                return replace(model, facts=self.facts)
            if callable(model):
                items = rank_full_catalogue(
                    model,
                    n_users,
                    n_items,
                    self.seen,
                    self.k,
                    users=truth.users,
                    candidates=None if self.candidates is None else self.candidates.matrix,
                    block_size=self.block_size,
                )
            else:
                items = self._given(np.asarray(model))
            return RankedLists.of_items(items, truth.relevant, truth.users, facts=self.facts)
        except DataError as error:
            raise DataError(f"Model {name!r}: {error}") from error

    def _given(self, lists: "npt.NDArray[np.integer]") -> IntArray:
        n_users = self.truth.relevant.shape[0]
        if lists.ndim != 2 or len(lists) != n_users:
            raise DataError(f"its lists must have shape [{n_users}, K], one per user, got {lists.shape}.")
        if lists.shape[1] < self.k:
            raise DataError(f"its lists have {lists.shape[1]} positions but the largest cut-off is {self.k}.")
        return np.asarray(lists[self.truth.users])
