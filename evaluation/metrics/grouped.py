"""Metrics computed within each user (or session) and averaged over them, without a loop over users."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from evaluation.arrays import (
    ArrayLike,
    BoolArray,
    FloatArray,
    IntArray,
    codes,
    same_length,
    sort_within,
    sum_by_code,
)
from evaluation.errors import MetricError, did_you_mean
from evaluation.metrics.pointwise import log_losses
from evaluation.metrics.rows import Rows, binary_rows
from evaluation.metrics.statistic import GroupMeanStatistic, ratio

GroupWeighting: TypeAlias = Literal["count", "positives", "uniform"]


@dataclass(frozen=True)
class GroupedAUC:
    """AUC within each group.

    Attributes:
        auc: float64 [groups]; nan where a group has rows of one class only.
        group_weight: float64 [groups]; how much each group counts in the mean, 0 where `auc` is nan.
        n_skipped: Number of groups left out because they have one class only.
    """

    auc: FloatArray
    group_weight: FloatArray
    n_skipped: int

    @property
    def n_groups(self) -> int:
        """Number of groups, those left out included."""
        return len(self.auc)

    @property
    def value(self) -> float:
        """The weighted mean over groups with both classes; nan if there is none."""
        total = float(self.group_weight.sum())
        return float(np.nansum(self.auc * self.group_weight)) / total if total else math.nan


def gauc(
    label: ArrayLike,
    score: ArrayLike,
    group: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    weighting: GroupWeighting = "count",
) -> float:
    """AUC within each user, averaged over users that have both a positive and a negative row.

    Zhou et al., "Deep Interest Network", KDD 2018, equation 7 (weighting "count").

    Args:
        label: 0 or 1 [n].
        score: Any finite scores [n].
        group: The user of each row [n]: numbers, text, anything hashable.
        weight: Row weights [n].
        weighting: What a user counts: "count" its (weighted) number of rows, "positives" its (weighted) number of
            positive rows, "uniform" one.

    Returns:
        In [0, 1]; nan if no user has both classes.

    Raises:
        DataError: See `rows.binary_rows`; also a missing group or another length.
        MetricError: Unknown weighting.
    """
    return grouped_auc(label, score, group, weight, weighting=weighting).value


def grouped_auc(
    label: ArrayLike,
    score: ArrayLike,
    group: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    weighting: GroupWeighting = "count",
) -> GroupedAUC:
    """The AUC of each user, what `gauc` averages; arguments and errors as there.

    Args:
        label: 0 or 1 [n].
        score: Any finite scores [n].
        group: The user of each row [n].
        weight: Row weights [n].
        weighting: What a user counts.

    Returns:
        One entry per distinct user, in order of first appearance.
    """
    rows = binary_rows(label, score, weight)
    numbers, n_groups = codes(group, "group")
    same_length(len(rows.label), numbers, "group")
    return auc_by_code(rows, numbers, n_groups, weighting)


def auc_by_code(
    rows: Rows, group: IntArray, n_groups: int, weighting: GroupWeighting = "count"
) -> GroupedAUC:
    """`grouped_auc` for checked rows and groups numbered from 0.

    Args:
        rows: Checked binary rows [n].
        group: Group of each row, 0 to n_groups - 1 [n].
        n_groups: Number of groups; one without rows counts as skipped.
        weighting: What a group counts.

    Returns:
        One entry per group.

    Raises:
        MetricError: Unknown weighting.
    """
    if weighting not in get_args(GroupWeighting):
        raise MetricError(
            f"Unknown weighting {weighting!r}; {did_you_mean(weighting, get_args(GroupWeighting))}"
        )
    positive = rows.weight * rows.label
    negative = rows.weight - positive
    positives = sum_by_code(positive, group, n_groups)
    negatives = sum_by_code(negative, group, n_groups)
    wins = _pairs_won(rows, group, n_groups, positive, negative)
    both: BoolArray = (positives > 0) & (negatives > 0)
    auc = np.where(both, ratio(wins, positives * negatives), np.nan)
    by_name = {"count": positives + negatives, "positives": positives, "uniform": np.ones(n_groups)}
    return GroupedAUC(auc, np.where(both, by_name[weighting], 0.0), int(n_groups - both.sum()))


def _pairs_won(
    rows: Rows, group: IntArray, n_groups: int, positive: FloatArray, negative: FloatArray
) -> FloatArray:
    """Weight of the pairs (positive above negative, ties half) within each group, [n_groups]."""
    order = sort_within(group, n_groups, np.argsort(rows.score))
    user, score = group[order], rows.score[order]
    new_user = user[1:] != user[:-1]
    starts = np.concatenate(([0], np.flatnonzero(new_user | (score[1:] != score[:-1])) + 1))
    step_positive = np.add.reduceat(positive[order], starts)
    step_negative = np.add.reduceat(negative[order], starts)
    step_user = user[starts]
    # Negatives below a step, within its user: the running sum over everything less the sum before this user.
    running = np.cumsum(step_negative)
    first = np.concatenate(([True], step_user[1:] != step_user[:-1]))
    before_user = (running - step_negative)[first][np.cumsum(first) - 1]
    below = running - before_user - 0.5 * step_negative
    return sum_by_code(step_positive * below, step_user, n_groups)


def grouped_log_loss(
    label: ArrayLike, score: ArrayLike, group: ArrayLike, weight: ArrayLike | None = None
) -> float:
    """Log-loss within each user, averaged over users: one with many rows counts no more than another.

    Args:
        label: 0 or 1 [n].
        score: Probabilities of label 1 [n].
        group: The user of each row [n].
        weight: Row weights [n].

    Returns:
        In [0, inf), nats; users whose rows all weigh 0 do not count.

    Raises:
        DataError: See `rows.binary_rows`; also scores that are no probabilities, a missing group or another length.
    """
    rows = binary_rows(label, score, weight, probability=True)
    numbers, n_groups = codes(group, "group")
    same_length(len(rows.label), numbers, "group")
    return GROUPED_LOG_LOSS.value(rows, numbers, n_groups)


def gauc_statistic(weighting: GroupWeighting = "count") -> GroupMeanStatistic:
    """The statistic behind `gauc` for a weighting: the AUC of a user does not change, only how often it counts."""

    def per_group(rows: Rows, group: IntArray, n_groups: int) -> tuple[FloatArray, FloatArray]:
        result = auc_by_code(rows, group, n_groups, weighting)
        return result.auc, result.group_weight

    return GroupMeanStatistic(per_group)


def _log_loss_of_groups(rows: Rows, group: IntArray, n_groups: int) -> tuple[FloatArray, FloatArray]:
    weight = sum_by_code(rows.weight, group, n_groups)
    loss = ratio(sum_by_code(rows.weight * log_losses(rows), group, n_groups), weight)
    return loss, (weight > 0).astype(np.float64)


GROUPED_LOG_LOSS = GroupMeanStatistic(_log_loss_of_groups)
