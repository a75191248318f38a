"""Baselines of pointwise tasks: always the same prediction, and the mean label of each item."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from evaluation.arrays import (
    ArrayLike,
    FloatArray,
    IntArray,
    codes,
    floats,
    same_length,
    sum_by_code,
    weights,
)
from evaluation.errors import DataError
from evaluation.seeds import generator

DEFAULT_STRENGTH = 10.0
_FOLDS = 5


def rate_baselines(
    label: ArrayLike,
    item: ArrayLike | None,
    *,
    train_label: ArrayLike | None = None,
    train_item: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    strength: float = DEFAULT_STRENGTH,
    seed: int = 0,
) -> dict[str, FloatArray]:
    """Predictions of the simplest baselines for the rows of a pointwise task.

    "constant" predicts the mean label; "item_rate" the mean label of the row's item, drawn towards the overall mean as
    if the item had `strength` more rows of it (so an unknown item gets the mean). They learn from the training rows.
    Without training rows, "constant" knows the mean of the judged rows themselves, and "item_rate" learns for each
    fifth of the rows from the other four fifths, so that no row tells its own label.

    Args:
        label: Labels of the judged rows, 0 and 1 or any numbers [n].
        item: Items of the judged rows [n]; None leaves "item_rate" out.
        train_label: Labels of the training rows.
        train_item: Items of the training rows.
        weight: Weights of the judged rows.
        strength: Rows of the overall mean added to each item.
        seed: Seed of the fifths.

    Returns:
        Predictions float64 [n] by baseline.

    Raises:
        DataError: Lengths differ, values are missing, or only one of the training columns is given.
    """
    labels = floats(label, "label")
    row_weight = weights(weight, len(labels))
    if train_label is not None:
        known = floats(train_label, "train_label")
        mean = float(known.mean()) if len(known) else float("nan")
        found = {"constant": np.full(len(labels), mean)}
        if item is not None:
            if train_item is None:
                raise DataError("train_label is given without train_item, so item rates cannot be learned.")
            found["item_rate"] = _rates_from(known, train_item, item, strength, mean)
        return found
    found = {"constant": np.full(len(labels), float(np.average(labels, weights=row_weight)))}
    if item is not None:
        code, n_items = codes(item, "item")
        same_length(len(labels), code, "item")
        found["item_rate"] = _cross_fitted(labels, row_weight, code, n_items, strength, seed)
    return found


def rates_of_counts(item: ArrayLike, sums: Mapping[Any, tuple[float, float]], strength: float) -> FloatArray:
    """Item rates from sums gathered elsewhere.

    Args:
        item: Items of the judged rows [n].
        sums: (sum of labels, number of rows) by item, of the training rows.
        strength: Rows of the overall mean added to each item.

    Returns:
        Predictions float64 [n].
    """
    total, count = (sum(one[place] for one in sums.values()) for place in (0, 1))
    mean = total / count if count else float("nan")
    table = pd.Series(
        {key: (part + strength * mean) / (rows + strength) for key, (part, rows) in sums.items()}
    )
    return np.asarray(pd.Series(np.asarray(item)).map(table).fillna(mean).to_numpy(), dtype=np.float64)


def _rates_from(
    label: FloatArray, train_item: ArrayLike, item: ArrayLike, strength: float, mean: float
) -> FloatArray:
    frame = pd.DataFrame({"item": np.asarray(train_item), "label": label})
    groups = frame.groupby("item")["label"].agg(["sum", "count"])
    rates = (groups["sum"] + strength * mean) / (groups["count"] + strength)
    return np.asarray(pd.Series(np.asarray(item)).map(rates).fillna(mean).to_numpy(), dtype=np.float64)


def _cross_fitted(
    label: FloatArray, weight: FloatArray, item: IntArray, n_items: int, strength: float, seed: int
) -> FloatArray:
    fold = generator(seed, len(label)).permutation(np.arange(len(label)) % _FOLDS)
    result = np.empty(len(label))
    for number in range(_FOLDS):
        other, mine = fold != number, fold == number
        if not other.any() or not weight[other].any():
            result[mine] = np.average(label, weights=weight)
            continue
        mean = float(np.average(label[other], weights=weight[other]))
        sums = sum_by_code((label * weight)[other], item[other], n_items)
        counts = sum_by_code(weight[other], item[other], n_items)
        result[mine] = ((sums + strength * mean) / (counts + strength))[item[mine]]
    return result
