"""Deep Interest Network (Zhou et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras import ops

from easyrec.config.models import DINConfig
from easyrec.errors import ConfigError
from easyrec.features.outputs import FeatureSchema
from easyrec.layers import TargetAttention
from easyrec.models.base import RecModel
from easyrec.models.inputs import ModelInputs, table_owner


class DIN(RecModel):
    """Attention of the candidate item over the behaviour sequence.

        u_s = sum_l a(v_item, k_l) · k_l                                   for each sequence s of that item feature
        logit = w · MLP([u_1, ..., u_S, other embeddings, numbers]) + b

    The candidate of a sequence is the id feature it is `of`; a sequence of its own is pooled like tags.

    Raises:
        ConfigError: There is no sequence of an id feature.

    References:
        Zhou et al. 2018, Deep Interest Network for Click-Through Rate Prediction, equation 3 and figure 2.
    """

    uses_sequences = True

    def __init__(self, config: DINConfig, schema: FeatureSchema, task_units: Sequence[int]) -> None:
        super().__init__(config, schema, task_units)
        owners = {
            output.feature: table_owner(schema, output) for output in schema.multi_ids if output.sequence
        }
        self.item = {sequence: owner for sequence, owner in owners.items() if owner is not None}
        if not self.item:
            raise ConfigError(
                "din attends over behaviour sequences, but no feature is a `sequence` that is `of` an id feature of "
                "the model"
            )
        # Numbered, since the name of a feature may hold characters that the name of a layer may not.
        self.attention = {
            sequence: TargetAttention(
                config.attention_units,
                config.attention_activation,
                config.softmax,
                name=f"attention_{index}",
            )
            for index, sequence in enumerate(self.item)
        }
        self.deep = self.mlp()
        self.logits = keras.layers.Dense(self.units, name="logits")

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        interests = []
        for name, attention in self.attention.items():
            values, mask, _ = inputs.sequences[name]  # [B, L, D], [B, L]
            item = inputs.embedding(self.item[name])
            interests.append(attention(item, values, mask, training=training))  # [B, D]
        rest = inputs.drop(self.attention).flat
        hidden = self.deep(ops.concatenate([*interests, rest], axis=1), training=training)
        return self.logits(hidden)
