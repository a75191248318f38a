"""Deep Interest Network (Zhou et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras import ops

from easyrec.config.models import DINConfig
from easyrec.features.outputs import FeatureSchema
from easyrec.layers import TargetAttention
from easyrec.models.base import RecModel
from easyrec.models.inputs import ModelInputs


class DIN(RecModel):
    """Attention of the candidate item over the behaviour sequence.

        u_s = sum_l a(v_item, k_l) · k_l                                   for each sequence s of that item feature
        logit = w · MLP([u_1, ..., u_S, other embeddings, numbers]) + b

    The candidate of a sequence is the id feature it is `of`; a sequence of its own is pooled like tags.

    References:
        Zhou et al. 2018, Deep Interest Network for Click-Through Rate Prediction, equation 3 and figure 2.
    """

    uses_sequences = True

    def __init__(self, config: DINConfig, schema: FeatureSchema, task_units: Sequence[int]) -> None:
        super().__init__(config, schema, task_units)
        candidates = {output.table for output in schema.single_ids}
        attended = [o.feature for o in schema.multi_ids if o.sequence and o.table in candidates]
        # Numbered, since the name of a feature may hold characters that the name of a layer may not.
        self.attention = {
            feature: TargetAttention(
                config.attention_units,
                config.attention_activation,
                config.softmax,
                name=f"attention_{index}",
            )
            for index, feature in enumerate(attended)
        }
        self.deep = self.mlp()
        self.logits = keras.layers.Dense(self.units, name="logits")

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        interests = []
        for name, attention in self.attention.items():
            sequence = inputs.sequences[name]
            candidate = inputs.embedding(sequence.of)
            interests.append(
                attention(candidate, sequence.values, sequence.mask, training=training)
            )  # [B, D]
        rest = inputs.drop(self.attention).flat
        hidden = self.deep(ops.concatenate([*interests, rest], axis=1), training=training)
        return self.logits(hidden)
