"""The table of metrics by name, and how a user's own metric joins it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from evaluation.errors import MetricError, did_you_mean
from evaluation.metrics import decisions, grouped, pointwise, ranking, regression
from evaluation.metrics.statistic import Statistic

Kind: TypeAlias = Literal["binary", "regression", "multiclass", "grouped", "ranking"]

_CUTOFF = "@k"


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name; a ranking metric's ends in "@k".
        kinds: The tasks it fits. "grouped" is for binary tasks with a user column.
        function: Binary, regression, multi-class: (label, score, weight) -> float. Grouped: (label, score, group,
            weight) -> float. Ranking: (RankedLists, k) -> one value per user [U].
        higher_is_better: Whether a larger value is a better model.
        doc: One line that says what the number means.
        undefined: Why the value can be nan, in words for a report; empty if it cannot.
        needs_probability: Whether scores must lie in [0, 1].
        statistic: A faster way to resample it; without one it is computed anew for each resample. A grouped metric
            must have one.
    """

    name: str
    kinds: tuple[Kind, ...]
    function: Callable[..., Any]
    higher_is_better: bool
    doc: str
    undefined: str = ""
    needs_probability: bool = False
    statistic: Statistic | None = None

    @property
    def is_ranking(self) -> bool:
        """Whether it judges ranked lists at a cut-off."""
        return self.kinds == ("ranking",)


class MetricAtK(NamedTuple):
    """A metric and the cut-off asked for; `k` is None unless the metric is of ranked lists."""

    metric: Metric
    k: int | None

    @property
    def name(self) -> str:
        """The name with its cut-off, e.g. "ndcg@10"."""
        return self.metric.name if self.k is None else f"{self.metric.name.removesuffix(_CUTOFF)}@{self.k}"


_ONE_CLASS = "all labels are of one class"
_NO_POSITIVE = "there is no positive label"

_BUILT_IN: tuple[Metric, ...] = (
    Metric(
        "auc",
        ("binary", "multiclass"),
        pointwise.auc,
        True,
        "chance that a positive row scores above a negative one",
        _ONE_CLASS,
        statistic=pointwise.AUC,
    ),
    Metric(
        "pr_auc",
        ("binary",),
        pointwise.pr_auc,
        True,
        "average precision over all thresholds",
        _NO_POSITIVE,
        statistic=pointwise.PR_AUC,
    ),
    Metric(
        "log_loss",
        ("binary", "multiclass"),
        pointwise.log_loss,
        False,
        "mean negative log-likelihood in nats",
        needs_probability=True,
        statistic=pointwise.LOG_LOSS,
    ),
    Metric(
        "normalized_entropy",
        ("binary",),
        pointwise.normalized_entropy,
        False,
        "log-loss relative to always predicting the mean",
        _ONE_CLASS,
        needs_probability=True,
        statistic=pointwise.NORMALIZED_ENTROPY,
    ),
    Metric(
        "accuracy",
        ("binary", "multiclass"),
        decisions.accuracy,
        True,
        "share of rows decided right (binary: at 0.5)",
        statistic=decisions.accuracy_statistic(),
    ),
    Metric(
        "precision",
        ("binary",),
        decisions.precision,
        True,
        "share of positives among rows scored 0.5 or more",
        "no row is scored 0.5 or more",
        statistic=decisions.precision_statistic(),
    ),
    Metric(
        "recall",
        ("binary",),
        decisions.recall,
        True,
        "share of positives scored 0.5 or more",
        _NO_POSITIVE,
        statistic=decisions.recall_statistic(),
    ),
    Metric(
        "f1",
        ("binary",),
        decisions.f1,
        True,
        "harmonic mean of precision and recall at 0.5",
        "no row is positive and none is predicted so",
        statistic=decisions.f1_statistic(),
    ),
    Metric(
        "brier",
        ("binary",),
        pointwise.brier,
        False,
        "mean squared error of the probability",
        needs_probability=True,
        statistic=pointwise.BRIER,
    ),
    Metric(
        "ece",
        ("binary",),
        pointwise.ece,
        False,
        "expected calibration error over 15 equal-width bins",
        needs_probability=True,
        statistic=pointwise.ece_statistic(),
    ),
    Metric(
        "rmse", ("regression",), regression.rmse, False, "root mean squared error", statistic=regression.RMSE
    ),
    Metric("mae", ("regression",), regression.mae, False, "mean absolute error", statistic=regression.MAE),
    Metric(
        "r2",
        ("regression",),
        regression.r2,
        True,
        "share of the label's variance explained",
        "the label is constant",
        statistic=regression.R2,
    ),
    Metric(
        "gauc",
        ("grouped",),
        grouped.gauc,
        True,
        "AUC within each user, averaged by the user's rows",
        "no user has both classes",
        statistic=grouped.GAUCStatistic(),
    ),
    Metric(
        "precision@k", ("ranking",), ranking.precision_at_k, True, "share of the first k that are relevant"
    ),
    Metric(
        "recall@k", ("ranking",), ranking.recall_at_k, True, "share of the relevant items among the first k"
    ),
    Metric("f1@k", ("ranking",), ranking.f1_at_k, True, "harmonic mean of precision and recall at k"),
    Metric(
        "hit_rate@k", ("ranking",), ranking.hit_rate_at_k, True, "share of users with a hit in the first k"
    ),
    Metric(
        "ndcg@k",
        ("ranking",),
        ranking.ndcg_at_k,
        True,
        "hits in the first k, discounted by position, 1 is best",
    ),
    Metric("map@k", ("ranking",), ranking.map_at_k, True, "mean precision at the hits in the first k"),
    Metric("mrr@k", ("ranking",), ranking.mrr_at_k, True, "1 / position of the first hit in the first k"),
)

