"""A long predictions table held in few bytes a row: what metrics need of it, read batch by batch."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads

from evaluation.arrays import AnyFloatArray, FloatArray, IntArray, floats, name_rows
from evaluation.errors import DataError
from evaluation.metrics.rows import Rows
from evaluation.plans import CHECKS, TaskColumns

BATCH_ROWS = 1 << 20
MAX_UNITS = 20_000
"""Users, or rows where no user is known, are drawn in at most this many random groups."""

_MIX = np.uint64(
    0x9E3779B97F4A7C15
)  # 2^64 / golden ratio: multiplying spreads consecutive numbers (Knuth, 6.4)


@dataclass(frozen=True)
class CompactRows:
    """One task of a long table.

    Attributes:
        label: uint8 for a binary task, else float64 [n].
        score: float32 or float64, as in the file [n].
        weight: float64 [n], or None for ones.
        user: int64 key of each row's user: its number, or a 64-bit hash of its text [n]; None without users.
    """

    label: npt.NDArray[Any]
    score: AnyFloatArray
    weight: FloatArray | None
    user: IntArray | None

    def __len__(self) -> int:
        return len(self.label)

    def rows(self, at: "slice | npt.NDArray[Any]") -> Rows:
        """Some of the rows as metrics take them."""
        label = self.label[at].astype(np.float64)
        weight = np.ones(len(label)) if self.weight is None else self.weight[at]
        return Rows(label, self.score[at], weight)

    def units(self, at: "slice | npt.NDArray[Any]") -> IntArray:
        """The random group that each of some rows is drawn in."""
        if self.user is not None:
            return unit_of(self.user[at])
        numbers = np.arange(len(self))[at] if isinstance(at, slice) else np.asarray(at)
        return unit_of(numbers.astype(np.int64))

    def blocks(self) -> Iterator[slice]:
        """The rows in blocks of bounded size."""
        for start in range(0, len(self), BATCH_ROWS):
            yield slice(start, min(start + BATCH_ROWS, len(self)))


def unit_of(key: IntArray) -> IntArray:
    """The random group of users or rows, 0 to MAX_UNITS - 1."""
    return ((spread(key) >> np.uint64(32)) % np.uint64(MAX_UNITS)).astype(np.int64)


def spread(key: IntArray) -> npt.NDArray[np.uint64]:
    """Keys as 64 bits that look random."""
    mixed = key.astype(np.uint64) * _MIX
    return (mixed ^ (mixed >> np.uint64(29))) * _MIX


def read_compact(path: str | Path, task: TaskColumns, user: str | None, weight: str | None) -> CompactRows:
    """Read one task of a Parquet file or folder, checking each batch.

    Args:
        path: The file or folder; its columns exist.
        task: A binary or regression task.
        user: Column of users.
        weight: Column of weights.

    Returns:
        The rows.

    Raises:
        DataError: Values that do not fit the task; the message says in which batch and row.
    """
    data = pads.dataset(path, format="parquet")
    n = data.count_rows()
    score_name = task.score_columns[0]
    is_single = pa.types.is_float32(data.schema.field(score_name).type)
    label = np.empty(n, dtype=np.uint8 if task.type == "binary" else np.float64)
    score: AnyFloatArray = np.empty(n, dtype=np.float32 if is_single else np.float64)
    weights = None if weight is None else np.empty(n)
    users = None if user is None else np.empty(n, dtype=np.int64)
    names = [name for name in (task.label, score_name, weight, user) if name is not None]
    start = 0
    batches = data.to_batches(
        columns=list(dict.fromkeys(names)), batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
    )
    for batch in batches:
        if not batch.num_rows:
            continue
        at = slice(start, start + batch.num_rows)
        try:
            rows = CHECKS[task.type](_numbers(batch, task.label), _numbers(batch, score_name))
            label[at], score[at] = rows.label, rows.score
            if weights is not None and weight is not None:
                weights[at] = _weights(_numbers(batch, weight))
            if users is not None and user is not None:
                users[at] = _keys(batch.column(user), user)
        except DataError as error:
            raise DataError(f"{path}, in the rows from {start:,} on, counted from there: {error}") from error
        start += batch.num_rows
    if weights is not None and not weights.any():
        raise DataError(f"{weight} is zero in every row, so no row counts.")
    return CompactRows(label, score, weights, users)


def _numbers(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name).to_numpy(zero_copy_only=False)


def _weights(values: Any) -> FloatArray:
    found = floats(values, "weight")
    if (found < 0).any():
        raise DataError(f"weight must not be negative, got {found.min()} in {name_rows(found < 0)}.")
    return found


def _keys(column: pa.Array, name: str) -> IntArray:
    if column.null_count:
        missing = name_rows(column.is_null().to_numpy(zero_copy_only=False))
        raise DataError(f"column {name!r} has a missing value in {missing}.")
    if pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = encoded.dictionary.to_pandas()
    # Two of five million users share a 64-bit hash with a chance below one in a million.
    hashes = pd.util.hash_array(np.asarray(values, dtype=object), categorize=False).astype(np.int64)
    return np.asarray(hashes[encoded.indices.to_numpy(zero_copy_only=False)])
