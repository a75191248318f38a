"""DeepFM (Guo et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from easyrec.config.models import DeepFMConfig
from easyrec.features.outputs import FeatureSchema
from easyrec.layers import FMInteraction
from easyrec.models.base import RecModel
from easyrec.models.inputs import ModelInputs


class DeepFM(RecModel):
    """A factorization machine and a deep part over the same embeddings.

        logit = b + sum_i w_i x_i + sum_(i<j) <v_i, v_j> + w · MLP(embeddings, numbers)

    References:
        Guo et al. 2017, DeepFM: A Factorization-Machine based Neural Network for CTR Prediction, equations 1 to 4.
    """

    uses_linear = True

    def __init__(self, config: DeepFMConfig, schema: FeatureSchema, task_units: Sequence[int]) -> None:
        super().__init__(config, schema, task_units)
        self.interaction = FMInteraction(self.units, name="interaction")
        self.deep = self.mlp()
        self.deep_logits = keras.layers.Dense(self.units, use_bias=False, name="deep_logits")

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        deep = self.deep_logits(self.deep(inputs.flat, training=training))
        linear = inputs.linear
        return linear + tf.cast(self.interaction(inputs.fields) + deep, linear.dtype)
