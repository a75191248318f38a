"""Dot products between all pairs of fields (Naumov et al. 2019)."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops


@keras.saving.register_keras_serializable(package="easyrec")
class DotInteraction(keras.layers.Layer):
    """The lower triangle of the matrix of dot products between fields, row by row.

        out = [<v_i, v_j> for i = 1..F for j < i]        (j <= i under `self_interaction`)

    Input: fields [B, F, D]. Output: [B, F(F-1)/2], or [B, F(F+1)/2] under `self_interaction`.

    Args:
        self_interaction: Whether the diagonal belongs to the output.
        **kwargs: `name` and what else every Keras layer takes.

    References:
        Naumov et al. 2019, Deep Learning Recommendation Model for Personalization and Recommendation Systems.
    """

    def __init__(self, self_interaction: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.self_interaction = self_interaction

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The dot products of fields [B, F, D]."""
        fields = inputs.shape[1]
        products = ops.matmul(inputs, ops.transpose(inputs, (0, 2, 1)))  # [B, F, F]
        offset = 1 if self.self_interaction else 0
        # Slices: their gradient is a padding, where that of a gather would be a slow scatter.
        rows = [products[:, row, : row + offset] for row in range(1 - offset, fields)]
        return ops.concatenate(rows, axis=1) if rows else products[:, 0, :0]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "self_interaction": self.self_interaction}
