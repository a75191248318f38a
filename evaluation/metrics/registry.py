"""The metrics by name, and how a user's own metric joins them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from evaluation.errors import MetricError, did_you_mean
from evaluation.metrics.metric import CUTOFF, Kind, Metric, MetricAtK
from evaluation.metrics.statistic import GroupMeanStatistic
from evaluation.metrics.table import BUILT_IN

__all__ = [
    "METRICS",
    "Kind",
    "Metric",
    "MetricAtK",
    "get_metric",
    "metrics_of",
    "parse_metric",
    "register_metric",
]

_METRICS: dict[str, Metric] = {metric.name: metric for metric in BUILT_IN}

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
    if metric.is_ranking != metric.name.endswith(CUTOFF) or (
        "ranking" in metric.kinds and not metric.is_ranking
    ):
        raise MetricError(
            f"Metric {metric.name!r} of kinds {metric.kinds}: the name of a ranking metric, and no other, ends in "
            f"'{CUTOFF}', and such a metric has no other kind."
        )
    if {"grouped", "session"} & set(metric.kinds) and not isinstance(metric.statistic, GroupMeanStatistic):
        raise MetricError(
            f"Metric {metric.name!r} is grouped and needs a statistic for its intervals: a GroupMeanStatistic."
        )
    _METRICS[metric.name] = metric
    return metric


def unregister_metric(name: str) -> None:
    """Remove a metric from the table; for tests that register one.

    Raises:
        MetricError: There is no such metric, or it is a built-in one.
    """
    if name in {metric.name for metric in BUILT_IN}:
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
        if f"{name}{CUTOFF}" in _METRICS and name not in _METRICS:
            raise MetricError(f"Metric {text!r} needs a cut-off, such as {name + '@10'!r}.")
        return MetricAtK(get_metric(text), None)
    metric = get_metric(name + CUTOFF)
    if not cutoff.isdecimal() or int(cutoff) < 1:
        raise MetricError(
            f"Metric {text!r}: the cut-off must be a whole number of at least 1, got {cutoff!r}."
        )
    return MetricAtK(metric, int(cutoff))


def metrics_of(kind: Kind) -> list[Metric]:
    """All metrics that fit a kind of task, in the order of the table."""
    return [metric for metric in _METRICS.values() if kind in metric.kinds]
