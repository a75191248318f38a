"""Pairwise interactions of a factorization machine (Rendle 2010)."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops


@keras.saving.register_keras_serializable(package="easyrec")
class FMInteraction(keras.layers.Layer):
    """Sum of the dot products of all pairs of fields, in time linear in their number.

        sum_(i<j) <v_i, v_j> = sum_d 0.5 · ((sum_i v_id)^2 - sum_i v_id^2)

    Input: fields [B, F, D]. Output: [B, units].

    Args:
        units: With one unit the output is the sum above. With several, unit u gives dimension d of the inner
            sum a learned weight w_du that starts at 1, so that tasks which share embeddings can differ.
        **kwargs: `name` and what else every Keras layer takes.

    Raises:
        ValueError: `units` is not positive.

    References:
        Rendle 2010, Factorization Machines, lemma 3.1.
    """

    def __init__(self, units: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"units must be positive, got {units}")
        self.units = units

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights [D, units], when there is more than one unit."""
        if self.units > 1:
            self.kernel = self.add_weight(
                name="kernel", shape=(input_shape[-1], self.units), initializer="ones"
            )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The interactions [B, units] of fields [B, F, D]."""
        square_of_sum = ops.square(ops.sum(inputs, axis=1))
        sum_of_squares = ops.sum(ops.square(inputs), axis=1)
        pairs = 0.5 * (square_of_sum - sum_of_squares)  # [B, D]
        return ops.matmul(pairs, self.kernel) if self.units > 1 else ops.sum(pairs, axis=1, keepdims=True)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "units": self.units}
