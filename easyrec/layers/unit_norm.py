"""Vectors of length one."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

_LEAST_SQUARED_NORM = 1e-12


@keras.saving.register_keras_serializable(package="easyrec")
class UnitNorm(keras.layers.Layer):
    """Scales vectors to length one: y = x / |x|, and y = 0 where |x| < 1e-6.

    A user without any known feature may have the zero vector before training. There, both
    `keras.layers.UnitNormalization` and a division by max(|x|, epsilon) have a gradient of 1 / epsilon, which under XLA
    can become NaN and which spoils the moments of Adam in any case; here nothing passes back.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., D], of length one along the last axis."""
        squared = tf.reduce_sum(tf.square(inputs), axis=-1, keepdims=True)
        long_enough = squared >= _LEAST_SQUARED_NORM
        # The inner choice keeps the infinite slope at zero out of the gradient, where it would be 0 times infinity.
        scale = tf.math.rsqrt(tf.where(long_enough, squared, 1.0))
        return tf.where(long_enough, inputs * scale, 0.0)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the input."""
        return input_shape
