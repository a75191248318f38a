"""Deep & Cross Network, version 2 (Wang et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras import ops

from easyrec.config.models import DCNv2Config
from easyrec.features.outputs import FeatureSchema
from easyrec.layers import CrossNetwork
from easyrec.models.base import RecModel
from easyrec.models.inputs import ModelInputs


class DCNv2(RecModel):
    """Explicit crosses of bounded degree and a deep part.

        x_0 = [embeddings, numbers]
        parallel:  logit = w · [Cross(x_0), MLP(x_0)] + b
        stacked:   logit = w · MLP(Cross(x_0)) + b

    References:
        Wang et al. 2021, DCN V2: Improved Deep & Cross Network, section 3 and figure 1.
    """

    def __init__(self, config: DCNv2Config, schema: FeatureSchema, task_units: Sequence[int]) -> None:
        super().__init__(config, schema, task_units)
        self.parallel = config.structure == "parallel"
        self.cross = CrossNetwork(config.cross_layers, config.low_rank, name="cross")
        self.deep = self.mlp()
        self.logits = keras.layers.Dense(self.units, name="logits")

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        crossed = self.cross(inputs.flat)
        if not self.parallel:
            return self.logits(self.deep(crossed, training=training))
        deep = self.deep(inputs.flat, training=training)
        return self.logits(ops.concatenate([crossed, deep], axis=1))
