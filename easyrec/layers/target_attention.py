"""Attention of a candidate item over a behaviour sequence (Zhou et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from easyrec.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="easyrec")
class TargetAttention(keras.layers.Layer):
    """Local activation unit: how much each position of the sequence matters for the candidate.

        a_l = w · MLP([q, k_l, q - k_l, q ∗ k_l]) + b
        out = sum_l mask_l · a_l · k_l

    With `softmax` the weights are softmax_l(a_l / sqrt(D)) over the positions of the mask. An empty sequence
    gives zeros either way.

    Input: target q [B, D], sequence k [B, L, D], mask [B, L] (1 where there is a value). Output: [B, D].

    Args:
        hidden_units: Hidden layers of the scoring network.
        activation: Their activation, see `activation_layer`.
        softmax: Normalise the weights; the paper does not, so that intensity of interest is kept.
        **kwargs: `name` and what else every Keras layer takes.

    References:
        Zhou et al. 2018, Deep Interest Network for Click-Through Rate Prediction, equation 3.
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (80, 40),
        activation: str = "dice",
        softmax: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_units = tuple(hidden_units)
        self.activation = activation
        self.softmax = softmax
        self.scorer = MLP(self.hidden_units, activation, name="scorer")
        # Under softmax a bias would move all scores alike and change nothing.
        self.score = keras.layers.Dense(1, use_bias=not softmax, name="score")

    def build(self, target_shape: tuple[Any, ...], sequence_shape: tuple[Any, ...]) -> None:
        """Creates the scoring network.

        Raises:
            ValueError: Target and sequence differ in width.
        """
        if target_shape[-1] != sequence_shape[-1]:
            raise ValueError(
                f"target and sequence must have equal width, got {target_shape[-1]} and {sequence_shape[-1]}"
            )
        pairs_shape = (*sequence_shape[:-1], 4 * sequence_shape[-1])
        self.scorer.build(pairs_shape)
        self.score.build(self.scorer.compute_output_shape(pairs_shape))

    def call(
        self, target: tf.Tensor, sequence: tf.Tensor, mask: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """The attended vectors [B, D]."""
        query = ops.broadcast_to(target[:, None, :], ops.shape(sequence))  # [B, L, D]
        pairs = ops.concatenate([query, sequence, query - sequence, query * sequence], axis=-1)
        scores = self.score(self.scorer(pairs, training=training, mask=mask))[..., 0]  # [B, L]
        weights = self._normalized(scores, mask, sequence.shape[-1]) if self.softmax else scores * mask
        return ops.sum(weights[..., None] * sequence, axis=1)

    def compute_mask(self, *inputs: Any, **masks: Any) -> None:
        """The output has no positions left to mask."""

    @staticmethod
    def _normalized(scores: tf.Tensor, mask: tf.Tensor, width: int) -> tf.Tensor:
        # Masked positions must not set the maximum: one far above the others would make those underflow.
        scores = ops.where(mask > 0, scores / width**0.5, -1e30)
        powers = ops.exp(scores - ops.max(scores, axis=1, keepdims=True)) * mask
        return powers / ops.maximum(ops.sum(powers, axis=1, keepdims=True), 1e-30)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "hidden_units": self.hidden_units,
            "activation": self.activation,
            "softmax": self.softmax,
        }
