"""Vectors of length one."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

_LEAST_SQUARED_NORM = 1e-12


@keras.saving.register_keras_serializable(package="easyrec")
class UnitNorm(keras.layers.Layer):
    """Scales vectors to length one: y = x / max(|x|, 1e-6).

    The zero vector, which a user without any known feature may have, stays zero and passes no gradient back;
    `keras.layers.UnitNormalization` gives NaN there.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., D], of length one along the last axis."""
        return tf.math.l2_normalize(inputs, axis=-1, epsilon=_LEAST_SQUARED_NORM)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the input."""
        return input_shape
