"""From the activations of the embedding tables to the inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from easyrec.features.outputs import FeatureSchema
from easyrec.layers import NumberEmbedding, SequencePooling
from easyrec.models.inputs import Block, ModelInputs, SequenceInput, table_owner


@keras.saving.register_keras_serializable(package="easyrec")
class InputAssembler(keras.layers.Layer):
    """Makes `ModelInputs` and owns the weights that numbers need: their vectors and their linear weights.

    Args:
        schema: The features that the model uses.
        columns: The feature of each column of the batch's `numbers`.
        groups: The single-valued features in each group of the embedding tables, in order, by the group's name.
        linear_units: Width U of the linear terms; 0 for none.
        linear_key: Which activations hold the linear weights of ids: "linear", or "embedding" for models that have
            nothing but linear weights.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        columns: Sequence[str],
        groups: Mapping[str, Sequence[str]],
        linear_units: int,
        linear_key: str = "linear",
    ) -> None:
        super().__init__(name="inputs")
        self.schema = schema
        self.linear_units = linear_units
        self.linear_key = linear_key
        self._columns = tuple(columns)
        self._groups = [(name, tuple(features)) for name, features in groups.items() if features]
        self._dims = {output.feature: output.embedding_dim for output in schema.numbers}
        self._embed = [
            NumberEmbedding(dim, name=f"numbers_{dim}")
            for dim in dict.fromkeys(dim for dim in self._dims.values() if dim is not None)
        ]
        self._pool = {
            output.feature: SequencePooling(output.pooling or "mean", name=f"pool_{index}")
            for index, output in enumerate(schema.multi_ids)
            if output.sequence
        }
        self._bias = self._kernel = None
        if linear_units:
            self._bias = self.add_weight(name="bias", shape=(linear_units,), initializer="zeros")
            width = sum(output.width for output in schema.numbers)
            if width:
                self._kernel = self.add_weight(
                    name="linear", shape=(width, linear_units), initializer="zeros"
                )
        self.built = True

    def assemble(self, activations: Mapping[str, tf.Tensor], numbers: tf.Tensor) -> ModelInputs:
        """The inputs of a batch.

        Args:
            activations: Of the embedding tables: `embedding/<group>` [B, F, D], `pooled/<feature>` [B, D],
                `sequence/<feature>` [B, L, D], `mask/<feature>` [B, L], `linear/<group>` [B, F, U],
                `linear_pooled/<feature>` [B, U].
            numbers: [B, K] of the batch.
        """
        own_numbers = Block(self._columns, numbers).select(self._dims) or Block((), numbers[:, :0])
        plain = {feature for feature, dim in self._dims.items() if dim is None}
        sequences = {
            output.feature: SequenceInput(
                activations[f"sequence/{output.feature}"],
                activations[f"mask/{output.feature}"],
                table_owner(self.schema, output),
            )
            for output in self.schema.multi_ids
            if f"sequence/{output.feature}" in activations
        }
        blocks: list[Block] = []
        if self.linear_key == "linear":
            blocks += self._single(activations, "embedding")
            blocks += self._pooled(activations, sequences)
            blocks += self._embedded(own_numbers)
        return ModelInputs(
            self.schema,
            blocks,
            self._linear_terms(activations, own_numbers),
            self._bias,
            own_numbers.select(plain) or Block((), numbers[:, :0]),
            sequences,
        )

    def _single(self, activations: Mapping[str, tf.Tensor], key: str) -> list[Block]:
        return [Block(features, activations[f"{key}/{name}"]) for name, features in self._groups]

    def _pooled(
        self, activations: Mapping[str, tf.Tensor], sequences: Mapping[str, SequenceInput]
    ) -> list[Block]:
        blocks = []
        for output in self.schema.multi_ids:
            if output.feature in sequences:
                sequence = sequences[output.feature]
                vector = self._pool[output.feature](sequence.values, sequence.mask)
            else:
                vector = activations[f"pooled/{output.feature}"]
            blocks.append(Block((output.feature,), vector[:, None, :]))
        return blocks

    def _embedded(self, numbers: Block) -> list[Block]:
        blocks = []
        for embed in self._embed:
            chosen = numbers.select({feature for feature, dim in self._dims.items() if dim == embed.dim})
            if chosen is not None:
                blocks.append(Block(chosen.features, embed(chosen.values)))
        return blocks

    def _linear_terms(self, activations: Mapping[str, tf.Tensor], numbers: Block) -> list[Block]:
        if not self.linear_units:
            return []
        blocks = self._single(activations, self.linear_key)
        pooled_key = "linear_pooled" if self.linear_key == "linear" else "pooled"
        for output in self.schema.multi_ids:
            if output.sequence and table_owner(self.schema, output) is not None:
                continue
            values = activations[f"{pooled_key}/{output.feature}"]
            blocks.append(Block((output.feature,), values[:, None, :]))
        if self._kernel is not None:
            blocks.append(Block(numbers.features, numbers.values[:, :, None] * self._kernel))
        return blocks
