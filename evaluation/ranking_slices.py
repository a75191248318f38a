"""Ranking metrics by group of users: whom a recommender serves well, and whom not."""

from collections.abc import Mapping

import numpy as np

from evaluation.arrays import ArrayLike, BoolArray, FloatArray
from evaluation.errors import DataError, EvaluationError, did_you_mean
from evaluation.metrics.registry import parse_metric
from evaluation.metrics.statistic import ratio
from evaluation.ranking_result import RankingResult
from evaluation.slice_result import SLICE_RESAMPLES, Slice, SliceResult
from evaluation.slices import adjusted_slices, gaps_of_columns, slices_of
from evaluation.uncertainty import (
    DEFAULT_LEVEL,
    bootstrap_p_value,
    check_bootstrap,
    estimate_from_draws,
    resample_weights,
)


def rank_slices(
    result: RankingResult,
    groups: Mapping[str, ArrayLike],
    *,
    model: str | None = None,
    metric: str | None = None,
    level: float = DEFAULT_LEVEL,
    resamples: int = SLICE_RESAMPLES,
    seed: int = 0,
) -> SliceResult:
    """One ranking metric of one model within groups of users, and the gaps between them.

    Args:
        result: Result of `evaluate_ranking`.
        groups: By name, the group of each user by user code [all users]: values, or numbers with a name that ends in
            ":4" to cut them into quarters.
        model: The model; the best by the metric unless given.
        metric: A metric that has a value a user, e.g. "ndcg@10"; the primary one unless given.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Their seed.

    Returns:
        The metric by group; `n_rows` of a slice is its number of users.

    Raises:
        DataError: Groups of another number of users.
        EvaluationError: No groups, an unknown model, or a metric of all lists together.
        MetricError: An unknown metric.
    """
    check_bootstrap(level, resamples)
    if not groups:
        raise EvaluationError("groups is empty: there is nothing to slice by.")
    column = parse_metric(metric or result.primary)
    if not column.metric.is_ranking or column.metric.of_all_lists:
        raise EvaluationError(
            f"Metric {column.name!r} has no value for a single user, so it cannot be sliced by user."
        )
    name = model or result.by_primary()[0]
    if name not in result.lists:
        raise EvaluationError(f"Unknown model {name!r}; {did_you_mean(name, result.lists)}")
    lists = result.lists[name]
    values: FloatArray = column.metric.function(lists, column.k)
    weights = list(resample_weights(lists.n_users, resamples, seed))

    def draw(users: BoolArray) -> tuple[float, FloatArray]:
        kept = users.astype(np.float64)
        drawn = [ratio((values * kept) @ weight, kept @ weight) for weight in weights]
        return float(ratio(np.asarray(values @ kept), np.asarray(kept.sum()))), np.concatenate(drawn)

    overall = draw(np.ones(lists.n_users, dtype=bool))
    drawn, slices = {}, []
    for title, group in groups.items():
        key, _, parts = title.rpartition(":") if title.rpartition(":")[2].isdecimal() else (title, "", "")
        of_user = np.asarray(group)
        if lists.n_users and len(of_user) <= lists.users.max():
            raise DataError(
                f"Group {title!r} has {len(of_user):,} users, but user {lists.users.max():,} was judged."
            )
        for value, users in slices_of(of_user[lists.users], key, int(parts) if parts else None).items():
            drawn[key, value] = draw(users)
            estimate, draws = drawn[key, value]
            gap = draws - overall[1]
            words = "nobody is in it"
            change = estimate_from_draws(
                estimate - overall[0], gap, level=level, n=lists.n_users, undefined=words
            )
            slices.append(
                Slice(
                    key,
                    value,
                    int(users.sum()),
                    int(users.sum()),
                    estimate_from_draws(estimate, draws, level=level, n=lists.n_users, undefined=words),
                    change,
                    bootstrap_p_value(gap) if change.has_interval else float("nan"),
                )
            )
    return SliceResult(
        name,
        column.name,
        estimate_from_draws(*overall, level=level, n=lists.n_users),
        adjusted_slices(slices),
        gaps_of_columns(drawn, slices, level, lists.n_users),
        level,
        resamples,
        "user",
    )
