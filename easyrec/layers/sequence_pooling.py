"""One vector from a sequence of vectors."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops

MODES = ("sum", "mean", "max", "sqrtn")


@keras.saving.register_keras_serializable(package="easyrec")
class SequencePooling(keras.layers.Layer):
    """Sum, mean, maximum, or sum over the square root of the length, of the positions that a mask keeps.

    Input: sequence [B, L, D], mask [B, L] (1 where there is a value). Output: [B, D], zeros for an empty sequence.

    Args:
        mode: "sum", "mean", "max" or "sqrtn".
        **kwargs: `name` and what else every Keras layer takes.

    Raises:
        ValueError: `mode` is none of these.
    """

    def __init__(self, mode: str = "mean", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        self.mode = mode

    def call(self, sequence: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """The pooled vectors [B, D]."""
        length = ops.sum(mask, axis=1, keepdims=True)  # [B, 1]
        if self.mode == "max":
            kept = ops.where(mask[..., None] > 0, sequence, -ops.ones_like(sequence) * 1e30)
            return ops.where(length > 0, ops.max(kept, axis=1), ops.zeros_like(sequence[:, 0]))
        total = ops.sum(sequence * mask[..., None], axis=1)
        if self.mode == "mean":
            return total / ops.maximum(length, 1.0)
        return total / ops.sqrt(ops.maximum(length, 1.0)) if self.mode == "sqrtn" else total

    def compute_mask(self, *inputs: Any, **masks: Any) -> None:
        """The output has no positions left to mask."""

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "mode": self.mode}
