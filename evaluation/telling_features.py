"""Single features that order labels almost perfectly: one that does may be made from the label."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evaluation.arrays import FloatArray, IntArray, floats
from evaluation.comparable import clock
from evaluation.errors import DataError
from evaluation.metrics.concordance import xauc_value
from evaluation.metrics.ordering import auc_value
from evaluation.metrics.rows import Rows
from evaluation.tables import Column

NEAR_PERFECT = 0.98
"""A single feature that orders labels this well (AUC, either way round) is suspected of knowing the label."""

_SAMPLE_ROWS = 200_000
_TWO = 2
_FEWEST = 10
"""Fewer rows than this beside the commonest label are ordered well by chance too often."""
_MOST_CLASSES = 20
_BINS = 50
_MOST_CODES = 1000
_ROWS_A_CODE = 5


def telling_features(
    rows: Mapping[str, Column], features: Sequence[str], label: str
) -> tuple[dict[str, float], str]:
    """Find features that order the labels almost perfectly, each alone.

    Numbers are tried as they are and, as codes need not rise with the label, by the mean label of each value or
    fiftieth; text by the mean label of each value. Means are taken from the other half of the rows, so that a value
    which occurs once gives nothing away.

    Args:
        rows: The table.
        features: Columns to try.
        label: Column of labels.

    Returns:
        (AUC by feature that reaches `NEAR_PERFECT`, what was checked in words).

    Raises:
        DataError: Labels that are missing, or text of more than twenty classes.
    """
    targets = _targets(rows[label], label)
    n = len(targets[0])
    take = np.arange(n)
    if n > _SAMPLE_ROWS:
        take = np.sort(np.random.default_rng(0).choice(n, _SAMPLE_ROWS, replace=False))
    usable = [target[take] for target in targets if _is_enough(target[take])]
    if not usable:
        return {}, f"not single features, for fewer than {_FEWEST} rows differ from the commonest label"
    found = {}
    for feature in features:
        strength = float(np.mean([_strength(rows[feature], target, take) for target in usable]))
        if strength >= NEAR_PERFECT:
            found[feature] = strength
    return found, f"single features that order labels with an AUC of {NEAR_PERFECT} or more"


def _targets(column: Column, label: str) -> list[FloatArray]:
    """The labels as numbers, or one against the rest for each class of text."""
    values = pd.Series(np.asarray(column))
    if pd.api.types.is_numeric_dtype(values) or not all(isinstance(one, str) for one in values):
        return [floats(column, f"column {label!r}")]
    code, classes = pd.factorize(values)
    if len(classes) > _MOST_CLASSES:
        raise DataError(
            f"column {label!r} must hold numbers or at most {_MOST_CLASSES} classes, got {len(classes):,} different "
            f"texts such as {values.iloc[0]!r}."
        )
    chosen = range(1, 2) if len(classes) == _TWO else range(len(classes))
    return [(code == number).astype(np.float64) for number in chosen]


def _is_enough(target: FloatArray) -> bool:
    _, counts = np.unique(target, return_counts=True)
    return len(target) - int(counts.max(initial=0)) >= _FEWEST


def _strength(column: Column, target: FloatArray, take: IntArray) -> float:
    labels = Rows(target, target, np.ones(len(target)))
    # For labels 0 and 1 XAUC is the AUC, which one sort is enough for.
    ordered = auc_value if np.isin(target, (0.0, 1.0)).all() else xauc_value
    best = 0.5
    for score in _scores(column, target, take):
        value = ordered(labels._replace(score=score))
        best = max(best, value, 1 - value)
    return best


def _scores(column: Column, target: FloatArray, take: IntArray) -> list[FloatArray]:
    values = pd.Series(np.asarray(column)).iloc[take].reset_index(drop=True)
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_datetime64_any_dtype(values):
        numbers = clock(values, "feature")
        known = np.isfinite(numbers)
        lowest = float(np.min(numbers[known], initial=0.0)) - 1.0
        shown = np.where(known, numbers, lowest)  # that it is missing may tell
        return [shown, _mean_labels(_binned(shown), target)]
    # A missing value is a value of its own.
    codes, _ = pd.factorize(values.astype(str), use_na_sentinel=False)
    return [_mean_labels(codes.astype(np.int64), target)]


def _binned(numbers: FloatArray) -> IntArray:
    """Each value by itself where they are few and occur often, else by fiftieths."""
    distinct, code = np.unique(numbers, return_inverse=True)
    if len(distinct) <= min(_MOST_CODES, len(numbers) / _ROWS_A_CODE):
        return code.astype(np.int64)
    return np.searchsorted(np.quantile(numbers, np.linspace(0, 1, _BINS + 1)[1:-1]), numbers).astype(np.int64)


def _mean_labels(codes: IntArray, target: FloatArray) -> FloatArray:
    """The mean label of each row's value among the rows of the other half [n]."""
    half = np.random.default_rng(0).permutation(np.arange(len(codes)) % 2)
    size = int(codes.max()) + 1
    scores = np.empty(len(codes))
    for side in (0, 1):
        other: Any = half != side
        sums = np.bincount(codes[other], target[other], size)
        counts = np.bincount(codes[other], minlength=size)
        mean = target[other].mean()
        scores[half == side] = ((sums + mean) / (counts + 1))[codes[half == side]]
    return scores
