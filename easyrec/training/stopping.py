"""Which evaluation is best, and when no better one is to be expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from easyrec.config.training import EarlyStoppingConfig
from easyrec.errors import TrainingError, nearest
from evaluation.errors import MetricError
from evaluation.metrics.registry import parse_metric


def higher_is_better(metric: str) -> bool:
    """Whether a larger value of `task/metric` is better: as the metric's definition says; a loss is better small."""
    name = metric.rpartition("/")[2]
    try:
        return parse_metric(name).metric.higher_is_better
    except MetricError:
        return not name.casefold().endswith("loss")


class Monitor:
    """Follows one metric over the evaluations.

    Args:
        metric: Which one; the first that an evaluation gives unless given.
        higher: Says whether larger is better, by name.

    Attributes:
        best: The best value so far, or None.
        value: The latest.
    """

    def __init__(self, metric: str | None, higher: Callable[[str], bool] = higher_is_better) -> None:
        self.metric = metric
        self.best: float | None = None
        self.value: float | None = None
        self._higher = higher

    def update(self, metrics: Mapping[str, float], min_delta: float = 0.0) -> bool:
        """Takes an evaluation; says whether it is the best so far by more than `min_delta`.

        Raises:
            TrainingError: The metric is not among them.
        """
        if self.metric is None:
            self.metric = next(iter(metrics), None)
        if self.metric is None:
            return False
        if self.metric not in metrics:
            raise TrainingError(
                f"the monitored metric {self.metric!r} is not among those evaluated.{nearest(self.metric, metrics)}"
            )
        value = self.value = float(metrics[self.metric])
        if math.isnan(value):
            return False
        gain = (
            math.inf if self.best is None else (value - self.best) * (1 if self._higher(self.metric) else -1)
        )
        if gain <= min_delta:
            return False
        self.best = value
        return True

    def describe(self) -> dict[str, Any] | None:
        """The latest value, for a checkpoint's manifest."""
        if self.metric is None or self.value is None:
            return None
        return {"metric": self.metric, "value": self.value, "higher_is_better": self._higher(self.metric)}


class EarlyStopping:
    """Counts evaluations without improvement.

    Args:
        config: Metric, patience and least improvement, or None to never stop.
        higher: Says whether larger is better, by name.
    """

    def __init__(
        self, config: EarlyStoppingConfig | None, higher: Callable[[str], bool] = higher_is_better
    ) -> None:
        self.config = config
        self.monitor = Monitor(config.metric if config else None, higher)
        self.waited = 0

    def update(self, metrics: Mapping[str, float]) -> None:
        """Takes an evaluation."""
        if self.config is not None:
            improved = self.monitor.update(metrics, self.config.min_delta)
            self.waited = 0 if improved else self.waited + 1

    @property
    def stop(self) -> bool:
        """Whether training should end."""
        return self.config is not None and self.waited >= self.config.patience

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"best": self.monitor.best, "metric": self.monitor.metric, "waited": self.waited}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint."""
        self.monitor.best, self.waited = state["best"], state["waited"]
        self.monitor.metric = self.monitor.metric or state["metric"]
