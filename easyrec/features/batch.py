"""Encoded rows as NumPy arrays, which are shuffled and cut into batches without TensorFlow.

The keys of `EncodedBatch.as_dict` are documented in `easyrec.features.outputs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from easyrec.errors import DataError

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class RaggedColumn:
    """Several ids a row: all rows one after the other.

    Attributes:
        values: [V] int32 ids.
        row_lengths: [B] int32, how many of them belong to each row.
        weights: [V] float32, or None when the ids have no weights.
    """

    values: Array
    row_lengths: Array
    weights: Array | None = None

    @cached_property
    def splits(self) -> Array:
        """[B + 1] int64: row i is `values[splits[i]:splits[i + 1]]`."""
        splits = np.zeros(len(self.row_lengths) + 1, np.int64)
        np.cumsum(self.row_lengths, out=splits[1:])
        return splits

    def take(self, indices: Array) -> RaggedColumn:
        """The rows at `indices`, in that order."""
        lengths = self.row_lengths[indices]
        ends = np.cumsum(lengths, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        positions = np.arange(total) + np.repeat(self.splits[indices] - (ends - lengths), lengths)
        weights = None if self.weights is None else self.weights[positions]
        return RaggedColumn(self.values[positions], lengths, weights)

    def slice(self, start: int, stop: int) -> RaggedColumn:
        """The rows from `start` up to `stop`, without a copy."""
        inner = slice(self.splits[start], self.splits[stop])
        weights = None if self.weights is None else self.weights[inner]
        return RaggedColumn(self.values[inner], self.row_lengths[start:stop], weights)

    @staticmethod
    def concat(columns: Sequence[RaggedColumn]) -> RaggedColumn:
        """The rows of all columns, one column after the other."""
        weights = [column.weights for column in columns if column.weights is not None]
        return RaggedColumn(
            np.concatenate([column.values for column in columns]),
            np.concatenate([column.row_lengths for column in columns]),
            np.concatenate(weights) if weights else None,
        )


@dataclass(frozen=True, eq=False)
class EncodedBatch:
    """Encoded rows.

    Attributes:
        num_rows: B, how many rows there are.
        dense: Arrays with one entry a row: `ids`, `numbers`, `label/<task>`, `weight`.
        ragged: Columns with several ids a row, by feature.
    """

    num_rows: int
    dense: Mapping[str, Array] = field(default_factory=dict)
    ragged: Mapping[str, RaggedColumn] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.num_rows

    def take(self, indices: Array) -> EncodedBatch:
        """The rows at `indices` ([N] integers, may repeat), in that order."""
        indices = np.asarray(indices)
        return EncodedBatch(
            len(indices),
            {name: array[indices] for name, array in self.dense.items()},
            {name: column.take(indices) for name, column in self.ragged.items()},
        )

    def slice(self, start: int, stop: int) -> EncodedBatch:
        """The rows from `start` up to `stop` (which may lie past the end), without a copy."""
        start = min(max(start, 0), self.num_rows)
        stop = min(max(stop, start), self.num_rows)
        return EncodedBatch(
            stop - start,
            {name: array[start:stop] for name, array in self.dense.items()},
            {name: column.slice(start, stop) for name, column in self.ragged.items()},
        )

    @staticmethod
    def concat(batches: Sequence[EncodedBatch]) -> EncodedBatch:
        """The rows of all batches, one batch after the other.

        Raises:
            DataError: There is none, or they do not hold the same columns.
        """
        if not batches:
            raise DataError("there is no batch to join; the data gave no rows")
        first = batches[0]
        if len(batches) == 1:
            return first
        for other in batches[1:]:
            ours, theirs = first.keys(), other.keys()
            if ours != theirs:
                raise DataError(
                    f"batches with different columns cannot be joined; only in some: {sorted(ours ^ theirs)}"
                )
        return EncodedBatch(
            sum(batch.num_rows for batch in batches),
            {name: np.concatenate([batch.dense[name] for batch in batches]) for name in first.dense},
            {name: RaggedColumn.concat([batch.ragged[name] for batch in batches]) for name in first.ragged},
        )

    def keys(self) -> set[str]:
        """The keys of `as_dict`."""
        return set(self.as_dict())

    def as_dict(self) -> dict[str, Array]:
        """All arrays under the keys of `easyrec.features.outputs`."""
        arrays = dict(self.dense)
        for name, column in self.ragged.items():
            arrays[f"{name}/values"] = column.values
            arrays[f"{name}/row_lengths"] = column.row_lengths
            if column.weights is not None:
                arrays[f"{name}/weights"] = column.weights
        return arrays

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.as_dict().values())
