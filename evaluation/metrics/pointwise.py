"""Metrics of single scores: their order (AUC, PR-AUC) and their meaning as probabilities.

Every metric is exact, weighted and computed in float64, and refuses missing values by row. Binary metrics take
labels 0/1 and scores [n]; a metric that has a multi-class form takes it when scores are [n, classes]. A result
is nan only in the cases its docstring names. With one exception (`ece`) they agree with scikit-learn.
"""

from collections.abc import Iterator

import numpy as np

from evaluation.arrays import AnyFloatArray, ArrayLike, FloatArray, IntArray
from evaluation.errors import MetricError
from evaluation.metrics.ordering import (
    AUCStatistic,
    AveragePrecisionStatistic,
    auc_value,
    average_precision_value,
)
from evaluation.metrics.regression import error
from evaluation.metrics.rows import Rows, binary_rows, is_multiclass, multiclass_rows
from evaluation.metrics.statistic import BinnedStatistic, Resampler, SumStatistic, mean_of, ratio

DEFAULT_BINS = 15  # Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, section 4


# --- order of scores ---------------------------------------------------------------------------------------


def auc(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counted half.

    Args:
        label: 0 or 1 [n], or class numbers for the multi-class form.
        score: Any finite scores [n], or [n, classes]: then the unweighted mean over the classes that occur of
            each class against the rest (the "macro one-vs-rest" AUC).
        weight: Row weights [n].

    Returns:
        In [0, 1]; nan if all weighted labels are of one class.

    Raises:
        DataError: See `rows.binary_rows` and `rows.multiclass_rows`.
    """
    if not is_multiclass(score):
        return auc_value(binary_rows(label, score, weight))
    values = [auc_value(rows) for rows in _one_against_rest(multiclass_rows(label, score, weight))]
    return _mean_of_defined(np.array(values))


def pr_auc(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Area under the precision-recall curve as average precision (a step sum, no interpolation).

    Args:
        label: 0 or 1 [n].
        score: Any finite scores [n].
        weight: Row weights [n].

    Returns:
        In [0, 1]; a random ranking gets the share of positives. nan if there is no positive.

    Raises:
        DataError: See `rows.binary_rows`.
    """
    return average_precision_value(binary_rows(label, score, weight))


def _one_against_rest(rows: Rows) -> Iterator[Rows]:
    for number in range(rows.score.shape[1]):
        yield Rows((rows.label == number).astype(np.float64), rows.score[:, number], rows.weight)


def _mean_of_defined(values: FloatArray) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


class _MultiAUCStatistic:
    """AUC, or its macro one-vs-rest mean when there is a score per class."""

    def resampler(self, rows: Rows, group: IntArray, n_groups: int) -> Resampler:
        """See `Statistic.resampler`."""
        if not is_multiclass(rows.score):
            return AUCStatistic().resampler(rows, group, n_groups)
        draws = [AUCStatistic().resampler(part, group, n_groups) for part in _one_against_rest(rows)]

        def draw(weight: FloatArray) -> FloatArray:
            values = np.stack([one(weight) for one in draws])
            return ratio(np.nansum(values, axis=0), np.sum(~np.isnan(values), axis=0).astype(np.float64))

        return draw


# --- probabilities -----------------------------------------------------------------------------------------


def log_loss(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean negative log-likelihood in nats.

    Probabilities are kept one rounding step of their own type (float32 or float64) away from 0 and 1, as
    scikit-learn does, so a confident mistake costs much but not infinitely much.

    Args:
        label: 0 or 1 [n], or class numbers.
        score: Probabilities of label 1 [n], or of each class [n, classes].
        weight: Row weights [n].

    Returns:
        In [0, inf).

    Raises:
        DataError: See `rows.binary_rows` and `rows.multiclass_rows`; also if scores are no probabilities.
    """
    if is_multiclass(score):
        return LOG_LOSS.value(multiclass_rows(label, score, weight, probability=True))
    return LOG_LOSS.value(binary_rows(label, score, weight, probability=True))


def normalized_entropy(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Log-loss divided by the log-loss of always predicting the share of positives.

    Below 1 is better than knowing the average only. He et al., "Practical Lessons from Predicting Clicks on
    Ads at Facebook", ADKDD 2014, equation 1.

    Args:
        label: 0 or 1 [n].
        score: Probabilities of label 1 [n].
        weight: Row weights [n].

    Returns:
        In [0, inf); nan if all labels are of one class.

    Raises:
        DataError: See `rows.binary_rows`; also if scores are no probabilities.
    """
    return NORMALIZED_ENTROPY.value(binary_rows(label, score, weight, probability=True))


def brier(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean squared difference of probability and label (Brier, Monthly Weather Review, 1950).

    Args:
        label: 0 or 1 [n].
        score: Probabilities of label 1 [n].
        weight: Row weights [n].

    Returns:
        In [0, 1].

    Raises:
        DataError: See `rows.binary_rows`; also if scores are no probabilities.
    """
    return BRIER.value(binary_rows(label, score, weight, probability=True))


def ece(
    label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None, *, bins: int = DEFAULT_BINS
) -> float:
    """Expected calibration error over bins of equal width.

    The mean over bins of the absolute gap between mean probability and share of positives, by the weight in
    each bin (Guo et al., ICML 2017, equation 3). It has a small upward bias, larger with few rows.

    Args:
        label: 0 or 1 [n].
        score: Probabilities of label 1 [n].
        weight: Row weights [n].
        bins: Number of equal-width bins of [0, 1]; the last one includes 1.

    Returns:
        In [0, 1].

    Raises:
        DataError: See `rows.binary_rows`; also if scores are no probabilities.
        MetricError: `bins` is less than 1.
    """
    return ece_statistic(bins).value(binary_rows(label, score, weight, probability=True))


def _clipped(score: AnyFloatArray) -> FloatArray:
    rounding = float(np.finfo(score.dtype).eps)
    return np.clip(score.astype(np.float64), rounding, 1 - rounding)


def log_losses(rows: Rows) -> FloatArray:
    """Negative log-likelihood of each row in nats, float64 [n]; see `log_loss`."""
    probability = _clipped(rows.score)
    if is_multiclass(rows.score):
        return -np.log(probability[np.arange(len(rows.label)), rows.label.astype(np.int64)])
    return -np.log(np.where(rows.label == 1, probability, 1 - probability))


def _normalized_entropy(sums: FloatArray) -> FloatArray:
    loss, positive, weight = np.moveaxis(sums, -1, 0)
    share = ratio(positive, weight)
    entropy = _entropy_part(share) + _entropy_part(1 - share)
    # A share that is 0 or 1 up to rounding is one class.
    return ratio(ratio(loss, weight), np.where(entropy > 1e-12, entropy, 0.0))


def _entropy_part(share: FloatArray) -> FloatArray:
    """-p log p, 0 at 0."""
    positive = np.maximum(share, np.finfo(np.float64).tiny)
    return -positive * np.log(positive)


def ece_statistic(bins: int = DEFAULT_BINS) -> BinnedStatistic:
    """The statistic behind `ece` for a number of bins."""
    if bins < 1:
        raise MetricError(f"bins must be at least 1, got {bins}.")

    def place(rows: Rows) -> IntArray:
        return np.minimum((rows.score.astype(np.float64) * bins).astype(np.int64), bins - 1)

    def gap_of_bins(sums: FloatArray) -> FloatArray:
        gap, weight = sums[..., 0, :], sums[..., 1, :]
        return ratio(np.abs(gap).sum(axis=-1), weight.sum(axis=-1))

    return BinnedStatistic(bins, place, lambda rows: (rows.weight * error(rows), rows.weight), gap_of_bins)


AUC = _MultiAUCStatistic()
PR_AUC = AveragePrecisionStatistic()
LOG_LOSS = mean_of(log_losses)
NORMALIZED_ENTROPY = SumStatistic(
    lambda rows: (rows.weight * log_losses(rows), rows.weight * rows.label, rows.weight), _normalized_entropy
)
BRIER = mean_of(lambda rows: error(rows) ** 2)
