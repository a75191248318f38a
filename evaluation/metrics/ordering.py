"""Metrics of the order of scores: AUC and average precision (PR-AUC), exact with ties and weights.

Rows are sorted once and tied scores form one step. For resamples, the positive and the negative weight of each
step is a sparse matrix [steps, users], so a block of resamples is a sparse product followed by a running sum.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evaluation.arrays import AnyFloatArray, BoolArray, FloatArray, IntArray, SparseRows
from evaluation.metrics.rows import Rows
from evaluation.metrics.statistic import Resampler, ratio

_BLOCK_ELEMENTS = 1 << 17  # steps * resamples held at once: small enough to stay in the processor's cache


def steps_of(score: AnyFloatArray) -> tuple[IntArray, IntArray]:
    """Sort rows by score and find where it changes.

    Args:
        score: Finite scores [n].

    Returns:
        (order int64 [n] from the lowest score, first positions of each run of tied scores int64 [steps]).
    """
    order = np.argsort(score, kind="stable")
    ascending = score[order]
    changes = np.flatnonzero(ascending[1:] != ascending[:-1]) + 1
    return order, np.concatenate(([0], changes))


def step_weights(rows: Rows) -> tuple[FloatArray, FloatArray]:
    """Positive and negative weight of each distinct score, from the lowest score: two float64 [steps]."""
    order, starts = steps_of(rows.score)
    weight = rows.weight[order]
    positive = np.add.reduceat(weight * rows.label[order], starts)
    return positive, np.add.reduceat(weight * (1 - rows.label[order]), starts)


def auc_value(rows: Rows) -> float:
    """Area under the ROC curve; nan if only one class has weight."""
    positive, negative = step_weights(rows)
    below = np.cumsum(negative) - 0.5 * negative
    return float(ratio(positive @ below, positive.sum() * negative.sum()))


def average_precision_value(rows: Rows) -> float:
    """Average precision; nan if no positive row has weight."""
    positive, negative = step_weights(rows)
    positive, negative = positive[::-1], negative[::-1]
    found = np.cumsum(positive)
    selected = found + np.cumsum(negative)
    precision = found / np.where(selected > 0, selected, 1.0)
    return float(ratio(positive @ precision, positive.sum()))


class AUCStatistic:
    """AUC of resampled users."""

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        steps = Steps.of(rows, group, n_groups, merge_positive=True)

        def draw(weight: FloatArray) -> FloatArray:
            below = np.zeros(weight.shape[1])
            area = np.zeros(weight.shape[1])
            total = np.zeros(weight.shape[1])
            for positive, negative in steps.blocks(weight):
                running = np.cumsum(negative, axis=0)
                area += np.einsum("sr,sr->r", positive, running - 0.5 * negative + below)
                below += running[-1]
                total += positive.sum(axis=0)
            return ratio(area, total * below)

        return draw


class AveragePrecisionStatistic:
    """Average precision of resampled users."""

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        descending = Rows(rows.label, -rows.score, rows.weight)
        steps = Steps.of(descending, group, n_groups, merge_positive=False)

        def draw(weight: FloatArray) -> FloatArray:
            found = np.zeros(weight.shape[1])
            selected = np.zeros(weight.shape[1])
            area = np.zeros(weight.shape[1])
            for positive, negative in steps.blocks(weight):
                hits = np.cumsum(positive, axis=0) + found
                taken = np.cumsum(positive + negative, axis=0) + selected
                area += np.einsum("sr,sr->r", positive, hits / np.where(taken > 0, taken, 1.0))
                found, selected = hits[-1], taken[-1]
            return ratio(area, found)

        return draw


@dataclass(frozen=True)
class Steps:
    """Weight of each step and user, steps in the order of the scan.

    Attributes:
        positive: CSR [steps, users], weights of rows with label 1.
        negative: CSR [steps, users], weights of rows with label 0.
    """

    positive: SparseRows
    negative: SparseRows

    @classmethod
    def of(cls, rows: Rows, group: IntArray, n_groups: int, *, merge_positive: bool) -> "Steps":
        """Sort, join neighbouring steps of one class where that changes nothing, and lay out by user."""
        from scipy import sparse  # slow to import, and only intervals need it

        order, starts = steps_of(rows.score)
        is_positive = rows.label[order] == 1
        starts = starts[~_mergeable(is_positive, starts, merge_positive=merge_positive)]
        step = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        weight, user = rows.weight[order], group[order]

        def side(mask: BoolArray) -> SparseRows:
            entries = (weight[mask], (step[mask], user[mask]))
            return sparse.csr_array(sparse.coo_array(entries, shape=(len(starts), n_groups)))

        return cls(side(is_positive), side(~is_positive))

    def blocks(self, weight: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Positive and negative weight of a block of steps under each resample: two [steps, resamples]."""
        n_steps = int(self.positive.shape[0])
        size = max(1, _BLOCK_ELEMENTS // weight.shape[1])
        for start in range(0, n_steps, size):
            block = slice(start, min(start + size, n_steps))
            yield self.positive[block] @ weight, self.negative[block] @ weight


def _mergeable(is_positive: BoolArray, starts: IntArray, *, merge_positive: bool) -> BoolArray:
    # A step with only negatives adds no area of its own, so neighbours of that kind count as one; the same holds
    # for steps with only positives under the ROC curve. Fewer steps, the same number.
    share = np.add.reduceat(is_positive.astype(np.float64), starts) / np.diff(starts, append=len(is_positive))
    only_negative = share == 0
    joined = only_negative[1:] & only_negative[:-1]
    if merge_positive:
        joined |= (share[1:] == 1) & (share[:-1] == 1)
    return np.concatenate(([False], joined))
