"""What `tags` and `sequence` share: lists of categories from list columns, maps, or text with a separator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from easyrec.features.base import Counter
from easyrec.features.columns import decode, read
from easyrec.features.counting import as_text
from easyrec.features.inputs import InputSpec
from easyrec.features.tensors import Tensor, as_ragged, keep, missing, positions_in_row, split_text


def pieces_tensor(values: Tensor, separator: str | None) -> Tensor:
    """A RaggedTensor [B, None] of raw values, missing ones included, from any of the forms a list comes in."""
    if separator is not None and values.shape.rank == 1:
        return split_text(values, separator)
    return as_ragged(values)


def drop_missing(ragged: Sequence[Tensor], source: Tensor, count: Counter) -> list[Tensor]:
    """Drops missing values (padding, nulls, empty pieces) from parallel ragged tensors; the first one decides.

    What is dropped is counted as `dropped`, save the one empty piece that empty text is split into.

    Args:
        ragged: RaggedTensors [B, None] with the same row splits.
        source: The raw tensor they come from.
        count: The counter.
    """
    first = ragged[0]
    absent = missing(first.flat_values)
    if count.enabled:
        dropped = absent
        if source.shape.rank == 1:
            empty_text = tf.gather(missing(source), first.value_rowids())
            dropped = tf.logical_and(absent, tf.logical_not(empty_text))
        count("dropped", first.with_flat_values(dropped))
    return keep(ragged, tf.logical_not(absent))


def cut(ragged: Sequence[Tensor], max_length: int | None, latest: bool, count: Counter) -> list[Tensor]:
    """Cuts rows to `max_length` values, the first or the latest ones; counts what is cut as `cut`."""
    if max_length is None:
        return list(ragged)
    first = ragged[0]
    positions = positions_in_row(first)
    if latest:
        positions = tf.gather(first.row_lengths(), first.value_rowids()) - 1 - positions
    inside = positions < max_length
    count("cut", first.with_flat_values(tf.logical_not(inside)))
    return keep(ragged, inside)


def pieces_reader(
    spec: InputSpec, separator: str | None, key: Callable[[pa.Array], pa.Array] | None = None
) -> Callable[[pa.Table], pa.Array]:
    """How a fitter reads the single values of a chunk: the Arrow twin of `pieces_tensor`.

    Args:
        spec: The input.
        separator: Splits text, or None.
        key: Applied to the text of each piece, such as cutting a weight off.
    """

    def values(chunk: pa.Table) -> pa.Array:
        column = read(chunk, spec)
        found = column.values
        if separator is not None and not spec.list:
            text = as_text(decode(found)).drop_null()
            split = pc.split_pattern(text, separator)
            found = pc.ascii_trim_whitespace(split.flatten())
        return found if key is None else key(decode(found))

    return values
