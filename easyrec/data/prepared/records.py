"""One record of a shard: an encoded batch as 32-bit words, read by NumPy here and by TensorFlow on remote workers.

    rows | number of values of each ragged column | number of distinct ids of each table
    | ids | numbers | labels ... | values | row_lengths | weights | ... | distinct ids

Ids and values are places among the distinct ids of their table (`easyrec.features.coded_ids`). All arrays of a batch
are int32 or float32, so a record is a row of little-endian words: a header with the sizes that change from batch to
batch, then the arrays in the order of the layout. Nothing is parsed beyond slicing, and the record's own checksum
(TFRecord has one) tells damage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from easyrec.errors import DataError
from easyrec.features.batch import Array, EncodedBatch, RaggedColumn
from easyrec.features.coded_ids import IDS, CodedIds, Dictionary, code, decode

_WORD = np.dtype("<i4")
_FLOAT = np.dtype("<f4")
_NONE = np.empty(0, np.int32)


@dataclass(frozen=True)
class Dense:
    """An array with one entry a row.

    Attributes:
        name: Its key in the batch.
        width: Columns, or None for an array of one dimension.
        real: float32 rather than int32.
    """

    name: str
    width: int | None
    real: bool


@dataclass(frozen=True)
class Ragged:
    """A column with several ids a row.

    Attributes:
        name: The feature.
        weighted: Whether each id has a weight.
    """

    name: str
    weighted: bool


@dataclass(frozen=True)
class RecordLayout:
    """What the records of one set of shards hold, in order.

    Attributes:
        dense: Arrays with one entry a row.
        ragged: Columns with several ids a row.
        dictionaries: Which ids are numbered together; none where ids are held as they are.
    """

    dense: tuple[Dense, ...]
    ragged: tuple[Ragged, ...]
    dictionaries: tuple[Dictionary, ...] = ()

    @classmethod
    def of(cls, batch: EncodedBatch, dictionaries: Sequence[Dictionary] = ()) -> RecordLayout:
        """The layout of a batch whose ids are numbered by dictionaries; all of them or none."""
        return cls(
            tuple(
                Dense(name, array.shape[1] if array.ndim == 2 else None, array.dtype.kind == "f")
                for name, array in batch.dense.items()
            ),
            tuple(Ragged(name, column.weights is not None) for name, column in batch.ragged.items()),
            tuple(dictionaries),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "dense": [vars(part) for part in self.dense],
            "ragged": [vars(part) for part in self.ragged],
            "dictionaries": [vars(part) for part in self.dictionaries],
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> RecordLayout:
        """The layout that `as_dict` described."""
        return cls(
            tuple(Dense(**part) for part in stored["dense"]),
            tuple(Ragged(**part) for part in stored["ragged"]),
            tuple(
                Dictionary(part["table"], tuple(part["columns"]), tuple(part["features"]))
                for part in stored["dictionaries"]
            ),
        )

    # NumPy.

    def pack(self, batch: EncodedBatch) -> bytes:
        """A batch as one record.

        Raises:
            DataError: It has other columns than the layout.
        """
        if RecordLayout.of(batch, self.dictionaries) != self:
            raise DataError(
                f"a batch with the columns {sorted(batch.keys())} does not fit shards with "
                f"{[*(part.name for part in self.dense), *(part.name for part in self.ragged)]}"
            )
        distinct, sizes = _NONE, _NONE
        if self.dictionaries:
            batch, distinct, sizes = code(batch, self.dictionaries)
        columns = [batch.ragged[part.name] for part in self.ragged]
        counts = [len(one.values) for one in columns]
        parts: list[Array] = [np.array([batch.num_rows, *counts, *sizes], _WORD)]
        parts += [batch.dense[part.name] for part in self.dense]
        for column in columns:
            parts += [column.values, column.row_lengths]
            if column.weights is not None:
                parts.append(column.weights)
        parts.append(distinct)
        return b"".join(
            np.ascontiguousarray(part, _FLOAT if part.dtype.kind == "f" else _WORD).tobytes()
            for part in parts
        )

    def unpack(self, record: bytes) -> EncodedBatch:
        """The batch of a record; its arrays are read-only.

        Raises:
            DataError: The record has another length than its header says.
        """
        if len(record) % 4 or len(record) < len(self.empty):
            raise DataError(f"a record of {len(record)} bytes is too short for its header")
        words = np.frombuffer(record, _WORD)
        position = self._header
        rows, *counts = words[:position].tolist()
        sizes = words[1 + len(self.ragged) : position]

        def take(length: int, real: bool) -> Array:
            nonlocal position
            part = words[position : position + length]
            if length < 0 or len(part) != length:
                raise DataError(f"a record of {len(record)} bytes ends before its arrays do")
            position += length
            return part.view(_FLOAT) if real else part

        dense = {}
        for one in self.dense:
            values = take(rows * (1 if one.width is None else one.width), one.real)
            dense[one.name] = values if one.width is None else values.reshape(rows, one.width)
        ragged = {}
        for column, size in zip(self.ragged, counts, strict=False):
            values, lengths = take(size, False), take(rows, False)
            weights = take(size, True) if column.weighted else None
            ragged[column.name] = RaggedColumn(values, lengths, weights)
        distinct = take(int(sizes.sum()), False)
        if position != len(words):
            raise DataError(f"a record of {len(record)} bytes goes on after its arrays end")
        batch = EncodedBatch(rows, dense, ragged)
        return decode(batch, self.dictionaries, distinct, sizes) if self.dictionaries else batch

    @property
    def empty(self) -> bytes:
        """The record of a batch without rows."""
        return bytes(_WORD.itemsize * self._header)

    @property
    def _header(self) -> int:
        """Words of it."""
        return 1 + len(self.ragged) + len(self.dictionaries)

    # TensorFlow.

    def parse(self, record: tf.Tensor) -> tuple[dict[str, tf.Tensor], CodedIds | None]:
        """The tensors of a record, a scalar string, in a graph.

        Returns:
            The batch under the keys of `EncodedBatch.as_dict`, and its ids as they are numbered, if they are.
        """
        words = tf.io.decode_raw(record, tf.int32)
        header = words[: self._header]
        rows, sizes = header[0], header[1 + len(self.ragged) :]
        lengths: list[Any] = [self._header]
        lengths += [rows * (1 if one.width is None else one.width) for one in self.dense]
        for index, column in enumerate(self.ragged):
            size = header[1 + index]
            lengths += [size, rows, *([size] if column.weighted else [])]
        lengths.append(tf.reduce_sum(sizes))
        _, *parts = tf.split(words, tf.stack(lengths), num=len(lengths))
        pieces = iter(parts)
        tensors: dict[str, tf.Tensor] = {}
        for one in self.dense:
            values = next(pieces)
            if one.real:
                values = tf.bitcast(values, tf.float32)
            tensors[one.name] = tf.reshape(values, [rows] if one.width is None else [rows, one.width])
        for column in self.ragged:
            tensors[f"{column.name}/values"] = next(pieces)
            tensors[f"{column.name}/row_lengths"] = next(pieces)
            if column.weighted:
                tensors[f"{column.name}/weights"] = tf.bitcast(next(pieces), tf.float32)
        if not self.dictionaries:
            return tensors, None
        keys = {IDS: IDS, **{column.name: f"{column.name}/values" for column in self.ragged}}
        places = {name: tensors[key] for name, key in keys.items() if key in tensors}
        coded = CodedIds(self.dictionaries, next(pieces), sizes, places)
        return {**tensors, **{keys[name]: ids for name, ids in coded.ids().items()}}, coded
