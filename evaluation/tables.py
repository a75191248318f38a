"""Reading the columns of a predictions table: pandas, Arrow, NumPy, a mapping of arrays, or a file (`table_files`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from evaluation.errors import DataError, did_you_mean
from evaluation.table_files import read_file, schema_of

Predictions: TypeAlias = "pd.DataFrame | pa.Table | Mapping[str, Any] | npt.NDArray[np.void] | str | Path"
"""Or anything else that gives its columns as an Arrow stream, such as a record batch or a polars frame."""
Column: TypeAlias = "npt.NDArray[Any] | pd.Series[Any]"


def column_names(predictions: Predictions) -> list[str]:
    """The columns of a table, without reading its rows.

    Args:
        predictions: The table.

    Returns:
        Column names in order.

    Raises:
        DataError: No such file, a file that cannot be read, or an object that is no table.
    """
    table = _held(predictions)
    if isinstance(table, pd.DataFrame):
        return [str(name) for name in table.columns]
    if isinstance(table, pa.Table):
        return list(table.column_names)
    return list(table) if isinstance(table, Mapping) else list(schema_of(table).names)


def _held(predictions: Predictions) -> "pd.DataFrame | pa.Table | Mapping[str, Any] | Path":
    """The table in one of few forms."""
    if isinstance(predictions, pd.DataFrame | pa.Table | Mapping):
        return predictions
    if isinstance(predictions, str | Path):
        return Path(predictions)
    if isinstance(predictions, np.ndarray) and predictions.dtype.names:
        return {name: predictions[name] for name in predictions.dtype.names}
    if isinstance(predictions, pa.RecordBatch):
        return pa.Table.from_batches([predictions])
    if hasattr(predictions, "__arrow_c_stream__"):
        return pa.table(predictions)
    raise DataError(
        "Predictions must be a pandas DataFrame, an Arrow table (or what gives one), a structured NumPy array, a "
        "mapping of arrays, or the path of a Parquet, CSV, JSON lines or Feather file, got "
        f"{type(predictions).__name__}."
    )


def read_columns(predictions: Predictions, names: Sequence[str]) -> dict[str, Column]:
    """Read the named columns.

    Args:
        predictions: The table.
        names: The columns wanted; repeated names are read once.

    Returns:
        One array [n] per name; a column of lists of one length becomes [n, length].

    Raises:
        DataError: A column is missing (the message names the nearest), or the file cannot be read.
    """
    wanted = list(dict.fromkeys(names))
    table = _held(predictions)
    known = column_names(table)
    for name in wanted:
        if name not in known:
            raise DataError(f"{_origin(predictions)} has no column {name!r}; {did_you_mean(name, known)}")
        if known.count(name) > 1:
            raise DataError(f"{_origin(predictions)} has the column {name!r} twice: rename one of them.")
    if isinstance(table, pd.DataFrame):
        return {name: _unpack_lists(table[name], name) for name in wanted}
    if isinstance(table, Mapping):
        return _of_one_length({name: np.asarray(table[name]) for name in wanted})
    arrow = table if isinstance(table, pa.Table) else read_file(table, wanted)
    return {name: _from_arrow(arrow.column(name), name) for name in wanted}


def _of_one_length(columns: dict[str, Column]) -> dict[str, Column]:
    lengths = {name: len(column) for name, column in columns.items() if np.ndim(column)}
    first = next(iter(lengths), "")
    for name, length in lengths.items():
        if length != lengths[first]:
            raise DataError(
                f"Column {name!r} has {length:,} rows but column {first!r} has {lengths[first]:,}."
            )
    return columns


def nested_columns(predictions: Predictions, names: Sequence[str]) -> list[str]:
    """Those of some columns that hold lists, maps or structures instead of one value a row.

    Args:
        predictions: The table.
        names: Columns; those it lacks are passed over.

    Returns:
        Names.
    """
    table = _held(predictions)
    if isinstance(table, pd.DataFrame):
        return [name for name in names if name in table.columns and _is_nested(table[name])]
    if isinstance(table, Mapping):
        return [name for name in names if name in table and _is_nested(pd.Series(list(table[name])))]
    schema = table.schema if isinstance(table, pa.Table) else schema_of(table)
    return [name for name in names if name in schema.names and pa.types.is_nested(schema.field(name).type)]


def _is_nested(column: "pd.Series[Any]") -> bool:
    if isinstance(column.dtype, pd.ArrowDtype):
        return bool(pa.types.is_nested(column.dtype.pyarrow_dtype))
    if column.dtype != object:
        return False
    known = column.dropna()
    return len(known) > 0 and isinstance(known.iloc[0], list | tuple | set | dict | np.ndarray)


def _origin(predictions: Predictions) -> str:
    return str(predictions) if isinstance(predictions, str | Path) else "The predictions table"


def _from_arrow(column: Any, name: str) -> Column:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = pc.list_value_length(column).to_numpy()
        return _matrix(pc.list_flatten(column).to_numpy(), lengths, name)
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    if pa.types.is_dictionary(kind):
        return pd.Series(column.to_pandas())
    return np.asarray(column.to_numpy())


def _unpack_lists(column: "pd.Series[Any]", name: str) -> Column:
    first = column.iloc[0] if len(column) else None
    if not isinstance(first, list | tuple | np.ndarray):
        return column
    lengths = np.array([np.size(row) if isinstance(row, list | tuple | np.ndarray) else -1 for row in column])
    return _matrix(np.concatenate([np.atleast_1d(row) for row in column]), lengths, name)


def _matrix(flat: npt.NDArray[Any], lengths: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    odd = lengths != lengths[0] if len(lengths) else np.zeros(0, bool)
    if odd.any():
        row = int(np.argmax(odd))
        raise DataError(
            f"Column {name!r} must hold lists of one length, got {lengths[0]} values in row 0 and {lengths[row]} in "
            f"row {row} (counting from 0)."
        )
    return flat.reshape(len(lengths), -1)
