"""Factorization machine (Rendle 2010)."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from easyrec.config.models import FactorizationMachineConfig
from easyrec.features.outputs import FeatureSchema
from easyrec.layers import FMInteraction
from easyrec.models.base import RecModel
from easyrec.models.inputs import ModelInputs


class FactorizationMachine(RecModel):
    """Linear terms and all pairwise interactions.

        logit = b + sum_i w_i x_i + sum_(i<j) <v_i, v_j> x_i x_j

    References:
        Rendle 2010, Factorization Machines, equation 1.
    """

    uses_linear = True

    def __init__(
        self, config: FactorizationMachineConfig, schema: FeatureSchema, task_units: Sequence[int]
    ) -> None:
        super().__init__(config, schema, task_units)
        self.interaction = FMInteraction(self.units, name="interaction")

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        linear = inputs.linear
        return linear + tf.cast(self.interaction(inputs.fields), linear.dtype)
