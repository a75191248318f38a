"""What a pointwise metric is computed from: checked labels, scores and weights of the same rows."""

from typing import NamedTuple

import numpy as np

from evaluation.arrays import (
    AnyFloatArray,
    ArrayLike,
    FloatArray,
    floats,
    name_rows,
    same_length,
    scores,
    weights,
)
from evaluation.errors import DataError

_SUM_TOLERANCE = 1e-3


class Rows(NamedTuple):
    """Checked inputs of one task.

    Attributes:
        label: float64 [n]. Binary: 0 or 1. Multi-class: the class number. Regression: any finite value.
        score: float32 or float64, [n], or [n, classes] for multi-class.
        weight: float64 [n], not negative, not all zero.
    """

    label: FloatArray
    score: AnyFloatArray
    weight: FloatArray


def _rows(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None) -> Rows:
    labels = floats(label, "label")
    values = scores(score)
    same_length(len(labels), values, "score")
    return Rows(labels, values, weights(weight, len(labels)))


def regression_rows(label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> Rows:
    """Check the rows of a regression task.

    Args:
        label: Finite numbers [n].
        score: Finite predictions [n].
        weight: Row weights [n] or None.

    Returns:
        The checked rows.

    Raises:
        DataError: Not numbers, not finite, lengths differ, no rows, or scores are not one per row.
    """
    rows = _rows(label, score, weight)
    if rows.score.ndim != 1:
        raise DataError(f"This task needs one score per row, got shape {rows.score.shape}.")
    return rows


def binary_rows(
    label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None, *, probability: bool = False
) -> Rows:
    """Check the rows of a binary task.

    Args:
        label: 0 or 1, or booleans [n].
        score: Finite scores [n]; the larger, the more likely the label is 1.
        weight: Row weights [n] or None.
        probability: Also require scores in [0, 1].

    Returns:
        The checked rows.

    Raises:
        DataError: As `regression_rows`; also another label than 0 and 1, or scores outside [0, 1].
    """
    rows = regression_rows(label, score, weight)
    other = (rows.label != 0) & (rows.label != 1)
    if other.any():
        raise DataError(
            f"label of a binary task must be 0 or 1, got {rows.label[np.argmax(other)]:g} in {name_rows(other)}."
        )
    if probability:
        require_probability(rows.score)
    return rows


def require_probability(score: AnyFloatArray) -> None:
    """Refuse scores outside [0, 1]."""
    outside = (score < 0) | (score > 1)
    if not outside.any():
        return
    bad = outside.reshape(len(outside), -1).any(axis=1)
    raise DataError(
        f"score must be a probability in [0, 1] for this metric, got {score[outside].flat[0]:g} in "
        f"{name_rows(bad)}. Scores that are logits need the sigmoid first."
    )


def multiclass_rows(
    label: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None, *, probability: bool = False
) -> Rows:
    """Check the rows of a multi-class task.

    Args:
        label: Class numbers 0 to classes - 1 [n].
        score: One score per class [n, classes].
        weight: Row weights [n] or None.
        probability: Also require scores in [0, 1] that sum to 1 (within 0.001) in each row.

    Returns:
        The checked rows.

    Raises:
        DataError: Not numbers, not finite, lengths differ, a label that is no class number, scores that are no
            distribution.
    """
    rows = _rows(label, score, weight)
    if rows.score.ndim != 2 or rows.score.shape[1] < 2:
        raise DataError(
            f"A multi-class task needs scores of shape [rows, classes], classes >= 2, got {rows.score.shape}."
        )
    classes = rows.score.shape[1]
    other = (rows.label != np.floor(rows.label)) | (rows.label < 0) | (rows.label >= classes)
    if other.any():
        raise DataError(
            f"label must be a class number from 0 to {classes - 1}, got {rows.label[np.argmax(other)]:g} in "
            f"{name_rows(other)}."
        )
    if probability:
        require_probability(rows.score)
        total = rows.score.sum(axis=1)
        off = np.abs(total - 1) > _SUM_TOLERANCE
        if off.any():
            raise DataError(
                f"scores of a row must sum to 1 over the classes, got {total[np.argmax(off)]:g} in "
                f"{name_rows(off)}. Logits need the softmax first."
            )
    return rows


def is_multiclass(score: ArrayLike) -> bool:
    """Whether scores have one column per class, which makes a metric use its multi-class form."""
    return np.ndim(score) == 2
