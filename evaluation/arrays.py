"""Checked conversion of whatever the caller holds (lists, NumPy, pandas, Arrow) to NumPy arrays.

Every function here either returns an array that later code need not question, or raises a `DataError` that
names the argument, the first offending rows (counted from 0) and a value found there.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from evaluation.errors import DataError

FloatArray: TypeAlias = npt.NDArray[np.float64]
AnyFloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
if TYPE_CHECKING:
    from scipy import sparse

    SparseRows: TypeAlias = sparse.csr_array[Any, tuple[int, int]]
else:
    SparseRows = Any
ArrayLike: TypeAlias = Any  # lists, NumPy, pandas Series, Arrow arrays: all that np.asarray understands

_ROWS_SHOWN = 5


def name_rows(bad: npt.ArrayLike) -> str:
    """Name the first rows of a mask, e.g. ``rows 3, 8 and 2 more (counting from 0)``."""
    rows = np.flatnonzero(bad)
    shown = ", ".join(str(row) for row in rows[:_ROWS_SHOWN])
    rest = f" and {len(rows) - _ROWS_SHOWN:,} more" if len(rows) > _ROWS_SHOWN else ""
    return f"{'row' if len(rows) == 1 else 'rows'} {shown}{rest} (counting from 0)"


def _to_numbers(values: ArrayLike, name: str) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind != "O" or array.ndim != 1:
        raise DataError(f"{name} must hold numbers, got {_describe(array)}.")
    text = np.fromiter((isinstance(value, str | bytes) for value in array), dtype=bool, count=len(array))
    if text.any():
        raise DataError(
            f"{name} must hold numbers, got text such as {array[np.argmax(text)]!r} in {name_rows(text)}."
        )
    import pandas as pd  # slow to import, and only odd containers need it

    try:
        return pd.to_numeric(pd.Series(array, dtype=object)).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must hold numbers: {error}.") from error


def _describe(array: npt.NDArray[Any]) -> str:
    value = array.flat[0] if array.size else None
    example = f" such as {_plain(value)!r}" if array.size else ""
    return f"{array.dtype} values{example} of shape {array.shape}"


def _plain(value: Any) -> Any:
    """A NumPy value as Python writes it."""
    return value.item() if isinstance(value, np.generic) else value


def _refuse_non_finite(array: AnyFloatArray, name: str) -> None:
    good = np.isfinite(array)
    if good.all():
        return
    bad = ~good.reshape(len(good), -1).all(axis=1)
    value = array[~good].flat[0]
    what = "a missing value (NaN or null)" if np.isnan(value) else "an infinite value"
    raise DataError(f"{name} has {what} in {name_rows(bad)}. Drop or repair those rows first.")


def floats(values: ArrayLike, name: str) -> FloatArray:
    """Convert to finite float64 of shape [n].

    Args:
        values: Numbers or booleans, any container NumPy understands.
        name: How error messages call this argument.

    Returns:
        float64 [n].

    Raises:
        DataError: Not one-dimensional, not numbers, or a value is missing or infinite.
    """
    array = _to_numbers(values, name)
    if array.ndim != 1:
        raise DataError(f"{name} must be one value per row, got shape {array.shape}.")
    result = array.astype(np.float64, copy=False)
    _refuse_non_finite(result, name)
    return result


def scores(values: ArrayLike, name: str = "score") -> AnyFloatArray:
    """Convert to finite floats of shape [n] or [n, classes]; float32 stays float32.

    The width is kept because a float32 probability of exactly 1 means "above 1 - 6e-8", which log-loss uses.

    Args:
        values: Numbers, one or a vector per row.
        name: How error messages call this argument.

    Returns:
        float32 or float64, [n] or [n, classes].

    Raises:
        DataError: Wrong rank, not numbers, or a value is missing or infinite.
    """
    array = _to_numbers(values, name)
    if array.ndim not in (1, 2):
        raise DataError(f"{name} must have shape [rows] or [rows, classes], got {array.shape}.")
    wide = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    _refuse_non_finite(wide, name)
    return wide


def weights(values: ArrayLike | None, n_rows: int, name: str = "weight") -> FloatArray:
    """Convert row weights, ones when absent.

    Args:
        values: None, or one non-negative number per row.
        n_rows: The number of rows they must match.
        name: How error messages call this argument.

    Returns:
        float64 [n_rows].

    Raises:
        DataError: Negative, all zero, not finite, or of another length.
    """
    if values is None:
        return np.ones(n_rows)
    array = floats(values, name)
    same_length(n_rows, array, name)
    if (array < 0).any():
        raise DataError(f"{name} must not be negative, got {array.min()} in {name_rows(array < 0)}.")
    if not array.any():
        raise DataError(f"{name} is zero in every row, so no row counts.")
    return array


def same_length(n_rows: int, array: npt.NDArray[Any], name: str) -> None:
    """Refuse an array whose first dimension is not `n_rows`, and an empty one."""
    if len(array) != n_rows:
        raise DataError(f"{name} has {len(array):,} rows but the label has {n_rows:,}.")
    if n_rows == 0:
        raise DataError("There are no rows to evaluate.")


def sum_by_code(values: FloatArray, code: IntArray, n_codes: int) -> FloatArray:
    """Sum values [n] of each code 0 to n_codes - 1 [n]: float64 [n_codes]."""
    return np.bincount(code, values, n_codes).astype(np.float64, copy=False)


def sort_within(code: IntArray, n_codes: int, order: IntArray) -> IntArray:
    """Sort rows by code, and within a code as they are in `order`.

    Args:
        code: Code of each row, 0 to n_codes - 1 [n].
        n_codes: Number of codes.
        order: Row numbers [n], e.g. from an argsort.

    Returns:
        Row numbers int64 [n]. Counting instead of comparing, in time O(n): building a sparse matrix row by row is a
        stable counting sort.
    """
    from scipy import sparse  # slow to import; a configuration check looks up metrics without it

    entries = (order, (code[order], np.arange(len(order), dtype=np.int64)))
    return np.asarray(sparse.coo_array(entries, shape=(n_codes, max(len(order), 1))).tocsr().data)


def codes(values: ArrayLike, name: str) -> tuple[IntArray, int]:
    """Number the distinct values of a column (numbers, text, anything hashable) from 0.

    Args:
        values: One value per row.
        name: How error messages call this argument.

    Returns:
        (codes int64 [n] in order of first appearance, number of distinct values).

    Raises:
        DataError: A value is missing.
    """
    import pandas as pd  # slow to import; a configuration check looks up metrics without it

    column = values if isinstance(values, pd.Series | pd.Index) else np.asarray(values)
    if column.ndim != 1:
        raise DataError(f"{name} must be one value per row, got shape {column.shape}.")
    numbers, distinct = pd.factorize(column)
    if (numbers < 0).any():
        raise DataError(f"{name} has a missing value in {name_rows(numbers < 0)}.")
    return numbers.astype(np.int64, copy=False), len(distinct)
