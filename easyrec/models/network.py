"""The whole network: embedding tables, one model, and a head per task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy.typing as npt
import tensorflow as tf

from easyrec.config.embedding import Initializer
from easyrec.config.features import IdFeature
from easyrec.config.models import MODELS
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import TASKS
from easyrec.embedding.collection import EmbeddingCollection
from easyrec.errors import ConfigError, Problem
from easyrec.features.outputs import FeatureSchema, IdsOutput
from easyrec.models.assembler import InputAssembler
from easyrec.models.base import RecModel, TowerModel
from easyrec.models.contexts import computing_with, seeded
from easyrec.models.inputs import ModelInputs, matching_features, table_owner
from easyrec.models.naming import below, stable_names
from easyrec.models.retrieval import ItemSampling, Towers
from easyrec.models.sides import SideSplit, number_columns
from easyrec.models.tasks import Head, RegressionHead, RetrievalHead

Tensors = dict[str, tf.Tensor]
Logits = dict[str, "tf.Tensor | Towers"]
_USER, _ITEM = "user_vector", "item_vector"


class Network(tf.Module):
    """Embedding tables, a model and its heads, from an encoded batch to losses and predictions.

    Training calls `dense` and `loss` around its own handling of the embedding rows; prediction calls `predict`, or
    `encode_side` and `score` when many items are scored for one user.

    Args:
        embeddings: The embedding tables.
        inputs: Makes the model's inputs.
        model: The architecture.
        heads: Heads by task.
        sides: Splits a batch by side.
        sampling: How often each item is seen.

    Attributes:
        embeddings: As given.
        model: As given.
        heads: As given.
    """

    def __init__(
        self,
        embeddings: EmbeddingCollection,
        inputs: InputAssembler,
        model: RecModel,
        heads: Mapping[str, Head],
        sides: SideSplit,
        sampling: ItemSampling,
    ) -> None:
        super().__init__(name="network")
        self.embeddings = embeddings
        self.inputs = inputs
        self.model = model
        self.heads = dict(heads)
        self._head_layers = [head.layer for head in self.heads.values() if head.layer is not None]
        self._sides, self.owners = sides, sides.owners
        self._sampling = sampling

    # From a batch to logits.

    def forward(self, batch: Mapping[str, tf.Tensor], training: bool = False) -> Logits:
        """Logits by task of an encoded batch, see `dense`."""
        return self.dense(self.embeddings(batch), batch.get("numbers"), training)

    def dense(
        self, activations: Mapping[str, tf.Tensor], numbers: tf.Tensor | None, training: bool = False
    ) -> Logits:
        """Logits by task from the activations of the embedding tables; may be compiled with XLA.

        Args:
            activations: Of `EmbeddingCollection.expand`.
            numbers: [B, K] of the batch, or None when no feature gives numbers.
            training: Whether dropout is on and batch normalisation uses the batch.

        Returns:
            [B, units of the task], or `Towers` for a retrieval task.
        """
        inputs = self._model_inputs(activations, numbers)
        logits: Logits = {}
        if self.model.units:
            logits.update(self._by_task(_float32(self.model(inputs=inputs, training=training))))
        towers = [name for name, head in self.heads.items() if head.towers]
        if towers:
            vectors = Towers(
                _float32(self.model.user_vector(inputs, training)),
                _float32(self.model.item_vector(inputs, training)),
            )
            logits.update(dict.fromkeys(towers, vectors))
        return logits

    # From logits to losses and predictions.

    def loss(
        self, logits: Mapping[str, tf.Tensor | Towers], batch: Mapping[str, tf.Tensor]
    ) -> tuple[tf.Tensor, Tensors]:
        """What training minimises.

        Each task's loss is the mean over the rows, weighted by the sample weights if the batch has any. Rows whose
        label is not above 0 have no part in a retrieval task.

        Args:
            logits: Of `dense`.
            batch: With `label/<task>` [B] and perhaps `weight` [B].

        Returns:
            The scalar sum over tasks, each times its weight, plus the penalties of regularised layers; and the parts
            by name: one per task, and `regularization` where there is any.

        Raises:
            DataError: A label is missing.
            ConfigError: A retrieval loss needs the item key, which is no feature.
            TrainingError: It needs counts of the items, which were not given.
        """
        parts: Tensors = {}
        total = tf.constant(0.0)
        for name, head in self.heads.items():
            losses, weights = self._row_losses(head, logits[name], batch)
            parts[name] = tf.math.divide_no_nan(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))
            total += head.config.weight * parts[name]
        penalties = [*self.inputs.losses, *self.model.losses]
        if penalties:
            parts["regularization"] = tf.add_n(penalties)
            total += parts["regularization"]
        return total, parts

    def predictions(self, logits: Mapping[str, tf.Tensor | Towers]) -> Tensors:
        """Predictions by task, see `predict`, from the logits of `dense`."""
        return {name: head.predict(logits[name]) for name, head in self.heads.items()}

    def predict(self, batch: Mapping[str, tf.Tensor]) -> Tensors:
        """The columns of a predictions table, by task.

        Returns:
            Binary: probabilities [B]. Regression: values [B]. Multi-class: probabilities [B, C]. Retrieval: dot
            products of user and item vectors [B].
        """
        return self.predictions(self.forward(batch))

    # Two stages: the user once, the items once, then each pair.

    def encode_side(self, batch: Mapping[str, tf.Tensor], side: str) -> Tensors:
        """All that scoring needs to know of users (and the context of the request), or of items.

        Args:
            batch: An encoded batch of all features, or of the side's alone: then `ids` and `numbers` hold the columns
                of its features only, in the order of the schema.
            side: "user" (context included) or "item".

        Returns:
            Tensors with one row per row of the batch: the side's vector for a model of two towers, else the
            activations of its features.
        """
        parts = self.side_activations(batch, side)
        if not isinstance(self.model, TowerModel):
            return self._sides.split(*parts, side)
        return {_USER if side == "user" else _ITEM: self.tower(*parts, side)}

    def side_activations(self, batch: Mapping[str, tf.Tensor], side: str) -> tuple[Tensors, tf.Tensor]:
        """What `dense` takes, see `encode_side`; what belongs to the other side is missing."""
        whole = self._sides.complete(batch, side)
        return self.embeddings(whole), whole["numbers"]

    def tower(self, activations: Mapping[str, tf.Tensor], numbers: tf.Tensor | None, side: str) -> tf.Tensor:
        """Vectors [B, D] of one side, of a model of two towers; what belongs to the other side is not looked at.

        Args:
            activations: As `dense` takes them.
            numbers: As `dense` takes them.
            side: "user" or "item".
        """
        inputs = self._model_inputs(activations, numbers)
        return _float32(self.model.user_vector(inputs) if side == "user" else self.model.item_vector(inputs))

    def score(self, user: Mapping[str, tf.Tensor], item: Mapping[str, tf.Tensor]) -> Tensors:
        """Predictions of pairs, equal to those of `predict` on rows that hold both sides.

        Args:
            user: Of `encode_side(..., "user")`, 1 row or N rows.
            item: Of `encode_side(..., "item")`, N rows.

        Returns:
            As `predict`, for N rows.
        """
        if isinstance(self.model, TowerModel):
            return self.predictions(self._tower_logits(user[_USER], item[_ITEM]))
        return self.predictions(self.dense(*self._sides.merge(user, item)))

    # The dense weights.

    @property
    def variables(self) -> list[keras.Variable]:
        """Dense weights and state: kernels, moving averages, seeds of dropout, label scales; not the tables."""
        return [variable for layer in self._layers() for variable in layer.variables]

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """Dense weights that gradients move."""
        return [*self.inputs.trainable_variables, *self.model.trainable_variables]

    def named_variables(self) -> dict[str, keras.Variable]:
        """`variables` by names that depend on the architecture only, not on what else the process has created."""
        paths = [below(layer.name, variable.path) for layer in self._layers() for variable in layer.variables]
        return dict(zip(stable_names(paths), self.variables, strict=True))

    def _layers(self) -> list[keras.layers.Layer]:
        return [self.inputs, self.model, *self._head_layers]

    def _model_inputs(self, activations: Mapping[str, tf.Tensor], numbers: tf.Tensor | None) -> ModelInputs:
        if numbers is None:
            rows = tf.shape(next(iter(activations.values())))[0]
            numbers = tf.zeros([rows, 0])
        return self.inputs.assemble(activations, numbers)

    @property
    def reads_ids(self) -> bool:
        """Whether its losses need the ids of a batch beside their activations."""
        return any(isinstance(head, RetrievalHead) for head in self.heads.values())

    def _by_task(self, logits: tf.Tensor) -> Logits:
        named = [(name, head.units) for name, head in self.heads.items() if head.units]
        parts = [logits] if len(named) == 1 else tf.split(logits, [units for _, units in named], axis=1)
        return {name: part for (name, _), part in zip(named, parts, strict=True)}

    def _tower_logits(self, user: tf.Tensor, item: tf.Tensor) -> Logits:
        logits = self._by_task(_float32(self.model.pair_logits(user, item))) if self.model.units else {}
        return {name: logits.get(name, Towers(user, item)) for name in self.heads}

    def _row_losses(
        self, head: Head, logits: tf.Tensor | Towers, batch: Mapping[str, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Loss and weight of each row, [B] each."""
        labels = head.labels(batch)
        if isinstance(head, RetrievalHead):
            items = self._sampling.of(
                batch,
                head.name,
                ids=head.option("mask_accidental_hits"),
                probabilities=head.option("logq_correction"),
            )
            losses = head.retrieval_loss(self.model.scores(logits.user, logits.item), items)
            weights = tf.ones_like(losses) if labels is None else tf.cast(labels > 0, losses.dtype)
        else:
            losses = head.loss(labels, logits)
            weights = tf.ones_like(losses)
        return losses, weights * batch["weight"] if "weight" in batch else weights


