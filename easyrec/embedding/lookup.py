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
from easyrec.features.coded_ids import CodedIds

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


def coded_lookup(groups: tuple[Group, ...], batch: Mapping[str, tf.Tensor], coded: CodedIds) -> Lookup:
    """The lookup of a batch whose distinct ids are known, in TensorFlow ops; they are sorted then."""
    lookup = _extras(groups, batch)
    for group in groups:
        # Tables that are shared with features that this model leaves out hold more ids than it uses.
        found = _from_places(group, coded) if _uses_all(group, coded) else tf.unique(flat_ids(group, batch))
        lookup[f"unique/{group.name}"], lookup[f"inverse/{group.name}"] = found
    return lookup


def _uses_all(group: Group, coded: CodedIds) -> bool:
    own = {table.name for table in group.tables}
    known = [one for one in coded.dictionaries if one.table in own]
    features = {output.feature for output in group.multis}
    return all(set(one.columns) <= set(group.columns) and set(one.features) <= features for one in known)


def _from_places(group: Group, coded: CodedIds) -> tuple[tf.Tensor, tf.Tensor]:
    """The distinct ids of a group as rows of its fused table, ascending, and where the batch's ids lie in them."""
    known = [one.table for one in coded.dictionaries]
    order = [known.index(table.name) for table in group.tables]
    distinct, sizes = coded.distinct, coded.sizes
    if order != list(range(len(known))):
        parts = tf.split(distinct, sizes, num=len(known))
        distinct, sizes = tf.concat([parts[index] for index in order], 0), tf.gather(sizes, order)
    starts = tf.cumsum(sizes, exclusive=True)
    offsets = np.array([table.offset for table in group.tables], group.id_dtype)
    # The offset of each distinct id's table: what the tables' starts add, added up. The last tables may be empty.
    steps = tf.tensor_scatter_nd_add(
        tf.zeros([tf.size(distinct) + 1], group.id_dtype), starts[:, None], np.diff(offsets, prepend=0)
    )
    unique = tf.cast(distinct, group.id_dtype) + tf.cumsum(steps)[:-1]
    position = {table.name: index for index, table in enumerate(group.tables)}
    inverse = []
    if group.singles:
        places = coded.places["ids"]
        if group.columns != tuple(range(places.shape[1])):
            places = tf.gather(places, group.columns, axis=1)
        own = tf.gather(starts, [position[output.table] for output in group.singles])
        inverse.append(tf.reshape(places + own, [-1]))
    inverse += [coded.places[one.feature] + starts[position[one.table]] for one in group.multis]
    return unique, inverse[0] if len(inverse) == 1 else tf.concat(inverse, 0)


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
