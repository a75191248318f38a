"""AUC, average precision and the best F1 of rows too many to sort at once: a scan over blocks of scores, ascending.

Rows of one range of scores are sorted together; what lies below is carried as sums. The same scan gives what each unit
(a random group of users) contributes, so that intervals come from the first-order expansion of the metric in how often
each unit is drawn (the infinitesimal jackknife; for the AUC it is DeLong's, Biometrics 1988, clustered).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from evaluation.arrays import AnyFloatArray, FloatArray, IntArray, sum_by_code
from evaluation.compact import MAX_UNITS, CompactRows
from evaluation.metrics.ordering import steps_of
from evaluation.metrics.statistic import ratio

_BLOCK_ROWS = 1 << 22
_SAMPLE_ROWS = 1 << 20


@dataclass
class OrderScan:
    """What a scan over ascending scores finds.

    Attributes:
        positives: Weight of positive rows of each unit.
        negatives: Weight of negative rows of each unit.
        pairs: For each unit, the weight of the pairs that its rows win, as positives and as negatives.
        precision: For each unit, the derivative of (average precision * all positives).
        area: Weight of all pairs won.
        precision_sum: Average precision * all positives.
        best_f1: The highest F1.
        best_threshold: Its threshold, the highest among equals.
    """

    positives: FloatArray
    negatives: FloatArray
    pairs: FloatArray = field(default_factory=lambda: np.zeros(MAX_UNITS))
    precision: FloatArray = field(default_factory=lambda: np.zeros(MAX_UNITS))
    area: float = 0.0
    precision_sum: float = 0.0
    best_f1: float = -1.0
    best_threshold: float = float("nan")

    @property
    def auc(self) -> float:
        """The AUC; nan if one class has no weight."""
        return float(ratio(np.asarray(self.area), self.positives.sum() * self.negatives.sum()))

    @property
    def average_precision(self) -> float:
        """The average precision; nan without a positive."""
        return float(ratio(np.asarray(self.precision_sum), self.positives.sum()))

    def auc_draws(self, weight: FloatArray) -> FloatArray:
        """The AUC [resamples] for weights of the units [units, resamples], to first order."""
        won = self.pairs @ weight - self.area
        return np.clip(ratio(won, (self.positives @ weight) * (self.negatives @ weight)), 0.0, 1.0)

    def average_precision_draws(self, weight: FloatArray) -> FloatArray:
        """The average precision [resamples], to first order."""
        found = self.precision_sum + self.precision @ (weight - 1)
        return np.clip(ratio(found, self.positives @ weight), 0.0, 1.0)


def scan_scores(rows: CompactRows, positives: FloatArray, negatives: FloatArray) -> OrderScan:
    """Scan a binary task.

    Args:
        rows: The rows.
        positives: Weight of positive rows of each unit [MAX_UNITS].
        negatives: Weight of negative rows of each unit [MAX_UNITS].

    Returns:
        What was found. Memory beyond the rows is bounded by the block size, however many scores are tied.
    """
    scan = OrderScan(positives, negatives)
    carried = _Carried(float(positives.sum()), float(negatives.sum()))
    for low, high, is_tied in _ranges(rows.score):
        if is_tied:
            _scan_tied(scan, carried, rows, low)
        between = rows.score > low if is_tied else rows.score >= low
        at = np.flatnonzero(between & (rows.score < high))
        if len(at):
            _scan_range(scan, carried, rows, at)
    return scan


@dataclass
class _Carried:
    """Sums over the rows below the current range, and over all."""

    all_positive: float
    all_negative: float
    positive: float = 0.0
    negative: float = 0.0
    per_taken: float = 0.0  # over positives below: weight / rows at or above
    per_taken_squared: float = (
        0.0  # over positives below: weight * positives at or above / (rows at or above)^2
    )


def _ranges(score: AnyFloatArray) -> Iterator[tuple[float, float, bool]]:
    """(low, high, whether very many rows score exactly low) of ascending ranges of about `_BLOCK_ROWS` rows."""
    n = len(score)
    sample = score[:: max(1, n // _SAMPLE_ROWS)]
    n_ranges = max(1, -(-n // _BLOCK_ROWS))
    quantiles = np.quantile(sample, np.linspace(0, 1, n_ranges + 1)[1:-1], method="lower")
    edges, counts = np.unique(quantiles, return_counts=True)
    bounds = [-np.inf, *edges.tolist(), np.inf]
    yield from zip(bounds[:-1], bounds[1:], [False, *(counts > 1).tolist()], strict=True)


def _scan_range(scan: OrderScan, carried: _Carried, rows: CompactRows, at: IntArray) -> None:
    """Add the rows of one range, sorted."""
    part, unit = rows.rows(at), rows.units(at)
    order, starts = steps_of(part.score)
    step = np.empty(len(order), dtype=np.int64)
    step[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    won = part.weight * part.label
    lost = part.weight - won
    positive, negative = (sum_by_code(side, step, len(starts)) for side in (won, lost))

    def by_unit(of_positive: FloatArray, of_negative: FloatArray) -> FloatArray:
        return sum_by_code(won * of_positive[step] + lost * of_negative[step], unit, MAX_UNITS)

    _add_steps(scan, carried, part.score[order][starts].astype(np.float64), (positive, negative), by_unit)


def _scan_tied(scan: OrderScan, carried: _Carried, rows: CompactRows, score: float) -> None:
    """Add all rows of one score, block by block: they are one step, and need no sorting."""
    won, lost = np.zeros(MAX_UNITS), np.zeros(MAX_UNITS)
    for block in rows.blocks():
        at = np.flatnonzero(rows.score[block] == score) + block.start
        part, unit = rows.rows(at), rows.units(at)
        won += sum_by_code(part.weight * part.label, unit, MAX_UNITS)
        lost += sum_by_code(part.weight * (1 - part.label), unit, MAX_UNITS)
    sides = (np.array([won.sum()]), np.array([lost.sum()]))
    _add_steps(
        scan,
        carried,
        np.array([score]),
        sides,
        lambda of_positive, of_negative: won * of_positive[0] + lost * of_negative[0],
    )


def _add_steps(
    scan: OrderScan,
    carried: _Carried,
    score: FloatArray,
    sides: tuple[FloatArray, FloatArray],
    by_unit: Callable[[FloatArray, FloatArray], FloatArray],
) -> None:
    """Add ascending steps of tied scores.

    Args:
        scan: What was found so far.
        carried: Sums over what is below.
        score: The score of each step [steps].
        sides: Positive and negative weight of each step [steps].
        by_unit: Sums over the rows of each unit what a positive and what a negative row of each step [steps] is worth,
            times its weight.
    """
    positive, negative = sides
    positive_below = carried.positive + np.cumsum(positive) - positive
    negative_below = carried.negative + np.cumsum(negative) - negative
    beaten = negative_below + 0.5 * negative
    scan.area += float(positive @ beaten)
    scan.pairs += by_unit(beaten, carried.all_positive - positive_below - 0.5 * positive)
    found = carried.all_positive - positive_below
    taken = found + carried.all_negative - negative_below
    precision = np.nan_to_num(ratio(found, taken))
    scan.precision_sum += float(positive @ precision)
    # A row has a part in the precision of every positive at or below it.
    per_taken = carried.per_taken + np.cumsum(np.nan_to_num(ratio(positive, taken)))
    squared = carried.per_taken_squared + np.cumsum(np.nan_to_num(ratio(positive * found, taken**2)))
    scan.precision += by_unit(precision + per_taken - squared, -squared)
    f1 = np.nan_to_num(ratio(2 * found, taken + carried.all_positive))
    best = len(f1) - 1 - int(np.argmax(f1[::-1]))
    if f1[best] >= scan.best_f1:
        scan.best_f1, scan.best_threshold = float(f1[best]), float(score[best])
    carried.positive += float(positive.sum())
    carried.negative += float(negative.sum())
    carried.per_taken, carried.per_taken_squared = float(per_taken[-1]), float(squared[-1])
