"""Multi-gate mixture of experts (Ma et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras import ops

from easyrec.config.models import MMoEConfig
from easyrec.features.outputs import FeatureSchema
from easyrec.layers import MultiGateMixtureOfExperts
from easyrec.models.base import RecModel
from easyrec.models.inputs import ModelInputs


class MMoE(RecModel):
    """Several tasks that share experts through gates of their own.

        x = [embeddings, numbers]
        logit_t = w_t · Tower_t( sum_e softmax(x W_t)_e · Expert_e(x) ) + b_t

    References:
        Ma et al. 2018, Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts.
    """

    def __init__(self, config: MMoEConfig, schema: FeatureSchema, task_units: Sequence[int]) -> None:
        super().__init__(config, schema, task_units)
        self.mixture = MultiGateMixtureOfExperts(
            tasks=len(self.task_units),
            experts=config.experts,
            hidden_units=config.hidden_units,
            activation=config.activation,
            dropout=config.dropout,
            batch_norm=config.batch_norm,
            l2=config.l2,
            name="mixture",
        )
        self.towers = [self.mlp(f"tower_{task}", config.tower_units) for task in range(len(self.task_units))]
        self.logits = [
            keras.layers.Dense(units, name=f"logits_{task}") for task, units in enumerate(self.task_units)
        ]

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        mixtures = self.mixture(inputs.flat, training=training)  # one [B, H] per task
        outputs = [
            logits(tower(mixture, training=training))
            for mixture, tower, logits in zip(mixtures, self.towers, self.logits, strict=True)
        ]
        return ops.concatenate(outputs, axis=1)
