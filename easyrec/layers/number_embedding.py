"""Embeddings of numbers: each number times a learned vector."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="easyrec")
class NumberEmbedding(keras.layers.Layer):
    """Gives every number a vector, so that it takes part in interactions like an id.

        e_k = x_k · v_k

    Input: numbers [B, K]. Output: fields [B, K, D].

    Args:
        dim: Width D of the vectors.
        initializer: How the vectors start.
        **kwargs: `name` and what else every Keras layer takes.

    Raises:
        ValueError: `dim` is not positive.

    References:
        Rendle 2010, Factorization Machines: a real-valued feature scales its factor vector.
    """

    def __init__(self, dim: int, initializer: Any = "glorot_uniform", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if dim < 1:
            raise ValueError(f"dim must be positive, got {dim}")
        self.dim = dim
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the vectors [K, D]."""
        self.vectors = self.add_weight(
            name="vectors", shape=(input_shape[-1], self.dim), initializer=self.initializer
        )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The fields [B, K, D] of numbers [B, K]."""
        return inputs[:, :, None] * self.vectors

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        initializer = keras.initializers.serialize(self.initializer)
        return {**super().get_config(), "dim": self.dim, "initializer": initializer}
