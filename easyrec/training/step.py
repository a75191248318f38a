"""The inner step: one batch, forward and backward, both optimizers.

    distinct rows --gather, expand--> activations --dense part--> loss
    row gradients <--segment sums-- activation gradients <--/

The row side has shapes that change with every batch and runs as ordinary graph ops; the dense part has the shapes of
the batch and is compiled with XLA. A batch of another size, such as the last of an epoch, takes the same route
without XLA, which would compile once more for its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import keras
import tensorflow as tf

from easyrec.config.training import TrainingConfig
from easyrec.embedding.collection import Activations, EmbeddingCollection, Rows
from easyrec.embedding.lookup import Lookup
from easyrec.embedding.optimizers import row_optimizer
from easyrec.training.optimizers import dense_optimizer

Tensors = dict[str, tf.Tensor]
# Gradients of a mean over some thousand rows are small; this lifts them into the range that float16 resolves.
_LOSS_SCALE = 1024.0


class TrainableNetwork(Protocol):
    """What training needs of a network; `easyrec.models.network.Network` is one."""

    embeddings: EmbeddingCollection

    @property
    def trainable_variables(self) -> Sequence[keras.Variable]:
        """The dense weights that gradients move."""

    @property
    def reads_ids(self) -> bool:
        """Whether losses need the ids of a batch beside their activations."""

    def named_variables(self) -> Mapping[str, keras.Variable]:
        """All dense weights and state (moving averages, dropout seeds), by names that each process gives alike."""

    def dense(self, activations: Activations, numbers: tf.Tensor | None, training: bool) -> Any:
        """Logits by task."""

    def loss(self, logits: Any, batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, Tensors]:
        """The scalar to minimise, and its parts by name."""


class TrainStep:
    """Applies batches to a network, one at a time.

    Args:
        network: The network; its weights are changed.
        config: Optimizers, clipping, compilation, and the batch size that is compiled.
    """

    def __init__(self, network: TrainableNetwork, config: TrainingConfig) -> None:
        self.network = network
        self.config = config
        self.weights = list(network.trainable_variables)
        known = {id(weight) for weight in self.weights}
        self.state = [
            variable for variable in network.named_variables().values() if id(variable) not in known
        ]
        self.dense_optimizer = dense_optimizer(config.optimizer.dense)
        self.dense_optimizer.build(self.weights)
        self._loss_scale = _LOSS_SCALE if config.precision == "float16" else 1.0
        self.row_optimizer = row_optimizer(config.optimizer.embedding)
        self.row_optimizer.build(network.embeddings.tables)
        self._compiled: dict[bool, Callable[..., Tensors]] = {}

    def __call__(self, batch: Tensors, lookup: Lookup, factor: float) -> Tensors:
        """Trains on one batch.

        Args:
            batch: An encoded batch as tensors (`easyrec.features.outputs`).
            lookup: Its distinct ids, from `EmbeddingCollection.host_lookup`.
            factor: The schedule's factor on both learning rates.

        Returns:
            `loss`, what was minimised, and its parts by name, scalars. Both are of before the update.
        """
        full = batch_rows(batch) == self.config.batch_size
        function = self._compiled.get(full)
        if function is None:
            function = self._compiled[full] = self._build(batch, lookup, full)
        return function(batch, lookup, tf.constant(factor, tf.float32))

    def _build(self, batch: Tensors, lookup: Lookup, full: bool) -> Callable[..., Tensors]:
        ragged = ragged_keys(batch)
        signature = (
            {key: _spec(value, full and key not in ragged) for key, value in batch.items()},
            {key: _spec(value, full=False) for key, value in lookup.items()},
            tf.TensorSpec([], tf.float32),
        )
        # TensorFlow warns when one code is traced often; behind `partial`, each network's function is its own.
        dense = tf.function(
            partial(self._dense), jit_compile=full and self.config.jit_compile, autograph=False
        )

        def step(batch: Tensors, lookup: Lookup, factor: tf.Tensor) -> Tensors:
            rows = self.network.embeddings.gather(lookup)
            (losses, _), gradients = self.through_rows(
                batch, lookup, rows, lambda activations, fixed: dense(activations, fixed, factor)
            )
            self.update_rows(lookup, rows, gradients, factor)
            return losses

        return tf.function(partial(step), input_signature=signature, autograph=False)

    def through_rows(
        self, batch: Tensors, lookup: Lookup, rows: Rows, dense: Callable[[Activations, Tensors], Any]
    ) -> tuple[Any, Rows]:
        """From the rows of a batch through the dense part and back.

        Args:
            batch: An encoded batch.
            lookup: Its distinct ids.
            rows: Their rows.
            dense: From activations and the batch without its multi-valued features to a tuple that begins with the
                losses and the gradients of the activations.

        Returns:
            What `dense` gave, the l2 penalty among the losses, and the gradients of the rows without it.
        """
        embeddings = self.network.embeddings
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(rows)
            activations = embeddings.expand(rows, lookup)
        ragged = ragged_keys(batch)
        results = dense(activations, {key: value for key, value in batch.items() if key not in ragged})
        losses, upstream = results[:2]
        targets = {key: activations[key] for key in upstream}
        gradients = tape.gradient(targets, rows, output_gradients=upstream)
        if embeddings.l2:
            losses["embedding_l2"] = embeddings.penalty(rows)
            losses["loss"] += losses["embedding_l2"]
        return results, gradients

    def update_rows(self, lookup: Lookup, rows: Rows, gradients: Rows, factor: tf.Tensor) -> None:
        """Updates the rows of a batch by the gradients of `through_rows`."""
        optimizer = self.config.optimizer
        self.network.embeddings.apply_gradients(
            self.row_optimizer,
            lookup,
            rows,
            gradients,
            factor * optimizer.embedding.learning_rate,
            clip_norm=optimizer.clip_embedding_norm,
        )

    def final_row_gradients(self, rows: Rows, gradients: Rows) -> Rows:
        """The gradients of `through_rows` with that of the l2 penalty, and clipped."""
        return self.network.embeddings.final_gradients(
            rows, gradients, self.config.optimizer.clip_embedding_norm
        )

    def _dense(self, activations: Activations, batch: Tensors, factor: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Forward, backward and update of the dense part; the losses, and the gradients of the activations."""
        weights, state = self.read()
        losses, upstream, gradients, state = self.gradients(activations, batch, weights, state)
        self.apply(self.clipped(gradients), state, factor)
        return losses, upstream

    def read(self) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Values of the dense weights and of the dense state."""
        return (
            [tf.convert_to_tensor(weight.value) for weight in self.weights],
            [tf.convert_to_tensor(variable.value) for variable in self.state],
        )

    def gradients(
        self,
        activations: Activations,
        batch: Tensors,
        weights: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
    ) -> tuple[Tensors, Tensors, list[tf.Tensor], list[tf.Tensor]]:
        """The mathematics of the dense part: a pure function, wherever the variables lie.

        With `training.accumulate` the rows are taken part by part: gradients are those of the mean of the parts'
        losses. A smaller batch is taken as a whole.

        Args:
            activations: Of `EmbeddingCollection.expand`.
            batch: The batch without its multi-valued features.
            weights: Values of the dense weights.
            state: Values of the dense state.

        Returns:
            The losses, the gradients in the activations, those in the weights, and the new state.
        """
        rows, parts = next(iter(batch.values())).shape[0], self.config.accumulate
        if parts == 1 or rows is None or rows % parts:
            return self._gradients(activations, batch, weights, state)
        losses, upstream, sums = [], [], [tf.zeros_like(weight) for weight in weights]
        for part in range(parts):
            some = slice(part * rows // parts, (part + 1) * rows // parts)
            found, above, gradients, state = self._gradients(
                {key: value[some] for key, value in activations.items()},
                {key: value[some] for key, value in batch.items()},
                weights,
                state,
            )
            losses.append(found)
            upstream.append(above)
            sums = [total + gradient for total, gradient in zip(sums, gradients, strict=True)]
        return (
            {name: tf.add_n([found[name] for found in losses]) / parts for name in losses[0]},
            {key: tf.concat([above[key] for above in upstream], 0) / parts for key in upstream[0]},
            [total / parts for total in sums],
            list(state),
        )

    def _gradients(
        self,
        activations: Activations,
        batch: Tensors,
        weights: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
    ) -> tuple[Tensors, Tensors, list[tf.Tensor], list[tf.Tensor]]:
        learned = {key: value for key, value in activations.items() if not key.startswith("mask/")}
        weights = list(weights)
        mapping = [*zip(self.weights, weights, strict=True), *zip(self.state, state, strict=True)]
        with (
            tf.GradientTape(watch_accessed_variables=False) as tape,
            keras.StatelessScope(state_mapping=mapping) as scope,
        ):
            tape.watch([learned, weights])
            logits = self.network.dense(activations, batch.get("numbers"), training=True)
            total, parts = self.network.loss(logits, batch)
            scaled = total * self._loss_scale
        upstream, gradients = tape.gradient(
            scaled, [learned, weights], unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        if self._loss_scale != 1:
            upstream, gradients = _unscaled(upstream, gradients, self._loss_scale)
        after = [tf.convert_to_tensor(scope.get_current_value(variable)) for variable in self.state]
        return {**parts, "loss": total}, upstream, gradients, after

    def clipped(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Gradients of the dense weights, of the norm that is allowed at most."""
        norm = self.config.optimizer.clip_norm
        return list(gradients) if norm is None else list(tf.clip_by_global_norm(gradients, norm)[0])

    def apply(self, gradients: Sequence[tf.Tensor], state: Sequence[tf.Tensor], factor: tf.Tensor) -> None:
        """Updates the dense weights by gradients, `clipped` already, and overwrites the dense state."""
        self.dense_optimizer.learning_rate.assign(factor * self.config.optimizer.dense.learning_rate)
        self.dense_optimizer.apply(list(gradients), self.weights)
        for variable, value in zip(self.state, state, strict=True):
            variable.value.assign(value)


