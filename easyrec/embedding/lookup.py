"""The ids of a batch made unique, per group: what travels between a batch and the tables.

A lookup is a flat mapping of tensors, so that it enters compiled functions as it is. For each group `<g>` with N ids
in the batch, U of them distinct:

    unique/<g>    [U]  the distinct ids, as rows of the fused table
    inverse/<g>   [N]  int32, where each id of the batch lies in `unique`
    order/<g>     [N]  int32, positions in the batch sorted by `inverse`
    segments/<g>  [N]  int32, `inverse` in that order

and, from the batch, `<feature>/row_lengths` and `<feature>/weights` of multi-valued features.

`order` and `segments` let gradients be added up by a sorted segment sum, which costs a quarter of an unsorted one
(docs/explanation/performance.md). They come from a counting sort outside the graph; a lookup made inside a graph
lacks them and falls back to the unsorted sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from scipy import sparse

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
    lookup = _extras(groups, batch)
    for group in groups:
        unique, inverse = tf.unique(flat_ids(group, batch))
        lookup[f"unique/{group.name}"] = unique
        lookup[f"inverse/{group.name}"] = inverse
    return lookup


def host_lookup(groups: tuple[Group, ...], batch: Mapping[str, npt.NDArray[Any]]) -> Lookup:
    """The lookup of a batch of NumPy arrays with the order that makes gradients cheap; for the input thread."""
    lookup = _extras(groups, batch)
    for group in groups:
        unique, inverse = tf.unique(_host_ids(group, batch))
        order, segments = _counting_sort(inverse.numpy(), int(unique.shape[0]))
        lookup[f"unique/{group.name}"] = unique
        lookup[f"inverse/{group.name}"] = inverse
        lookup[f"order/{group.name}"] = tf.convert_to_tensor(order)
        lookup[f"segments/{group.name}"] = tf.convert_to_tensor(segments)
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


def _counting_sort(
    inverse: npt.NDArray[np.int32], count: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Positions sorted by value, equal values in their order, and the sorted values.

    Args:
        inverse: Values from 0 to `count - 1`, [N].
        count: How many distinct values there are, each present.
    """
    size = inverse.size
    if size == 0:
        return np.empty(0, np.int32), np.empty(0, np.int32)
    # Turning coordinates into compressed rows is a counting sort in C: a tenth of the time of `argsort`.
    matrix = sparse.csr_array(
        (np.ones(size, np.int8), (inverse, np.arange(size, dtype=np.int32))), shape=(count, size)
    )
    segments = np.repeat(np.arange(count, dtype=np.int32), np.diff(matrix.indptr))
    return matrix.indices.astype(np.int32, copy=False), segments


@tf.custom_gradient
def _take_ordered(rows, inverse, order, segments):  # type: ignore[no-untyped-def]
    """`tf.gather(rows, inverse)` whose gradient is a sorted segment sum."""

    def gradient(upstream):  # type: ignore[no-untyped-def]
        return tf.math.segment_sum(tf.gather(upstream, order), segments), None, None, None

    return tf.gather(rows, inverse), gradient


@tf.custom_gradient
def _take(rows, inverse):  # type: ignore[no-untyped-def]
    """`tf.gather(rows, inverse)` whose gradient is dense: the rows are few and all of them used."""

    def gradient(upstream):  # type: ignore[no-untyped-def]
        return tf.math.unsorted_segment_sum(upstream, inverse, tf.shape(rows)[0]), None

    return tf.gather(rows, inverse), gradient


def take(rows: tf.Tensor, lookup: Lookup, group: Group) -> tf.Tensor:
    """Rows of the unique ids [U, D] laid out for every id of the batch, [N, D]; differentiable in `rows`."""
    inverse = lookup[f"inverse/{group.name}"]
    order = lookup.get(f"order/{group.name}")
    if order is None:
        return _take(rows, inverse)
    return _take_ordered(rows, inverse, order, lookup[f"segments/{group.name}"])
