"""The classes of a multi-class task by name: which score column is which class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from evaluation.arrays import name_rows
from evaluation.errors import DataError, did_you_mean
from evaluation.tables import Column


def class_numbers(
    label: Column, columns: Sequence[str], classes: Sequence[object] | None
) -> tuple[Column, tuple[str, ...]]:
    """Labels as numbers of the score columns.

    Args:
        label: Class numbers from 0, or names of classes [n].
        columns: The score columns in order.
        classes: The name of each column's class; by default labels that are text name columns, all of the name or
            what is left of it without what all have in common, such as "p_" in "p_cat" and "p_dog".

    Returns:
        (numbers [n], names of the classes); `label` itself where it is numbers and no classes are given. A column of
        lists gives no names.

    Raises:
        DataError: A label that is no class (rows are named), a class given twice, or another number of classes.
    """
    values = pd.Series(np.asarray(label))
    is_text = not pd.api.types.is_numeric_dtype(values) and values.map(lambda one: isinstance(one, str)).any()
    if classes is None and not is_text:
        return label, tuple(_without_common(columns, words=True)) if len(columns) > 1 else ()
    names = _names(columns, values, classes)
    missing = values.isna().to_numpy()
    if missing.any():
        raise DataError(
            f"label has a missing value in {name_rows(missing)}. Drop or repair those rows first."
        )
    place = {name: number for number, name in enumerate(names)}
    found = values.map(_text).map(place)
    other = found.isna().to_numpy()
    if other.any():
        value = _text(values[other].iloc[0])
        raise DataError(
            f"label {value!r} in {name_rows(other)} is none of the classes; {did_you_mean(value, names)} Say which "
            "class each score column is of with classes=, in their order."
        )
    return found.to_numpy(dtype=np.int64), tuple(names)


def _names(columns: Sequence[str], values: "pd.Series[Any]", classes: Sequence[object] | None) -> list[str]:
    if classes is not None:
        given = [_text(one) for one in classes]
        if len(set(given)) != len(given):
            raise DataError(f"classes has a class twice: {', '.join(given)}.")
        if len(columns) > 1 and len(columns) != len(given):
            raise DataError(f"There are {len(columns)} score columns but {len(given)} classes.")
        return given
    labels = set(values.dropna().map(_text))
    candidates = [list(columns), _without_common(columns, words=True), _without_common(columns, words=False)]
    return max(candidates, key=lambda names: len(labels & set(names)))  # the first of the best


def _without_common(columns: Sequence[str], *, words: bool) -> list[str]:
    """Names without the beginning and the end that all share, or the whole words of these."""
    start = _common(columns, words=words)
    rest = [name[start:][::-1] for name in columns]
    end = _common(rest, words=words)
    return [name[end:][::-1] for name in rest]


def _common(names: Sequence[str], *, words: bool) -> int:
    """How many characters all names begin with; with `words`, up to the last that is no letter or digit."""
    first, last = min(names), max(names)
    shared = next(
        (place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first)
    )
    if not words:
        return shared
    return max((place + 1 for place in range(shared) if not first[place].isalnum()), default=0)


def _text(value: object) -> str:
    """A class as text; a whole number without a fraction."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    return (
        str(int(value))
        if isinstance(value, float | np.floating) and float(value).is_integer()
        else str(value)
    )
