"""Wide & Deep (Cheng et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from easyrec.config.models import WideAndDeepConfig
from easyrec.features.outputs import FeatureSchema
from easyrec.models.base import RecModel
from easyrec.models.inputs import ModelInputs, matching_features


class WideAndDeep(RecModel):
    """A linear part that memorises and a deep part that generalises, trained together.

        logit = b + sum_i w_i x_i + w · MLP(embeddings, numbers)

    References:
        Cheng et al. 2016, Wide & Deep Learning for Recommender Systems, equation 3.
    """

    uses_linear = True

    def __init__(self, config: WideAndDeepConfig, schema: FeatureSchema, task_units: Sequence[int]) -> None:
        super().__init__(config, schema, task_units)
        self.wide_features = sorted(matching_features(schema, config.wide_features, "model.wide_features"))
        self.deep = self.mlp()
        self.deep_logits = keras.layers.Dense(self.units, use_bias=False, name="deep_logits")

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        wide = inputs.select(self.wide_features).linear
        return wide + tf.cast(self.deep_logits(self.deep(inputs.flat, training=training)), wide.dtype)
