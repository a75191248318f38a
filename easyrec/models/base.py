"""The contract of a model architecture, and how to add one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf
from keras import ops

from easyrec.config.models import DeepModelConfig, ModelConfig
from easyrec.errors import ConfigError
from easyrec.features.outputs import FeatureSchema
from easyrec.layers import MLP
from easyrec.models.inputs import ModelInputs


class RecModel(keras.Model):
    """A model architecture: equations from `ModelInputs` to logits, and nothing else.

    Encoding of columns, embedding tables, losses, metrics, training, export and serving are outside of it. To add an
    architecture, write one file with its configuration and its equations, and register both:

        class ProductConfig(DeepModelConfig):
            \"\"\"Deep part over embeddings and their sums of squares.\"\"\"

            type: Literal["product"] = "product"

        class Product(RecModel):
            def __init__(self, config, schema, task_units):
                super().__init__(config, schema, task_units)
                self.deep = self.mlp()
                self.logits = keras.layers.Dense(self.units, name="logits")

            def call(self, inputs, training=False):
                squares = ops.sum(ops.square(inputs.fields), axis=1)            # [B, D]
                hidden = self.deep(ops.concatenate([inputs.flat, squares], axis=1), training=training)
                return self.logits(hidden)

        MODELS.register("product", ProductConfig, Product)

    Layers are created in `__init__` and built when the network is first run, on a batch of two rows. `call` runs
    inside a compiled function with a batch size that is not known beforehand, so shapes may depend on the schema
    only. Problems that a configuration can have are raised as `ConfigError`, in `__init__` or in `call`.

    Args:
        config: Its configuration.
        schema: The features it may use.
        task_units: Logits that each task needs, in the order of the tasks.

    Attributes:
        units: Sum of `task_units`; what `call` returns is [B, units].
    """

    uses_linear: ClassVar[bool] = False
    """Whether it reads `inputs.linear`: a weight per feature value, kept beside the embeddings."""
    uses_embeddings: ClassVar[bool] = True
    """Whether it reads embeddings; without them only linear weights are kept."""
    uses_sequences: ClassVar[bool] = False
    """Whether it reads `inputs.sequences`, position by position; else they arrive pooled."""

    def __init__(self, config: ModelConfig, schema: FeatureSchema, task_units: Sequence[int]) -> None:
        super().__init__(name=config.type)
        self.config = config
        self.schema = schema
        self.task_units = tuple(task_units)
        self.units = sum(task_units)

    def build(self, input_shape: Any = None) -> None:
        """Nothing: layers are built when `call` first runs. Keras would run it in a scratch graph before."""

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        raise NotImplementedError

    def mlp(self, name: str = "deep", hidden_units: Sequence[int] | None = None) -> MLP:
        """A new perceptron with the options of the configuration.

        Args:
            name: Name of the layer, unique in the model.
            hidden_units: Other units than the configuration's.
        """
        config: Any = self.config
        if not isinstance(config, DeepModelConfig):
            raise TypeError(
                f"{type(config).__name__} must derive from DeepModelConfig to give an MLP its options"
            )
        return MLP(
            config.hidden_units if hidden_units is None else hidden_units,
            activation=config.activation,
            dropout=config.dropout,
            batch_norm=config.batch_norm,
            l2=config.l2,
            name=name,
        )


class TowerModel(RecModel):
    """A model of two towers: users and items become vectors, whose dot product is the score of a pair.

    Only such a model can have a retrieval task, find items by an index of their vectors, and score many items for
    one user without running anything but the dot product. Its configuration class sets `towers = True`.

    Attributes:
        temperature: Dot products are divided by this in logits and retrieval losses.
    """

    def __init__(
        self, config: ModelConfig, schema: FeatureSchema, task_units: Sequence[int], temperature: float = 1.0
    ) -> None:
        super().__init__(config, schema, task_units)
        if any(units > 1 for units in self.task_units):
            raise ConfigError(
                f"{config.type} gives one score to a user and an item, so it cannot have a multiclass task"
            )
        _require_both_sides(config.type, schema)
        self.temperature = temperature
        self.bias = (
            self.add_weight(name="bias", shape=(self.units,), initializer="zeros") if self.units else None
        )

    def user_vector(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Vectors [B, D] of the users, each in its context."""
        raise NotImplementedError

    def item_vector(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Vectors [B, D] of the items."""
        raise NotImplementedError

    def call(self, inputs: ModelInputs, training: bool = False) -> tf.Tensor:
        """Logits [B, units]."""
        return self.pair_logits(self.user_vector(inputs, training), self.item_vector(inputs, training))

    def pair_logits(self, user: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
        """Logits <u, v> / temperature + b, [B, units], of pairs of vectors [B, D]."""
        return ops.sum(user * item, axis=1, keepdims=True) / self.temperature + self.bias

    def scores(self, user: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
        """Scores <u_i, v_j> / temperature, [B, B], of users and items [B, D]."""
        return ops.matmul(user, ops.transpose(item)) / self.temperature


def _require_both_sides(name: str, schema: FeatureSchema) -> None:
    sides = {output.side for output in schema.outputs}
    missing = [] if sides & {"user", "context"} else ["user"]
    missing += [] if "item" in sides else ["item"]
    if missing:
        raise ConfigError(
            f"{name} needs features of the user and of the item, but none is of side {' or '.join(missing)}; set "
            "`side` on features, or name the columns in `data.keys`"
        )
