"""Whether what the model is asked about is what it was trained on.

For features of the user and of the request, the values of the latest sampled requests are compared with the statistics
that the bundle was fitted with:

- a category, or a number in fitted buckets: the population stability index, sum over bins of (p - q) ln(p / q), with p
  the share in requests and q the share in the training data. Bins are the most frequent values, all others, unseen
  ones and missing ones. By custom, below 0.1 nothing has changed, above 0.25 much has.
- a number normalised by mean and deviation: how many training deviations the mean has moved.

And for all of them, how often the value is missing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from easyrec.config.features import IdFeature, NumberFeature
from easyrec.errors import EasyRecError
from easyrec.export.layout import FEATURES
from easyrec.features.state import FittedState, load
from serving.models.served import ServedModel
from serving.operations.metrics import Answered

SAMPLES = 2000
"""Latest sampled requests that are kept of each model."""
ENOUGH = 100
"""Fewer samples say nothing."""
FREQUENT = 20
"""At most so many values have a bin of their own."""
SHARE = 0.02
"""A rarer value has none: in a few hundred samples it is there or not by chance."""
MOST_VALUES = 200_000
"""Larger vocabularies are not kept for this."""
_FLOOR = 1e-4
"""The smallest share of a bin, so that an empty one does not make the index infinite."""

Shares = npt.NDArray[np.float64]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CategoryReference:
    """What training saw of a category.

    Attributes:
        column: Raw column.
        values: All known values as text, the frequent ones first.
        frequent: How many of them have a bin of their own.
        shares: [frequent + 3] of missing, unseen, each frequent value, and all others.
    """

    column: str
    values: pa.Array
    frequent: int
    shares: Shares

    def drift(self, sampled: Sequence[Any]) -> tuple[str, float]:
        """Kind of the figure, and the figure."""
        texts = pa.array([None if value is None else str(value) for value in sampled], pa.large_string())
        place = np.asarray(pc.index_in(texts, value_set=self.values).fill_null(-1))
        place = np.where(np.asarray(texts.is_null()), -2, place)
        bins = np.minimum(place, self.frequent) + 2
        counted = np.bincount(bins, minlength=self.frequent + 3) / len(sampled)
        return "index", stability_index(counted, self.shares)


@dataclass(frozen=True)
class BucketReference:
    """Boundaries of buckets that training filled alike.

    Attributes:
        column: Raw column.
        boundaries: [K] between K + 1 buckets.
    """

    column: str
    boundaries: Shares

    def drift(self, sampled: Sequence[Any]) -> tuple[str, float]:
        """Kind of the figure, and the figure."""
        numbers = finite(sampled)
        if not len(numbers):
            return "index", float("nan")
        buckets = len(self.boundaries) + 1
        counted = np.bincount(np.searchsorted(self.boundaries, numbers, "right"), minlength=buckets)
        return "index", stability_index(counted / len(numbers), np.full(buckets, 1 / buckets))


@dataclass(frozen=True)
class MeanReference:
    """Mean and standard deviation of a number in the training data.

    Attributes:
        column: Raw column.
        mean: Mean.
        deviation: Standard deviation.
    """

    column: str
    mean: float
    deviation: float

    def drift(self, sampled: Sequence[Any]) -> tuple[str, float]:
        """Kind of the figure, and the figure."""
        numbers = finite(sampled)
        moved = float(numbers.mean() - self.mean) / self.deviation if len(numbers) else float("nan")
        return "shift", moved


Reference = CategoryReference | BucketReference | MeanReference


def stability_index(found: Shares, expected: Shares) -> float:
    """The population stability index of two distributions over the same bins (0: they are the same)."""
    found, expected = np.maximum(found, _FLOOR), np.maximum(expected, _FLOOR)
    return float(((found - expected) * np.log(found / expected)).sum())


def finite(values: Iterable[Any]) -> Shares:
    """The finite numbers among some values."""
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    array = np.asarray(numbers, np.float64)
    return array[np.isfinite(array)]


def references(model: ServedModel) -> dict[str, Reference]:
    """What a bundle says of its features' distributions, by feature; features it says nothing of are left out.

    Raises:
        EasyRecError: The bundle cannot be read.
    """
    state = load(model.folder / FEATURES)
    # Who asks is no question of drift: users ask as often as they like, whatever their share of the training data.
    columns = set(model.user_columns) - {model.manifest.keys.get("user")}
    found: dict[str, Reference] = {}
    for name, config in model.config.features.items():
        column = config.column or name
        if column not in columns:
            continue
        fitted = state.features.get(name, {}).get("state") or {}
        reference: Reference | None = None
        if isinstance(config, IdFeature):
            reference = _category(column, name, config.table or name, state)
        elif isinstance(config, NumberFeature):
            reference = _number(column, config, fitted)
        if reference is not None:
            found[name] = reference
    return found


def _category(column: str, feature: str, table: str, state: FittedState) -> CategoryReference | None:
    """From the counts of ids: 0 is missing, then come those of unseen values, then the values by frequency."""
    counts, (values, _) = state.counts.get(feature), state.vocabularies.get(table, (None, None))
    if counts is None or values is None or len(values) > MOST_VALUES or not counts.sum():
        return None
    first, shares = len(counts) - len(values), counts / counts.sum()
    known = shares[first:]
    order = np.argsort(-known, kind="stable")
    frequent = int((known[order[:FREQUENT]] >= SHARE).sum())
    bins = [shares[0], shares[1:first].sum(), *known[order[:frequent]], known[order[frequent:]].sum()]
    by_frequency = values.cast(pa.large_string()).take(pa.array(order))
    return CategoryReference(column, by_frequency, frequent, np.asarray(bins, np.float64))


def _number(column: str, config: NumberFeature, fitted: Mapping[str, Any]) -> Reference | None:
    boundaries = fitted.get("boundaries")
    if boundaries is not None:
        even = config.buckets is not None and len(boundaries) == config.buckets - 1
        return BucketReference(column, np.asarray(boundaries, np.float64)) if even else None
    scale = fitted.get("scale", 0.0)
    if config.normalize not in (None, "zscore") or not scale:
        return None
    return MeanReference(column, fitted.get("offset", 0.0), 1.0 / scale)


@dataclass
class _Watched:
    """One model under watch."""

    model: ServedModel
    samples: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    references: dict[str, Reference] | None = None


class DriftMonitor(Collector):
    """Samples requests, and compares when asked.

    Args:
        every: Each so many-th answer is sampled; 0 samples none.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._seen = 0
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.Lock()

    def observe(self, answer: Answered) -> None:
        """Takes an answer into account."""
        self._seen += 1  # threads may lose a count between them; the samples are as good
        if not self._every or self._seen % self._every:
            return
        model = answer.query.model
        with self._lock:
            watched = self._watched.get(model.name)
            if watched is None or watched.model is not model:
                watched = self._watched[model.name] = _Watched(model)
            watched.samples.append(answer.query.columns().values)

    def describe(self) -> Iterator[Metric]:
        """Nothing: what there is depends on the models."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The figures for Prometheus."""
        index = GaugeMetricFamily(
            "easyrec_feature_drift",
            "Population stability index of a feature, requests against training data.",
            labels=("model", "version", "feature"),
        )
        shift = GaugeMetricFamily(
            "easyrec_feature_shift",
            "Training standard deviations by which the mean of a feature has moved.",
            labels=("model", "version", "feature"),
        )
        missing = GaugeMetricFamily(
            "easyrec_feature_missing_share",
            "Share of requests in which a feature is missing.",
            labels=("model", "version", "feature"),
        )
        for model, version, feature, kind, value, absent in self.figures():
            labels = (model, version, feature)
            (index if kind == "index" else shift).add_metric(labels, value)
            missing.add_metric(labels, absent)
        yield from (index, shift, missing)

    def figures(self) -> Iterator[tuple[str, str, str, str, float, float]]:
        """Model, version, feature, kind of the figure, the figure, and the share of missing values."""
        with self._lock:
            watched = [(one, list(one.samples)) for one in self._watched.values()]
        for one, samples in watched:
            if len(samples) < ENOUGH:
                continue
            for feature, reference in self._references(one).items():
                sampled = [columns.get(reference.column) for columns in samples]
                kind, value = reference.drift(sampled)
                absent = sum(value is None for value in sampled) / len(sampled)
                yield one.model.name, one.model.version, feature, kind, value, absent

    def _references(self, watched: _Watched) -> dict[str, Reference]:
        if watched.references is None:
            try:
                watched.references = references(watched.model)
            except (EasyRecError, OSError) as error:
                logger.warning("the drift of %s is not watched: %s", watched.model.name, error)
                watched.references = {}
        return watched.references
