"""XAUC: how often two rows are ordered by their scores as by their labels; AUC for labels that are numbers."""

import numpy as np

from evaluation.arrays import ArrayLike, FloatArray, IntArray, sum_by_code
from evaluation.metrics.rows import Rows, regression_rows
from evaluation.metrics.statistic import Resampler, ratio


def xauc(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Share of the pairs of rows with different labels that their scores order alike, ties of scores counted half.

    Zhan et al., "Deconfounding Duration Bias in Watch-time Prediction for Video Recommendation", KDD 2022, section
    5.1.3. For labels 0 and 1 it is the AUC. A pair counts the product of its rows' weights.

    Args:
        label: Finite values [n].
        score: Predictions [n].
        weight: Row weights [n].

    Returns:
        In [0, 1]; nan if all weighted labels are equal.

    Raises:
        DataError: See `rows.regression_rows`.
    """
    return xauc_value(regression_rows(label, score, weight))


def xauc_value(rows: Rows) -> float:
    """`xauc` of checked rows."""
    won, pairs = pairs_of_rows(rows)
    return float(ratio(np.asarray(rows.weight @ won), np.asarray(rows.weight @ pairs)))


def pairs_of_rows(rows: Rows) -> tuple[FloatArray, FloatArray]:
    """What each row's partners weigh in time O(n log² n): no pair is looked at singly.

    Args:
        rows: Checked rows [n].

    Returns:
        (weight of the partners with another label that the row is ordered right with, ties half; weight of all
        partners with another label), each float64 [n].
    """
    # Sorted by label and, within a label, by falling score: rows of one label are then pairs "ordered wrong" or
    # tied, and only the tied ones have to be taken out again.
    order = np.lexsort((-rows.score, rows.label))
    score, label, weight = rows.score[order], rows.label[order], rows.weight[order]
    rank = np.unique(score, return_inverse=True)[1].astype(np.int64)
    ordered = _ordered_weight(rank, weight)
    same = np.cumsum(np.concatenate(([True], label[1:] != label[:-1]))) - 1
    tied = np.cumsum(np.concatenate(([True], (label[1:] != label[:-1]) | (score[1:] != score[:-1])))) - 1
    ordered -= 0.5 * (sum_by_code(weight, tied, int(tied[-1]) + 1)[tied] - weight)
    pairs = weight.sum() - sum_by_code(weight, same, int(same[-1]) + 1)[same]
    won, total = np.empty(len(order)), np.empty(len(order))
    won[order], total[order] = np.maximum(ordered, 0.0), np.maximum(pairs, 0.0)
    return won, total


def _ordered_weight(rank: IntArray, weight: FloatArray) -> FloatArray:
    """For each position, the weight of earlier positions of lower rank and later ones of higher, equal ones half.

    Bottom-up merging: at each level neighbouring blocks are compared with one sort of all positions.
    """
    n = len(rank)
    total = np.zeros(n)
    position = np.arange(n, dtype=np.int64)
    width = 1
    while width < n:
        block = position // (2 * width)
        is_left = (position // width) % 2 == 0
        order = np.argsort(block * (n + 1) + rank, kind="stable")
        key_block, key_rank = block[order], rank[order]
        left = np.where(is_left, weight, 0.0)[order]
        right = np.where(is_left, 0.0, weight)[order]
        total[order] += np.where(
            is_left[order],
            _above(right, key_block, key_rank),
            _below(left, key_block, key_rank),
        )
        width *= 2
    return total


def _below(values: FloatArray, block: IntArray, rank: IntArray) -> FloatArray:
    """For positions sorted by block and rank: the values of lower rank in the block, those of equal rank half."""
    running = np.concatenate(([0.0], np.cumsum(values)))
    new_block = np.concatenate(([True], block[1:] != block[:-1]))
    new_step = new_block | np.concatenate(([True], rank[1:] != rank[:-1]))
    starts = np.flatnonzero(new_step)
    ends = np.concatenate((starts[1:], [len(values)]))
    step = np.cumsum(new_step) - 1
    before_block = running[np.flatnonzero(new_block)][np.cumsum(new_block) - 1]
    result: FloatArray = 0.5 * (running[starts] + running[ends])[step] - before_block
    return result


def _above(values: FloatArray, block: IntArray, rank: IntArray) -> FloatArray:
    """As `_below`, of higher rank."""
    return _below(values[::-1], block[::-1], rank[::-1])[::-1]


class XAUCStatistic:
    """XAUC of resampled users, to first order.

    The exact value of a resample needs all pairs again. Its numerator and denominator are linear in what one row
    counts, so their first-order expansion around the data (Hájek's projection) costs two sums a user.
    """

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        won, pairs = pairs_of_rows(rows)
        won_by = sum_by_code(rows.weight * won, group, n_groups)
        pairs_by = sum_by_code(rows.weight * pairs, group, n_groups)

        def draw(weight: FloatArray) -> FloatArray:
            # A sum over rows counts each pair twice: S / 2 on the data, and S is its derivative by what rows count.
            change = 2 * weight - 1
            return np.clip(ratio(won_by @ change, pairs_by @ change), 0.0, 1.0)

        return draw


XAUC = XAUCStatistic()