def build_network(
    config: PipelineConfig,
    schema: FeatureSchema,
    item_counts: npt.NDArray[Any] | None = None,
    label_moments: Mapping[str, tuple[float, float]] | None = None,
    *,
    shards: int = 1,
) -> Network:
    """The network that a configuration describes, with fresh weights drawn from `training.seed`.

    Args:
        config: A resolved configuration.
        schema: The features of an encoded batch.
        item_counts: Training rows by id of the item key's feature, for retrieval losses that correct for them.
        label_moments: Mean and standard deviation of the training labels, by regression task; not needed where the
            weights come from a checkpoint.
        shards: How many variables hold each embedding table.

    Raises:
        ConfigError: Features, model and tasks do not fit each other.
    """
    heads: dict[str, Head] = {name: TASKS.build(task, name) for name, task in config.tasks.items()}
    _require_towers(config, heads)
    for name, (mean, deviation) in (label_moments or {}).items():
        head = heads[name]
        if isinstance(head, RegressionHead) and head.scale is not None:
            head.scale.adapt(mean, deviation)
    used = schema.select(matching_features(schema, config.model.features, "model.features"))
    with seeded(config.training.seed), computing_with(config.training.precision):
        model: RecModel = MODELS.build(
            config.model, used, [head.units for head in heads.values() if head.units]
        )
        linear_units = model.units if model.uses_linear else 0
        embeddings = EmbeddingCollection(
            _embedded(model, used),
            linear_units=linear_units if model.uses_embeddings else 0,
            seed=config.training.seed,
            l2=config.embedding.l2,
            batch_outputs=schema.ids,
            shards=shards,
            storage=config.embedding.storage,
        )
        groups = {group.name: [output.feature for output in group.singles] for group in embeddings.groups}
        linear_key = "linear" if model.uses_embeddings else "embedding"
        network = Network(
            embeddings,
            InputAssembler(used, number_columns(schema), groups, linear_units, linear_key),
            model,
            heads,
            SideSplit(schema, groups),
            ItemSampling(_item_column(config, schema), item_counts),
        )
        network.forward(_blank_batch(schema))  # creates the dense weights
    return network


