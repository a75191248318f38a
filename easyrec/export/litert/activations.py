"""Ids to the activations of the embedding tables, in NumPy: the twin of `EmbeddingCollection`.

The tables are memory-mapped, so that they may be larger than memory and processes share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from easyrec.config.features import Pooling
from easyrec.export.litert.spec import FieldEntry, GroupEntry
from easyrec.features.batch import EncodedBatch, RaggedColumn
from easyrec.features.outputs import FeatureSchema

Floats = npt.NDArray[np.float32]
Tables = Mapping[str, Floats]

_NUMBERS = "numbers"


@dataclass(frozen=True)
class Part:
    """Some features of a batch.

    Attributes:
        schema: Their outputs, in the order of the columns of `batch`.
        batch: 1 row, which stands for all, or N rows.
    """

    schema: FeatureSchema
    batch: EncodedBatch


class Activations:
    """Looks embeddings up.

    Args:
        groups: The fused tables.
        tables: Their rows by file: [rows, dim].
        numbers: The feature of each column of the network's `numbers`.
    """

    def __init__(self, groups: Sequence[GroupEntry], tables: Tables, numbers: Sequence[str]) -> None:
        self._groups = tuple(groups)
        self._tables = tables
        self._numbers = tuple(numbers)

    def fill(self, views: Mapping[str, npt.NDArray[Any]], parts: Sequence[Part]) -> None:
        """Writes the activations of a batch, under the names of `EmbeddingCollection`.

        Args:
            views: Arrays [N, ...] to write to; what is not among them is not looked up. What belongs to features
                of no part keeps its value.
            parts: Features of the batch; each is in one part at most.
        """
        for group in self._groups:
            for kind, file in group.tables.items():
                key = f"{kind}/{group.name}"
                if key in views:
                    self._singles(views[key], group, self._tables[file], parts)
            for field in group.multis:
                self._multi(views, group, field, parts)
        if _NUMBERS in views:
            self._fill_numbers(views[_NUMBERS], parts)

    def _singles(self, view: Floats, group: GroupEntry, table: Floats, parts: Sequence[Part]) -> None:
        rows = np.zeros((len(view), len(group.singles)), np.int64)
        places = {field.feature: (place, field.offset) for place, field in enumerate(group.singles)}
        for part in parts:
            own = [
                (column, *places[output.feature])
                for column, output in enumerate(part.schema.single_ids)
                if output.feature in places
            ]
            if own:
                columns, there, offsets = np.array(own).T
                ids = part.batch.dense["ids"]
                # A slice where the columns are neighbours: copying by index costs several times as much.
                rows[:, _slice(there)] = ids[:, _slice(columns)] + offsets
        np.take(table, rows, axis=0, out=view, mode="clip")

    def _multi(
        self, views: Mapping[str, Floats], group: GroupEntry, field: FieldEntry, parts: Sequence[Part]
    ) -> None:
        name = field.feature
        column = next((part.batch.ragged[name] for part in parts if name in part.batch.ragged), None)
        if column is None:
            return
        ids = column.values.astype(np.int64) + field.offset
        for kind, file in group.tables.items():
            # Linear weights of several values add up; a maximum of weights would not be a linear model.
            pooling = "sum" if kind == "linear" and field.pooling == "max" else field.pooling or "mean"
            key = f"{'linear_' if kind == 'linear' else ''}pooled/{name}"
            if key in views:
                weights = column.weights if field.weighted else None
                views[key][:] = pool(self._tables[file][ids], column, pooling, weights)
            if kind == "embedding" and field.sequence and f"sequence/{name}" in views:
                padded, mask = pad(self._tables[file][ids], column, field.max_length)
                views[f"sequence/{name}"][:] = padded
                if f"mask/{name}" in views:
                    views[f"mask/{name}"][:] = mask

    def _fill_numbers(self, view: Floats, parts: Sequence[Part]) -> None:
        first = {feature: place for place, feature in reversed(list(enumerate(self._numbers)))}
        for part in parts:
            for start, stop, output in _number_columns(part.schema):
                place = first[output]
                view[:, place : place + stop - start] = part.batch.dense[_NUMBERS][:, start:stop]


def pool(vectors: Floats, column: RaggedColumn, pooling: Pooling, weights: Floats | None) -> Floats:
    """One vector per row; the NumPy form of `easyrec.embedding.pooling.pool`.

    Args:
        vectors: Embeddings of all rows one after the other, [V, D].
        column: How many of them belong to each row.
        pooling: Which of the four.
        weights: Weight of each value, [V].

    Returns:
        [B, D].
    """
    if weights is not None:
        vectors = vectors * weights[:, None]
    total = _reduce(np.maximum if pooling == "max" else np.add, vectors, column)
    if pooling in ("max", "sum"):
        return total
    if weights is None:
        divisor = column.row_lengths.astype(np.float32)[:, None]
    else:
        divisor = _reduce(np.add, (weights if pooling == "mean" else weights**2)[:, None], column)
    divisor = divisor if pooling == "mean" else np.sqrt(divisor)
    return np.divide(total, divisor, out=np.zeros_like(total), where=divisor != 0)


def pad(vectors: Floats, column: RaggedColumn, max_length: int) -> tuple[Floats, Floats]:
    """Values [B, L, D] with zeros where a sequence has ended, and the mask [B, L] of 1.0 and 0.0."""
    mask = np.arange(max_length) < column.row_lengths[:, None]
    padded = np.zeros((len(mask), max_length, vectors.shape[1]), np.float32)
    padded[mask] = vectors
    return padded, mask.astype(np.float32)


def _reduce(operation: np.ufunc, values: Floats, column: RaggedColumn) -> Floats:
    """Rows reduced to one value each; zeros for rows without values."""
    result = np.zeros((len(column.row_lengths), values.shape[1]), np.float32)
    filled = np.flatnonzero(column.row_lengths)
    if len(filled):
        result[filled] = operation.reduceat(values, column.splits[filled], axis=0)
    return result


def _slice(places: npt.NDArray[Any]) -> slice | npt.NDArray[Any]:
    """Increasing neighbours as a slice."""
    neighbours = len(places) == 1 or bool((np.diff(places) == 1).all())
    return slice(int(places[0]), int(places[-1]) + 1) if neighbours else places


def _number_columns(schema: FeatureSchema) -> Iterator[tuple[int, int, str]]:
    start = 0
    for output in schema.numbers:
        yield start, start + output.width, output.feature
        start += output.width
