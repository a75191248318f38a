"""Curves of a binary task for plots: ROC, precision-recall, calibration and score histograms."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evaluation.arrays import FloatArray, IntArray, sum_by_code
from evaluation.metrics.ordering import steps_of
from evaluation.metrics.rows import Rows

_POINTS = 256
_CALIBRATION_BINS = 10
_HISTOGRAM_BINS = 40


@dataclass(frozen=True)
class BinaryCurves:
    """Points to draw, few enough for a report. Lists are JSON-able as they are.

    Attributes:
        false_positive_rate: ROC, x.
        true_positive_rate: ROC, y.
        recall: Precision-recall, x, from the highest threshold.
        precision: Precision-recall, y.
        positive_share: Weighted share of positives, the precision of a random ranking.
        share_taken: Gain, x: share of the rows with the highest scores.
        share_found: Gain, y: share of the positives among them; y / x is the lift.
        mean_score: Calibration, x: mean score of each of up to ten bins of about equal weight, ascending.
        observed_rate: Calibration, y: share of positives in each bin.
        bin_weight: Calibration: weight of rows in each bin.
        histogram_edges: Edges of equal-width score bins, one more than bins.
        histogram_negative: Share of the negative rows in each bin.
        histogram_positive: Share of the positive rows in each bin.
    """

    false_positive_rate: list[float]
    true_positive_rate: list[float]
    recall: list[float]
    precision: list[float]
    positive_share: float
    share_taken: list[float]
    share_found: list[float]
    mean_score: list[float]
    observed_rate: list[float]
    bin_weight: list[float]
    histogram_edges: list[float]
    histogram_negative: list[float]
    histogram_positive: list[float]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)


def binary_curves(rows: Rows) -> BinaryCurves | None:
    """Compute the curves of a binary task.

    Args:
        rows: Checked binary rows [n].

    Returns:
        The curves, or None if all weighted labels are of one class.
    """
    order, starts = steps_of(rows.score)
    weight, label = rows.weight[order], rows.label[order]
    positive = np.add.reduceat(weight * label, starts)[::-1]
    negative = np.add.reduceat(weight * (1 - label), starts)[::-1]
    if not positive.any() or not negative.any():
        return None
    hits = np.concatenate(([0.0], np.cumsum(positive)))
    misses = np.concatenate(([0.0], np.cumsum(negative)))
    true_rate, false_rate = hits / hits[-1], misses / misses[-1]
    roc = _thin(false_rate + true_rate)
    precision = hits[1:] / np.maximum(hits[1:] + misses[1:], np.finfo(np.float64).tiny)
    by_recall = _thin(true_rate[1:])
    taken = (hits + misses) / (hits[-1] + misses[-1])
    by_taken = _thin(taken)
    mean_score, observed, bin_weight = _calibration(rows.score[order].astype(np.float64), label, weight)
    edges, in_negative, in_positive = _histograms(rows)
    return BinaryCurves(
        false_positive_rate=false_rate[roc].tolist(),
        true_positive_rate=true_rate[roc].tolist(),
        recall=true_rate[1:][by_recall].tolist(),
        precision=precision[by_recall].tolist(),
        positive_share=float(hits[-1] / (hits[-1] + misses[-1])),
        share_taken=taken[by_taken].tolist(),
        share_found=true_rate[by_taken].tolist(),
        mean_score=mean_score.tolist(),
        observed_rate=observed.tolist(),
        bin_weight=bin_weight.tolist(),
        histogram_edges=edges.tolist(),
        histogram_negative=in_negative.tolist(),
        histogram_positive=in_positive.tolist(),
    )


def _thin(position: FloatArray) -> IntArray:
    """Indices of at most `_POINTS` points spread evenly along an ascending position, both ends included."""
    if len(position) <= _POINTS:
        return np.arange(len(position))
    targets = np.linspace(position[0], position[-1], _POINTS)
    return np.unique(np.concatenate(([0], np.searchsorted(position, targets), [len(position) - 1])))


def _calibration(
    score: FloatArray, label: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bins of about equal weight over rows sorted by score; equal scores never fall into two bins."""
    middle = np.cumsum(weight) - 0.5 * weight
    place = np.minimum((middle / weight.sum() * _CALIBRATION_BINS).astype(np.int64), _CALIBRATION_BINS - 1)
    first_of_tie = np.searchsorted(score, score, side="left")
    place = place[first_of_tie]
    total = sum_by_code(weight, place, _CALIBRATION_BINS)
    used = total > 0
    mean_score = sum_by_code(weight * score, place, _CALIBRATION_BINS)[used] / total[used]
    observed = sum_by_code(weight * label, place, _CALIBRATION_BINS)[used] / total[used]
    return mean_score, observed, total[used]


def _histograms(rows: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
    low, high = float(rows.score.min()), float(rows.score.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _HISTOGRAM_BINS + 1)

    def share(weight: FloatArray) -> FloatArray:
        counts, _ = np.histogram(rows.score, edges, weights=weight)
        return np.asarray(counts / weight.sum())

    return edges, share(rows.weight * (1 - rows.label)), share(rows.weight * rows.label)
