"""Tables that callers give, in whatever form, as Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from easyrec.errors import SchemaError

Frame: TypeAlias = pd.DataFrame | pa.Table | pa.RecordBatch | Mapping[str, Any]


def as_table(frame: Frame) -> pa.Table:
    """A DataFrame, a table, or a mapping of columns as an Arrow table.

    Raises:
        SchemaError: It is something else, columns differ in length, or one mixes types.
    """
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        _refuse_duplicates(frame.column_names)
        return frame
    if not isinstance(frame, (pd.DataFrame, Mapping)):
        raise SchemaError(
            f"expected a pandas DataFrame, a pyarrow Table or a mapping of columns, got {type(frame).__name__}"
        )
    _refuse_duplicates([str(name) for name in frame])
    columns = {str(name): _as_array(str(name), values) for name, values in frame.items()}
    lengths = {name: len(array) for name, array in columns.items()}
    if len(set(lengths.values())) > 1:
        raise SchemaError(f"all columns must have equally many rows, got {lengths}")
    return pa.table(columns)


def _refuse_duplicates(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"two columns are called {name!r}; rename or drop one")


def _as_array(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise SchemaError(
            f"the column {name!r} is the single value {values!r}; give a list with one value a row"
        )
    if isinstance(values, np.ndarray) and values.ndim > 1:
        values = list(values)
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise SchemaError(f"the column {name!r} mixes types, or holds what no table can: {error}") from error
