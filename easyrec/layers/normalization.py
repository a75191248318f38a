"""Batch normalisation whose statistics can be those of several replicas' batches together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import keras
import tensorflow as tf
from keras import ops

Sum = Callable[[list[tf.Tensor]], list[tf.Tensor]]
_SUM: ContextVar[Sum | None] = ContextVar("sum_over_replicas", default=None)


@contextmanager
def synchronized_batch_norm(sum_over_replicas: Sum) -> Iterator[None]:
    """Inside, batch normalisation in training uses the mean and variance of all replicas' rows.

    Args:
        sum_over_replicas: Adds up each of some tensors over all replicas; every replica calls it equally often.
    """
    token = _SUM.set(sum_over_replicas)
    try:
        yield
    finally:
        _SUM.reset(token)


@keras.saving.register_keras_serializable(package="easyrec")
class BatchNormalization(keras.layers.BatchNormalization):
    """The layer of Keras (Ioffe & Szegedy 2015), and over several replicas inside `synchronized_batch_norm`.

        y = (x - E[x]) / sqrt(Var[x] + epsilon) · gamma + beta

    Input and output: [B, ..., H]. Over replicas, E[x] and Var[x] are those of one batch of all their rows; positions
    that a mask [B, ...] leaves out do not count. That of Keras counts them then, and each replica's alone.
    """

    def call(
        self, inputs: tf.Tensor, training: bool | None = None, mask: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Applies the layer."""
        total = _SUM.get()
        if total is None or not training or not self.trainable:
            return super().call(inputs, training=training, mask=mask)
        values = ops.cast(inputs, "float32")
        counts = ops.ones_like(values[..., :1]) if mask is None else ops.cast(mask, "float32")[..., None]
        axes = list(range(len(values.shape) - 1))
        count, sums = total([ops.sum(counts), ops.sum(counts * values, axis=axes)])
        count = ops.maximum(count, 1.0)
        mean = sums / count
        # In two passes: the mean of squares less the square of the mean loses digits.
        [squares] = total([ops.sum(counts * ops.square(values - mean), axis=axes)])
        variance = squares / count
        for average, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
            before = ops.cast(average, "float32")
            average.assign(before * self.momentum + value * (1.0 - self.momentum))
        outputs = ops.batch_normalization(
            values,
            mean,
            variance,
            -1,
            offset=ops.cast(self.beta, "float32") if self.center else None,
            scale=ops.cast(self.gamma, "float32") if self.scale else None,
            epsilon=self.epsilon,
        )
        return ops.cast(outputs, self.compute_dtype)
