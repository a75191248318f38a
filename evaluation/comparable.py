"""The same values alike, whatever type two tables hold them in: 7, 7.0 and "7"; times with and without a zone."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from evaluation.arrays import FloatArray, name_rows
from evaluation.errors import DataError
from evaluation.tables import Column

HashArray: TypeAlias = npt.NDArray[Any]


def hashes(
    first: Mapping[str, Column], second: Mapping[str, Column], names: Sequence[str]
) -> tuple[HashArray, HashArray]:
    """A number for each row of two tables, equal where rows are equal in the named columns.

    Args:
        first: A table.
        second: Another, with the same columns of perhaps other types.
        names: Columns that count.

    Returns:
        uint64 [rows] of each table.
    """
    pairs = {name: _alike(_series(first[name]), _series(second[name])) for name in names}
    left, right = (
        pd.util.hash_pandas_object(
            pd.DataFrame({name: pair[side] for name, pair in pairs.items()}), index=False
        )
        for side in (0, 1)
    )
    return left.to_numpy(), right.to_numpy()


def clock(column: Column, name: str) -> FloatArray:
    """Times as numbers, larger is later: numbers as they are, dates in microseconds since 1970 (UTC).

    Args:
        column: Numbers, dates, or text of either [n].
        name: The column, for messages.

    Returns:
        float64 [n]; nan where a time is missing.

    Raises:
        DataError: Values that are no times; rows are named.
    """
    values = _series(column)
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    if pd.api.types.is_datetime64_any_dtype(values):
        return _microseconds(values)
    missing = values.isna().to_numpy()
    numbers = pd.to_numeric(values, errors="coerce")
    if (numbers.isna().to_numpy() == missing).all():
        return numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    times = pd.to_datetime(values, errors="coerce", utc=True, format="mixed")
    bad = times.isna().to_numpy() & ~missing
    if bad.any():
        raise DataError(
            f"Column {name!r} must hold times, got {values[bad].iloc[0]!r} in {name_rows(bad)}. Use numbers or dates "
            "such as 2026-01-31 12:00:00."
        )
    return _microseconds(times)


def _series(column: Column) -> "pd.Series[Any]":
    values = column if isinstance(column, pd.Series) else pd.Series(np.asarray(column))
    values = values.reset_index(drop=True)
    return (
        values.astype(values.cat.categories.dtype)
        if isinstance(values.dtype, pd.CategoricalDtype)
        else values
    )


def _microseconds(values: "pd.Series[Any]") -> FloatArray:
    times = values.dt.tz_convert("UTC").dt.tz_localize(None) if values.dt.tz is not None else values
    stamps = times.to_numpy().astype("datetime64[us]")
    return np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64).astype(np.float64))


def _alike(first: "pd.Series[Any]", second: "pd.Series[Any]") -> "tuple[pd.Series[Any], pd.Series[Any]]":
    if all(pd.api.types.is_datetime64_any_dtype(one) for one in (first, second)):
        return pd.Series(_microseconds(first)), pd.Series(_microseconds(second))
    if all(pd.api.types.is_integer_dtype(one) and not one.hasnans for one in (first, second)):
        # Beyond 2^53 neighbouring whole numbers are one float; as 64 bits they stay apart.
        left, right = (one.to_numpy().astype(np.uint64, copy=False) for one in (first, second))
        return pd.Series(left), pd.Series(right)
    if all(pd.api.types.is_numeric_dtype(one) for one in (first, second)):
        return tuple(pd.Series(one.to_numpy(dtype=np.float64, na_value=np.nan)) for one in (first, second))  # type: ignore[return-value]
    return _text(first), _text(second)


def _text(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Values as text, whole numbers without a fraction; a missing value is a text of its own."""
    if pd.api.types.is_float_dtype(values):
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        whole = (
            np.isfinite(numbers) & (np.abs(numbers) < 2.0**53) & (numbers == np.floor(np.nan_to_num(numbers)))
        )
        texts = [
            str(int(value)) if is_whole else str(value)
            for value, is_whole in zip(numbers, whole, strict=True)
        ]
        return pd.Series(texts, dtype=object).where(~np.isnan(numbers), "")
    return values.astype(str).astype(object).where(values.notna(), "")
