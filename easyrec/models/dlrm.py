"""DLRM (Naumov et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras import ops

from easyrec.config.models import DLRMConfig
from easyrec.features.outputs import FeatureSchema
from easyrec.layers import DotInteraction
from easyrec.models.base import RecModel
from easyrec.models.inputs import ModelInputs


class DLRM(RecModel):
    """Dot products between embeddings and the encoded numbers.

        z = MLP_bottom(numbers)                                           as wide as the embeddings
        logit = w · MLP_top([z, <v_i, v_j> for all pairs of embeddings and z]) + b

    Without numbers there is no z.

    References:
        Naumov et al. 2019, Deep Learning Recommendation Model for Personalization and Recommendation Systems.
    """

    def __init__(self, config: DLRMConfig, schema: FeatureSchema, task_units: Sequence[int]) -> None:
        super().__init__(config, schema, task_units)
        self.interaction = DotInteraction(name="interaction")
        self.deep = self.mlp()
        self.logits = keras.layers.Dense(self.units, name="logits")
        self.bottom = None
        dims = [output.dim for output in schema.ids] + [output.embedding_dim for output in schema.numbers]
        width = next((dim for dim in dims if dim is not None), None)
        if width is not None and any(output.embedding_dim is None for output in schema.numbers):
            self.bottom = self.mlp("bottom", (*config.bottom_units, width))

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        fields = inputs.fields  # [B, F, D]
        if self.bottom is None:
            return self.logits(self.deep(self.interaction(fields), training=training))
        encoded = self.bottom(inputs.numbers, training=training)  # [B, D]
        pairs = self.interaction(ops.concatenate([encoded[:, None, :], fields], axis=1))
        return self.logits(self.deep(ops.concatenate([encoded, pairs], axis=1), training=training))
