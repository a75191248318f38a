"""Multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from easyrec.layers.activation import activation_layer
from easyrec.layers.dropout import Dropout
from easyrec.layers.normalization import BatchNormalization


@keras.saving.register_keras_serializable(package="easyrec")
class MLP(keras.layers.Layer):
    """Hidden layers, each: product with a kernel, batch normalisation, activation, dropout.

        h_0 = x,  h_i = dropout(activation(norm(h_(i-1) W_i + b_i)))

    Input: [B, ..., N]. Output: [B, ..., hidden_units[-1]], or the input itself when there are no hidden units.

    Args:
        hidden_units: Units of each layer.
        activation: Name of the activation, see `activation_layer`.
        dropout: Share of units dropped in training.
        batch_norm: Normalise before the activation; the normalisation's shift then takes the place of the bias.
        l2: Penalty on the squared kernels, in `losses`.
        **kwargs: `name` and what else every Keras layer takes.

    Example:
        >>> MLP([64, 32], activation="gelu", dropout=0.1)(keras.ops.ones([8, 100])).shape
        TensorShape([8, 32])
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_units = tuple(hidden_units)
        self.activation = activation
        self.dropout = dropout
        self.batch_norm = batch_norm
        self.l2 = l2
        self.steps: list[keras.layers.Layer] = []
        self.supports_masking = True

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the layers; their names do not depend on what else the process has created."""
        shape = tuple(input_shape)
        steps: list[keras.layers.Layer] = []
        for index, units in enumerate(self.hidden_units):
            dense = keras.layers.Dense(
                units,
                use_bias=not self.batch_norm,
                kernel_regularizer=keras.regularizers.L2(self.l2) if self.l2 else None,
                name=f"dense_{index}",
            )
            dense.build(shape)
            shape = (*shape[:-1], units)
            rest: list[keras.layers.Layer] = []
            if self.batch_norm:
                rest.append(BatchNormalization(name=f"norm_{index}"))
            rest.append(activation_layer(self.activation, rank=len(shape)))
            if self.dropout:
                rest.append(Dropout(self.dropout, name=f"dropout_{index}"))
            for layer in rest:
                layer.build(shape)
            steps += [dense, *rest]
        self.steps = steps

    def call(self, inputs: tf.Tensor, training: bool = False, mask: tf.Tensor | None = None) -> tf.Tensor:
        """Applies the layers; positions [B, ...] where `mask` is 0 do not count in batch statistics."""
        hidden = inputs
        for step in self.steps:
            if _has_batch_statistics(step):
                hidden = step(hidden, training=training, mask=mask)
            elif isinstance(step, keras.layers.Dropout):
                hidden = step(hidden, training=training)
            else:
                hidden = step(hidden)
        return hidden

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """[B, ..., hidden_units[-1]]."""
        return (*input_shape[:-1], self.hidden_units[-1]) if self.hidden_units else tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "hidden_units": self.hidden_units,
            "activation": self.activation,
            "dropout": self.dropout,
            "batch_norm": self.batch_norm,
            "l2": self.l2,
        }


def _has_batch_statistics(layer: keras.layers.Layer) -> bool:
    return isinstance(layer, keras.layers.BatchNormalization) or hasattr(layer, "normalization")
