"""Canonical columns to tensors, and the tensor operations that features share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from easyrec.features.columns import Column
from easyrec.features.inputs import MISSING_INT

Tensor = Any
"""A tf.Tensor or tf.RaggedTensor."""

_SEPARATOR = b"\x1e"
_FEW = 256


class WeightedIds(NamedTuple):
    """Several ids a row, each with a weight: two ragged tensors with the same row splits."""

    ids: Tensor
    weights: Tensor


def values_tensor(values: pa.Array) -> Tensor:
    """Canonical values as a tensor [N]; nulls become what stands for missing.

    Args:
        values: int64, float32, string or binary, not a dictionary.
    """
    return tensor_of(values)()


def tensor_of(values: pa.Array) -> Callable[[], Tensor]:
    """A function that gives `values_tensor`.

    Called where a graph is traced, it leaves one constant with all the text there, where the tensor itself would leave
    one for each text; those take ten times the memory wherever the graph is loaded.
    """
    if pa.types.is_integer(values.type):
        numbers = (values.fill_null(MISSING_INT) if values.null_count else values).to_numpy()
        return lambda: tf.constant(numbers)
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        return lambda: tf.constant(numbers)
    return _text_tensor_of(values.fill_null("") if values.null_count else values)


def _text_tensor_of(values: pa.Array) -> Callable[[], Tensor]:
    """Text joined in Arrow and split by TensorFlow: about twice as fast as through Python objects, and parallel."""
    if len(values) > _FEW:
        one_list = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        separator = pa.scalar(_SEPARATOR if _is_binary(values.type) else _SEPARATOR.decode(), values.type)
        joined = pc.binary_join(one_list, separator)[0].as_buffer()
        found = np.count_nonzero(np.frombuffer(joined, np.uint8) == _SEPARATOR[0])
        if found == len(values) - 1:
            text = joined.to_pybytes()
            return lambda: (
                tf.raw_ops.StringSplitV2(input=tf.constant([text]), sep=_SEPARATOR, maxsplit=-1).values
            )
    texts = values.to_pylist()
    return lambda: tf.constant(texts, tf.string)


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def column_tensor(column: Column) -> Tensor:
    """A canonical column as a tensor [B], or as a RaggedTensor [B, None] for lists."""
    values = values_tensor(column.decoded)
    if column.splits is None:
        return values
    return tf.RaggedTensor.from_row_splits(values, tf.constant(column.splits), validate=False)


def missing(values: Tensor) -> Tensor:
    """Which values stand for missing: bool, same shape. Infinities count as missing."""
    if values.dtype == tf.string:
        return tf.equal(values, "")
    if values.dtype == tf.int64:
        return tf.equal(values, MISSING_INT)
    return tf.logical_not(tf.math.is_finite(values))


def as_text(values: Tensor) -> Tensor:
    """Categories as text; missing becomes ""."""
    if values.dtype == tf.string:
        return values
    return tf.where(missing(values), "", tf.strings.as_string(values))


def keep(ragged: Sequence[Tensor], mask: Tensor) -> list[Tensor]:
    """Only the values for which `mask` holds, of several ragged tensors with the same row splits.

    Args:
        ragged: RaggedTensors [B, None].
        mask: [V] bool over their flat values.
    """
    kept_before = tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], axis=0)
    splits = tf.gather(kept_before, ragged[0].row_splits)
    positions = tf.where(mask)[:, 0]
    return [
        tf.RaggedTensor.from_row_splits(tf.gather(one.flat_values, positions), splits, validate=False)
        for one in ragged
    ]


def as_ragged(values: Tensor) -> Tensor:
    """A dense tensor [B, L] (padding included) or a RaggedTensor [B, None] as a RaggedTensor."""
    if isinstance(values, tf.RaggedTensor):
        return values
    shape = tf.shape(values, out_type=tf.int64)
    splits = tf.range(shape[0] + 1) * shape[1]
    return tf.RaggedTensor.from_row_splits(tf.reshape(values, [-1]), splits, validate=False)


def positions_in_row(ragged: Tensor) -> Tensor:
    """[V] int64: the place of each flat value in its row, counted from 0."""
    starts = tf.gather(ragged.row_starts(), ragged.value_rowids())
    return tf.range(tf.size(ragged.flat_values, out_type=tf.int64)) - starts


def split_text(text: Tensor, separator: str) -> Tensor:
    """Text [B] cut at `separator`; surrounding blanks are removed. Empty pieces are left for the caller to drop."""
    pieces = tf.strings.split(text, sep=separator)
    return pieces.with_flat_values(tf.strings.strip(pieces.flat_values))