def _unscaled(
    upstream: Tensors, gradients: Sequence[tf.Tensor], scale: float
) -> tuple[Tensors, list[tf.Tensor]]:
    """Gradients of a loss that was scaled up; all zero when one has left the range of float16."""
    finite = tf.reduce_all(
        [tf.reduce_all(tf.math.is_finite(one)) for one in (*upstream.values(), *gradients)]
    )

    def back(gradient: tf.Tensor) -> tf.Tensor:
        return tf.where(finite, gradient / scale, tf.zeros_like(gradient))

    return {key: back(one) for key, one in upstream.items()}, [back(one) for one in gradients]


def batch_rows(batch: Mapping[str, Any]) -> int:
    """B of an encoded batch."""
    ragged = ragged_keys(batch)
    one_per_row = (key for key in batch if key not in ragged or key.endswith("/row_lengths"))
    return int(batch[next(one_per_row)].shape[0])


def ragged_keys(batch: Mapping[str, Any]) -> frozenset[str]:
    """The keys of an encoded batch that belong to multi-valued features; a task may be called `values`, too."""
    features = {key.removesuffix("/row_lengths") for key in batch if key.endswith("/row_lengths")}
    features = {feature for feature in features if f"{feature}/values" in batch}
    parts = ("values", "row_lengths", "weights")
    return frozenset(f"{feature}/{part}" for feature in features for part in parts) & batch.keys()


def _spec(value: tf.Tensor, full: bool) -> tf.TensorSpec:
    return tf.TensorSpec(value.shape if full else [None, *value.shape[1:]], value.dtype)
