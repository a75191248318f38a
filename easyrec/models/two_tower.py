"""Two-tower retrieval model (Yi et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from easyrec.config.models import TwoTowerConfig
from easyrec.features.outputs import FeatureSchema
from easyrec.layers import MLP, UnitNorm
from easyrec.models.base import TowerModel
from easyrec.models.inputs import ModelInputs


class TwoTower(TowerModel):
    """A user tower and an item tower that meet in a dot product, so that items can be found by their vectors.

        u = normalize(W_u MLP_u(user and context features) + b_u)
        v = normalize(W_v MLP_v(item features) + b_v)
        logit = <u, v> / temperature + b                                  for tasks with a label of their own

    A retrieval task takes the vectors themselves and compares each user with all items of the batch.

    References:
        Yi et al. 2019, Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations, section 3.
    """

    def __init__(self, config: TwoTowerConfig, schema: FeatureSchema, task_units: Sequence[int]) -> None:
        super().__init__(config, schema, task_units, config.temperature)
        self.user_tower, self.item_tower = self.mlp("user_tower"), self.mlp("item_tower")
        self.user_projection = keras.layers.Dense(config.output_dim, name="user_projection")
        self.item_projection = keras.layers.Dense(config.output_dim, name="item_projection")
        self.normalize = UnitNorm(name="normalize") if config.normalize else None

    def user_vector(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Vectors [B, output_dim] of the users, each in its context."""
        return self._vector(inputs.side("user", "context"), self.user_tower, self.user_projection, training)

    def item_vector(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Vectors [B, output_dim] of the items."""
        return self._vector(inputs.side("item"), self.item_tower, self.item_projection, training)

    def _vector(
        self, inputs: ModelInputs, tower: MLP, projection: keras.layers.Layer, training: bool
    ) -> tf.Tensor:
        vector = projection(tower(inputs.flat, training=training))
        return vector if self.normalize is None else self.normalize(vector)
