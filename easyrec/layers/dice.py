"""Dice: an activation that adapts to the distribution of its input (Zhou et al. 2018)."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from easyrec.layers.normalization import BatchNormalization


@keras.saving.register_keras_serializable(package="easyrec")
class Dice(keras.layers.Layer):
    """Data adaptive activation: a PReLU whose turning point is the mean of the batch.

        p(x) = sigmoid((x - E[x]) / sqrt(Var[x] + epsilon))
        f(x) = p(x) · x + (1 - p(x)) · alpha · x

    Mean and variance are those of the batch in training and moving averages otherwise; `alpha` is learned, one
    per unit. Input and output: [B, ..., H].

    Args:
        epsilon: Added to the variance.
        momentum: Of the moving averages.
        **kwargs: `name` and what else every Keras layer takes.

    References:
        Zhou et al. 2018, Deep Interest Network for Click-Through Rate Prediction, section 5.3.
    """

    def __init__(self, epsilon: float = 1e-8, momentum: float = 0.99, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.momentum = momentum
        self.supports_masking = True
        self.normalization = BatchNormalization(
            epsilon=epsilon, momentum=momentum, center=False, scale=False, name="normalization"
        )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates `alpha` [H]."""
        self.normalization.build(input_shape)
        self.alpha = self.add_weight(name="alpha", shape=(input_shape[-1],), initializer="zeros")

    def call(self, inputs: tf.Tensor, training: bool = False, mask: tf.Tensor | None = None) -> tf.Tensor:
        """Applies the activation; positions [B, ...] where `mask` is 0 do not count in mean and variance."""
        share = ops.sigmoid(self.normalization(inputs, training=training, mask=mask))
        return share * inputs + (1.0 - share) * self.alpha * inputs

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "epsilon": self.epsilon, "momentum": self.momentum}
