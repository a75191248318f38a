"""Decisions at a threshold: counts of the confusion matrix, and the threshold that serves F1 best."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evaluation.arrays import ArrayLike, FloatArray, IntArray, sum_by_code
from evaluation.metrics.decisions import DEFAULT_THRESHOLD
from evaluation.metrics.ordering import Steps, step_weights, steps_of
from evaluation.metrics.rows import Rows, binary_rows, multiclass_rows
from evaluation.metrics.statistic import Resampler, ratio


@dataclass(frozen=True)
class Decisions:
    """What comes of predicting "positive" where score >= threshold. Counts are sums of row weights.

    Attributes:
        threshold: The threshold.
        true_positives: Positive rows predicted positive.
        false_positives: Negative rows predicted positive.
        false_negatives: Positive rows predicted negative.
        true_negatives: Negative rows predicted negative.
    """

    threshold: float
    true_positives: float
    false_positives: float
    false_negatives: float
    true_negatives: float

    @property
    def accuracy(self) -> float:
        """Share of rows decided right."""
        right = self.true_positives + self.true_negatives
        return _share(right, right + self.false_positives + self.false_negatives)

    @property
    def precision(self) -> float:
        """Share of positives among those predicted positive; nan if none is."""
        return _share(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float:
        """Share of the positives that are predicted so; nan if there are none."""
        return _share(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; nan if nothing is positive and nothing predicted so."""
        return _share(
            2 * self.true_positives, 2 * self.true_positives + self.false_positives + self.false_negatives
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form: threshold, the four counts, and accuracy, precision, recall, f1 (None if undefined)."""
        rates = {name: getattr(self, name) for name in ("accuracy", "precision", "recall", "f1")}
        return {
            **asdict(self),
            **{name: value if math.isfinite(value) else None for name, value in rates.items()},
        }


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan


def decide(
    label: ArrayLike,
    score: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
) -> Decisions:
    """The confusion counts at a threshold.

    Args:
        label: 0 or 1 [n].
        score: Scores [n].
        weight: Row weights [n].
        threshold: A row counts as predicted positive at score >= threshold.

    Returns:
        The counts and what follows from them.

    Raises:
        DataError: See `rows.binary_rows`.
    """
    return decisions_of(binary_rows(label, score, weight), threshold)


def decisions_of(rows: Rows, threshold: float = DEFAULT_THRESHOLD) -> Decisions:
    """`decide` for checked rows."""
    cell = 2 * (rows.score >= threshold).astype(np.int64) + rows.label.astype(np.int64)
    below_negative, below_positive, above_negative, above_positive = sum_by_code(
        rows.weight, cell, 4
    ).tolist()
    return Decisions(threshold, above_positive, above_negative, below_positive, below_negative)


def best_decisions(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> Decisions:
    """The decisions at the threshold with the highest F1; the highest such threshold among equals.

    The threshold is chosen on the rows it is judged on, so its F1 is a little flattering.

    Args:
        label: 0 or 1 [n].
        score: Scores [n].
        weight: Row weights [n].

    Returns:
        The decisions; at a threshold above every score if there is no positive.

    Raises:
        DataError: See `rows.binary_rows`.
    """
    return best_decisions_of(binary_rows(label, score, weight))


def best_decisions_of(rows: Rows) -> Decisions:
    """`best_decisions` for checked rows."""
    positive, negative = (side[::-1] for side in step_weights(rows))
    total = positive.sum()
    if total == 0:
        return decisions_of(rows, float(np.nextafter(rows.score.max(), np.inf)))
    hits, misses = np.cumsum(positive), np.cumsum(negative)
    best = int(np.argmax(2 * hits / (hits + misses + total)))
    order, starts = steps_of(rows.score)
    threshold = float(rows.score[order][starts][::-1][best])
    return Decisions(
        threshold,
        float(hits[best]),
        float(misses[best]),
        float(total - hits[best]),
        float(negative.sum() - misses[best]),
    )


def best_f1(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """F1 at the threshold where it is highest.

    Args:
        label: 0 or 1 [n].
        score: Scores [n].
        weight: Row weights [n].

    Returns:
        In [0, 1]; nan if there is no positive.

    Raises:
        DataError: See `rows.binary_rows`.
    """
    rows = binary_rows(label, score, weight)
    return best_decisions_of(rows).f1 if (rows.weight * rows.label).any() else math.nan


def confusion_matrix(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
    """Weight of rows by true class (row) and predicted class (column) of a multi-class task.

    Args:
        label: Class numbers [n].
        score: One score per class [n, classes]; the class of the highest score is predicted.
        weight: Row weights [n].

    Returns:
        float64 [classes, classes].

    Raises:
        DataError: See `rows.multiclass_rows`.
    """
    rows = multiclass_rows(label, score, weight)
    classes = rows.score.shape[1]
    cell: IntArray = rows.label.astype(np.int64) * classes + np.argmax(rows.score, axis=1)
    return sum_by_code(rows.weight, cell, classes * classes).reshape(classes, classes)


class BestF1Statistic:
    """The highest F1 of resampled users, with the threshold chosen anew in each resample."""

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        steps = Steps.of(Rows(rows.label, -rows.score, rows.weight), group, n_groups, merge_positive=False)
        positive_by_group = sum_by_code(rows.weight * rows.label, group, n_groups)

        def draw(weight: FloatArray) -> FloatArray:
            total = positive_by_group @ weight
            hits, selected, best = (np.zeros(weight.shape[1]) for _ in range(3))
            for positive, negative in steps.blocks(weight):
                found = np.cumsum(positive, axis=0) + hits
                taken = np.cumsum(positive + negative, axis=0) + selected
                best = np.maximum(
                    best, (2 * found / np.maximum(taken + total, np.finfo(float).tiny)).max(axis=0)
                )
                hits, selected = found[-1], taken[-1]
            return np.where(total > 0, best, np.nan)

        return draw


class MacroF1Statistic:
    """The mean over classes of F1, from each class's hits, predictions and rows."""

    def value(self, rows: Rows) -> float:
        """The metric of all rows."""
        return float(self.finish(self.sums(rows, np.zeros(len(rows.label), np.int64), 1))[0])

    def sums(self, rows: Rows, group: IntArray, n_groups: int) -> FloatArray:
        """See `AdditiveStatistic.sums`; for C classes [groups, 3 C]."""
        classes = rows.score.shape[1]
        truth, predicted = rows.label.astype(np.int64), np.argmax(rows.score, axis=1)
        size = n_groups * classes
        parts = (
            sum_by_code(rows.weight * (truth == predicted), group * classes + truth, size),
            sum_by_code(rows.weight, group * classes + predicted, size),
            sum_by_code(rows.weight, group * classes + truth, size),
        )
        return np.concatenate([part.reshape(n_groups, classes) for part in parts], axis=1)

    def finish(self, sums: FloatArray) -> FloatArray:
        """See `AdditiveStatistic.finish`."""
        hits, predicted, rows = np.moveaxis(sums.reshape(*sums.shape[:-1], 3, -1), -2, 0)
        by_class = ratio(2 * hits, predicted + rows)
        defined = ~np.isnan(by_class)
        return ratio(np.nansum(by_class, axis=-1), defined.sum(axis=-1).astype(np.float64))

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        sums = self.sums(rows, group, n_groups)
        return lambda weight: self.finish(weight.T @ sums)


def macro_f1(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """The unweighted mean over classes of F1; classes that neither occur nor are predicted are left out.

    Args:
        label: Class numbers [n].
        score: One score per class [n, classes].
        weight: Row weights [n].

    Returns:
        In [0, 1].

    Raises:
        DataError: See `rows.multiclass_rows`.
    """
    return MACRO_F1.value(multiclass_rows(label, score, weight))


BEST_F1 = BestF1Statistic()
MACRO_F1 = MacroF1Statistic()
