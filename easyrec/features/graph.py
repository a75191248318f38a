"""The traced function that encodes a chunk: all features in one call, one trace per layout of the columns.

A column arrives as one tensor [B], as flat values and row splits (lists), or, where Arrow holds text as a dictionary,
as the distinct values and which of them each row has. In the last case a feature that reads nothing else runs on the
distinct values, and its results are spread over the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import tensorflow as tf

from easyrec.features.base import Counter, Transform
from easyrec.features.columns import Column
from easyrec.features.tensors import Tensor, WeightedIds, values_tensor


@dataclass(frozen=True)
class ColumnLayout:
    """How one input arrives.

    Attributes:
        name: Name of the input.
        role: How it is read; one column may be read as a category and as a number.
        dtype: Type of its values.
        form: One value a row, lists, or a dictionary of distinct values.
    """

    name: str
    role: str
    dtype: tf.DType
    form: Literal["dense", "ragged", "dictionary"]


Layout = tuple[ColumnLayout, ...]
Traced = tuple[Any, list[tuple[str, str]]]


def column_layout(name: str, role: str, column: Column) -> ColumnLayout:
    """How a canonical column is handed to the traced function."""
    kind = column.values.type
    if pa.types.is_dictionary(kind):
        form: Literal["dense", "ragged", "dictionary"] = (
            "ragged" if column.splits is not None else "dictionary"
        )
        return ColumnLayout(name, role, tf.string, form)
    dtype = tf.int64 if pa.types.is_integer(kind) else tf.float32 if pa.types.is_floating(kind) else tf.string
    return ColumnLayout(name, role, dtype, "dense" if column.splits is None else "ragged")


def column_tensors(column: Column) -> list[Tensor]:
    """The tensors of a column, as `trace` expects them."""
    values = column.values
    if column.splits is not None:
        return [values_tensor(column.decoded), tf.constant(column.splits)]
    if not pa.types.is_dictionary(values.type):
        return [values_tensor(values)]
    # One more distinct value, "", stands for null.
    distinct = tf.concat([values_tensor(values.dictionary), [""]], axis=0)
    indices = values.indices.fill_null(len(values.dictionary))
    return [distinct, tf.constant(np.asarray(indices).astype(np.int32))]


def trace(transforms: Mapping[str, Transform[Any]], layout: Layout, count: bool) -> Traced:
    """A concrete function of the flat tensors of all columns.

    Returns:
        The function, which returns a dictionary of lists of tensors by feature ([ids], [numbers], or [values,
        row lengths] and [weights]) and a vector of counters; and the (feature, counter) names of that vector.
    """
    names: list[tuple[str, str]] = []

    def encode(*flat: Tensor) -> tuple[dict[str, list[Tensor]], Tensor]:
        columns = _unflatten(layout, flat)
        outputs: dict[str, list[Tensor]] = {}
        totals: list[Tensor] = []
        names.clear()
        for name, transform in transforms.items():
            specs = transform.inputs()
            arrived = {spec.name: columns[spec.name, spec.role] for spec in specs}
            encoded, counter = _run(transform, arrived, count)
            if count and not isinstance(encoded, tf.Tensor):
                ids = encoded.ids if isinstance(encoded, WeightedIds) else encoded
                counter.totals["values"] = tf.size(ids.flat_values, out_type=tf.int64)
            outputs[name] = _parts(encoded)
            names.extend((name, key) for key in counter.totals)
            totals.extend(counter.totals.values())
        return outputs, tf.stack(totals) if totals else tf.zeros([0], tf.int64)

    specs = []
    for column in layout:
        specs.append(tf.TensorSpec([None], column.dtype))
        if column.form != "dense":
            specs.append(tf.TensorSpec([None], tf.int64 if column.form == "ragged" else tf.int32))
    return tf.function(encode, autograph=False).get_concrete_function(*specs), names


@dataclass(frozen=True)
class _Dictionary:
    values: Tensor
    indices: Tensor

    def decoded(self) -> Tensor:
        return tf.gather(self.values, self.indices)


def _unflatten(layout: Layout, flat: tuple[Tensor, ...]) -> dict[tuple[str, str], Any]:
    columns: dict[tuple[str, str], Any] = {}
    remaining = iter(flat)
    for column in layout:
        values = next(remaining)
        if column.form == "ragged":
            values = tf.RaggedTensor.from_row_splits(values, next(remaining), validate=False)
        elif column.form == "dictionary":
            values = _Dictionary(values, next(remaining))
        columns[column.name, column.role] = values
    return columns


def _run(transform: Transform[Any], arrived: Mapping[str, Any], count: bool) -> tuple[Any, Counter]:
    """Runs a transform, on distinct values where it reads nothing but one dictionary."""
    if len(arrived) == 1:
        ((name, only),) = arrived.items()
        if isinstance(only, _Dictionary):
            repeats = None
            if count:
                size = tf.size(only.values)
                repeats = tf.math.bincount(only.indices, minlength=size, maxlength=size, dtype=tf.int64)
            counter = Counter(count, repeats)
            return _spread(transform.transform({name: only.values}, counter), only.indices), counter
    counter = Counter(count)
    columns = {name: one.decoded() if isinstance(one, _Dictionary) else one for name, one in arrived.items()}
    return transform.transform(columns, counter), counter


def _spread(encoded: Any, indices: Tensor) -> Any:
    if isinstance(encoded, WeightedIds):
        return WeightedIds(tf.gather(encoded.ids, indices), tf.gather(encoded.weights, indices))
    return tf.gather(encoded, indices)


def _parts(encoded: Any) -> list[Tensor]:
    if isinstance(encoded, WeightedIds):
        ids = encoded.ids
        return [ids.flat_values, tf.cast(ids.row_lengths(), tf.int32), encoded.weights.flat_values]
    if isinstance(encoded, tf.RaggedTensor):
        return [encoded.flat_values, tf.cast(encoded.row_lengths(), tf.int32)]
    return [encoded]
