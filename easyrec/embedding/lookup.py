"""The ids of a batch made unique, per group: what travels between a batch and the tables.

A lookup is a flat mapping of tensors, so that it enters compiled functions as it is. For each group `<g>` with N ids
in the batch, U of them distinct:

    unique/<g>    [U]  the distinct ids, as rows of the fused table
    inverse/<g>   [N]  int32, where each id of the batch lies in `unique`

and, from the batch, `<feature>/row_lengths` and `<feature>/weights` of multi-valued features.

Gradients of the rows are added up by a product with a sparse matrix, which has a one where a row of the table and a
place in the batch belong together. TensorFlow runs it as a plain loop over narrow rows: for 16 values a row it costs
half of a sorted segment sum and a quarter of an unsorted one (docs/explanation/performance.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from easyrec.embedding.layout import Group

Lookup = dict[str, tf.Tensor]


def flat_ids(group: Group, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """All ids of a group in a batch as rows of its fused table, [N]."""
    parts = []
    if group.singles:
        ids = batch["ids"]
        if group.columns != tuple(range(ids.shape[1])):
            ids = tf.gather(ids, group.columns, axis=1)
        parts.append(
            tf.reshape(tf.cast(ids, group.id_dtype) + tf.constant(group.single_offsets, group.id_dtype), [-1])
        )
    for output in group.multis:
        values = tf.cast(batch[f"{output.feature}/values"], group.id_dtype)
        parts.append(values + tf.constant(group.offset(output), group.id_dtype))
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


def _extras(groups: tuple[Group, ...], batch: Mapping[str, Any]) -> Lookup:
    """What pooling needs beside the ids."""
    extras = {}
    for group in groups:
        for output in group.multis:
            keys = [
                f"{output.feature}/row_lengths",
                *([f"{output.feature}/weights"] if output.weighted else []),
            ]
            extras.update({key: tf.convert_to_tensor(batch[key]) for key in keys})
    return extras


def graph_lookup(groups: tuple[Group, ...], batch: Mapping[str, tf.Tensor]) -> Lookup:
    """The lookup of a batch, in TensorFlow ops."""
    return _lookup(groups, batch, flat_ids)


def host_lookup(groups: tuple[Group, ...], batch: Mapping[str, npt.NDArray[Any]]) -> Lookup:
    """The lookup of a batch of NumPy arrays; for the input thread."""
    return _lookup(groups, batch, _host_ids)


def _lookup(groups: tuple[Group, ...], batch: Mapping[str, Any], ids: Callable[..., Any]) -> Lookup:
    lookup = _extras(groups, batch)
    for group in groups:
        unique, inverse = tf.unique(ids(group, batch))
        lookup[f"unique/{group.name}"] = unique
        lookup[f"inverse/{group.name}"] = inverse
    return lookup


def _host_ids(group: Group, batch: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    parts = []
    if group.singles:
        ids = batch["ids"]
        if group.columns != tuple(range(ids.shape[1])):
            ids = ids[:, group.columns]
        parts.append(np.add(ids, group.single_offsets, dtype=group.id_dtype).reshape(-1))
    parts.extend(
        np.add(batch[f"{output.feature}/values"], group.offset(output), dtype=group.id_dtype)
        for output in group.multis
    )
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@tf.custom_gradient
def _take(rows, inverse):  # type: ignore[no-untyped-def]
    """`tf.gather(rows, inverse)` whose gradient is dense: the rows are few and all of them used."""

    def gradient(upstream):  # type: ignore[no-untyped-def]
        count = tf.size(inverse, tf.int64)
        places = tf.stack([tf.cast(inverse, tf.int64), tf.range(count)], axis=1)
        chosen = tf.SparseTensor(
            places, tf.ones_like(inverse, upstream.dtype), [tf.shape(rows, tf.int64)[0], count]
        )
        return tf.sparse.sparse_dense_matmul(chosen, upstream), None

    return tf.gather(rows, inverse), gradient


def take(rows: tf.Tensor, lookup: Lookup, group: Group) -> tf.Tensor:
    """Rows of the unique ids [U, D] laid out for every id of the batch, [N, D]; differentiable in `rows`."""
    return _take(rows, lookup[f"inverse/{group.name}"])
