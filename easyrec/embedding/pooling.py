"""Several embeddings of one row made one vector, and sequences laid out with a mask."""

from __future__ import annotations

import tensorflow as tf

from easyrec.config.features import Pooling


def row_ids(lengths: tf.Tensor) -> tf.Tensor:
    """The row of each value, [V] int32, from how many values each row has [B]."""
    return tf.repeat(tf.range(tf.size(lengths)), lengths)


def pool(
    values: tf.Tensor, lengths: tf.Tensor, rows: tf.Tensor, pooling: Pooling, weights: tf.Tensor | None = None
) -> tf.Tensor:
    """One vector per row; rows without values give zeros.

    With weights w (Σ over the values v of a row): `sum` is Σ w v, `mean` is Σ w v / Σ w, `sqrtn` is
    Σ w v / sqrt(Σ w²), as in `tf.nn.embedding_lookup_sparse`; `max` is the largest w v of each column. Without
    weights all w are 1. A row whose weights add up to zero gives zeros under `mean` and `sqrtn`.

    Args:
        values: Embeddings of all rows one after the other, [V, D].
        lengths: Number of values of each row, [B].
        rows: Row of each value, [V], from `row_ids`.
        pooling: Which of the four.
        weights: Weight of each value, [V].

    Returns:
        [B, D].
    """
    count = tf.size(lengths)
    if weights is not None:
        values = values * weights[:, None]
    if pooling == "max":
        largest = tf.math.unsorted_segment_max(values, rows, count)
        return tf.where(lengths[:, None] > 0, largest, 0.0)
    total = _sum(values, rows, count)
    if pooling == "sum":
        return total
    if weights is None:
        divisor = tf.cast(lengths, values.dtype)[:, None]
    elif pooling == "mean":
        divisor = tf.math.unsorted_segment_sum(weights, rows, count)[:, None]
    else:
        divisor = tf.math.unsorted_segment_sum(tf.square(weights), rows, count)[:, None]
    return tf.math.divide_no_nan(total, divisor if pooling == "mean" else tf.sqrt(divisor))


def _sum(values: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    # The row ids are sorted, which the sparse form makes use of; the dense sorted one cannot end in empty rows.
    return tf.sparse.segment_sum(values, tf.range(tf.size(rows)), rows, num_segments=count)


def pad(
    values: tf.Tensor, lengths: tf.Tensor, rows: tf.Tensor, max_length: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sequences of different length as one array.

    Args:
        values: Embeddings of all rows one after the other, [V, D].
        lengths: Number of values of each row, [B], each at most `max_length`.
        rows: Row of each value, [V], from `row_ids`.
        max_length: L.

    Returns:
        Values [B, L, D] with zeros where a sequence has ended, and the mask [B, L] of 1.0 and 0.0.
    """
    count = tf.size(lengths)
    starts = tf.cumsum(lengths, exclusive=True)
    places = rows * max_length + tf.range(tf.size(rows)) - tf.gather(starts, rows)
    dim = values.shape[1]
    padded = tf.scatter_nd(places[:, None], values, [count * max_length, dim])
    mask = tf.sequence_mask(lengths, max_length, tf.float32)
    return tf.reshape(padded, [-1, max_length, dim]), mask