def _require_towers(config: PipelineConfig, heads: Mapping[str, Head]) -> None:
    if config.model.towers:
        return
    known = ", ".join(part.name for part in MODELS if part.config.towers)
    problems = [
        Problem(
            f"tasks.{name}.type",
            f"a {head.config.type} task needs a model that has a vector for users and one for items, which "
            f"{config.model.type} has not; use one of: {known}",
        )
        for name, head in heads.items()
        if head.towers
    ]
    if problems:
        raise ConfigError(problems)


def _embedded(model: RecModel, schema: FeatureSchema) -> list[IdsOutput]:
    """The id outputs as the embedding tables see them."""
    if model.uses_embeddings:
        return [
            dataclasses.replace(output, sequence=output.sequence and model.uses_sequences)
            for output in schema.ids
        ]
    # Linear weights only: a table of `units` columns that starts at zero, and sums that stay linear.
    return [
        dataclasses.replace(
            output,
            dim=model.units,
            sequence=False,
            pooling="sum" if output.pooling == "max" else output.pooling,
            initializer=Initializer(type="zeros"),
        )
        for output in schema.ids
        if not (output.sequence and table_owner(schema, output))
    ]


def _item_column(config: PipelineConfig, schema: FeatureSchema) -> int | None:
    """The column of the item key in `ids`."""
    for column, output in enumerate(schema.single_ids):
        feature = config.features.get(output.feature)
        if isinstance(feature, IdFeature) and feature.columns(output.feature) == [config.data.keys.item]:
            return column
    return None


def _blank_batch(schema: FeatureSchema, rows: int = 2) -> Tensors:
    """A batch in which everything is missing."""
    batch = {
        "ids": tf.zeros([rows, len(schema.single_ids)], tf.int32),
        "numbers": tf.zeros([rows, len(number_columns(schema))]),
    }
    for output in schema.multi_ids:
        batch[f"{output.feature}/values"] = tf.zeros([0], tf.int32)
        batch[f"{output.feature}/row_lengths"] = tf.zeros([rows], tf.int32)
        if output.weighted:
            batch[f"{output.feature}/weights"] = tf.zeros([0])
    return batch


def _float32(values: tf.Tensor) -> tf.Tensor:
    """Logits and vectors leave the model as float32, whatever it computes with: losses and sums need the digits."""
    return tf.cast(values, tf.float32)
