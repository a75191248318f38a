"""Reading the columns of a predictions table: pandas, Arrow, a mapping of arrays, or a Parquet or CSV file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as pads

from evaluation.errors import DataError, did_you_mean

Predictions: TypeAlias = "pd.DataFrame | pa.Table | Mapping[str, Any] | str | Path"
Column: TypeAlias = "npt.NDArray[Any] | pd.Series[Any]"

_CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")


def column_names(predictions: Predictions) -> list[str]:
    """The columns of a table, without reading its rows.

    Args:
        predictions: The table.

    Returns:
        Column names in order.

    Raises:
        DataError: No such file, a file that cannot be read, or an object that is no table.
    """
    if isinstance(predictions, pd.DataFrame):
        return [str(name) for name in predictions.columns]
    if isinstance(predictions, pa.Table):
        return list(predictions.column_names)
    if isinstance(predictions, Mapping):
        return list(predictions)
    if isinstance(predictions, str | Path):
        return _file_columns(Path(predictions))
    raise DataError(
        "Predictions must be a pandas DataFrame, an Arrow table, a mapping of arrays, or the path of a Parquet or "
        f"CSV file, got {type(predictions).__name__}."
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
    known = column_names(predictions)
    for name in wanted:
        if name not in known:
            raise DataError(f"{_origin(predictions)} has no column {name!r}; {did_you_mean(name, known)}")
    if isinstance(predictions, pd.DataFrame):
        return {name: _unpack_lists(predictions[name], name) for name in wanted}
    if isinstance(predictions, Mapping):
        return {name: np.asarray(predictions[name]) for name in wanted}
    table = predictions if isinstance(predictions, pa.Table) else _read_file(Path(predictions), wanted)
    return {name: _from_arrow(table.column(name), name) for name in wanted}


def _origin(predictions: Predictions) -> str:
    return str(predictions) if isinstance(predictions, str | Path) else "The predictions table"


def _is_csv(path: Path) -> bool:
    return path.name.lower().endswith(_CSV_SUFFIXES)


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in path.name.lower() else ","


def _file_columns(path: Path) -> list[str]:
    if not path.exists():
        raise DataError(f"There is no file {path}.")
    try:
        if _is_csv(path):
            options = pacsv.ParseOptions(delimiter=_delimiter(path))
            with pacsv.open_csv(path, parse_options=options) as reader:
                return list(reader.schema.names)
        return list(pads.dataset(path, format="parquet").schema.names)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(
            f"{path} cannot be read as {'CSV' if _is_csv(path) else 'Parquet'}: {error}"
        ) from error


def _read_file(path: Path, names: list[str]) -> Any:
    try:
        if _is_csv(path):
            return pacsv.read_csv(
                path,
                parse_options=pacsv.ParseOptions(delimiter=_delimiter(path)),
                convert_options=pacsv.ConvertOptions(include_columns=names),
            )
        return pads.dataset(path, format="parquet").to_table(columns=names)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


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