_METRICS: dict[str, Metric] = {metric.name: metric for metric in _BUILT_IN}

METRICS: Mapping[str, Metric] = MappingProxyType(_METRICS)
"""All metrics by name, built-in and registered; read only."""


def register_metric(metric: Metric) -> Metric:
    """Add a metric of your own to the table.

    Args:
        metric: The metric.

    Returns:
        The same metric.

    Raises:
        MetricError: The name exists already, an unknown kind, a ranking metric whose name does not end in "@k"
            (or another whose name does), or a grouped metric without a statistic.
    """
    if metric.name in _METRICS:
        raise MetricError(f"A metric named {metric.name!r} exists already; choose another name.")
    unknown = [kind for kind in metric.kinds if kind not in get_args(Kind)]
    if unknown or not metric.kinds:
        raise MetricError(
            f"Metric {metric.name!r} has kinds {metric.kinds}; known: {', '.join(get_args(Kind))}."
        )
    if metric.is_ranking != metric.name.endswith(_CUTOFF) or (
        "ranking" in metric.kinds and not metric.is_ranking
    ):
        raise MetricError(
            f"Metric {metric.name!r} of kinds {metric.kinds}: the name of a ranking metric, and no other, ends in "
            f"'{_CUTOFF}', and such a metric has no other kind."
        )
    if "grouped" in metric.kinds and metric.statistic is None:
        raise MetricError(f"Metric {metric.name!r} is grouped and needs a statistic for its intervals.")
    _METRICS[metric.name] = metric
    return metric


def unregister_metric(name: str) -> None:
    """Remove a metric from the table; for tests that register one.

    Raises:
        MetricError: There is no such metric, or it is a built-in one.
    """
    if name in {metric.name for metric in _BUILT_IN}:
        raise MetricError(f"Metric {name!r} is built in and stays.")
    get_metric(name)
    del _METRICS[name]


def get_metric(name: str) -> Metric:
    """The metric of a name as in the table, e.g. "auc" or "ndcg@k".

    Raises:
        MetricError: There is none; the message names the nearest.
    """
    if name not in _METRICS:
        raise MetricError(f"Unknown metric {name!r}; {did_you_mean(name, _METRICS)}")
    return _METRICS[name]


def parse_metric(text: str) -> MetricAtK:
    """Read a metric as users write it: "auc", or "ndcg@10" for a metric at a cut-off.

    Args:
        text: The name, with "@" and a whole number of at least 1 for ranking metrics.

    Returns:
        The metric and its k.

    Raises:
        MetricError: Unknown name, a bad cut-off, or one missing.
    """
    name, at, cutoff = text.partition("@")
    if not at:
        if f"{name}{_CUTOFF}" in _METRICS and name not in _METRICS:
            raise MetricError(f"Metric {text!r} needs a cut-off, such as {name + '@10'!r}.")
        return MetricAtK(get_metric(text), None)
    metric = get_metric(name + _CUTOFF)
    if not cutoff.isdecimal() or int(cutoff) < 1:
        raise MetricError(
            f"Metric {text!r}: the cut-off must be a whole number of at least 1, got {cutoff!r}."
        )
    return MetricAtK(metric, int(cutoff))


def metrics_of(kind: Kind) -> list[Metric]:
    """All metrics that fit a kind of task, in the order of the table."""
    return [metric for metric in _METRICS.values() if kind in metric.kinds]
