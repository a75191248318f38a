"""Logistic regression."""

from __future__ import annotations

import tensorflow as tf

from easyrec.models.base import RecModel
from easyrec.models.inputs import ModelInputs


class LogisticRegression(RecModel):
    """A weight per feature value: the baseline every other model should beat.

    logit = b + sum_i w_i x_i
    """

    uses_linear = True
    uses_embeddings = False

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        return inputs.linear
