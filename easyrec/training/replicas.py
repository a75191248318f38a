"""Synchronous training: every replica computes the gradients of its own batch, all add them up, all do the same update.

    mirrored       the devices of one machine are the replicas; there is one copy of the weights
    multi_worker   the processes of `TF_CONFIG` are the replicas; each has a copy, and all copies stay alike

The mathematics of a batch is that of `TrainStep`. Gradients of dense weights are reduced, those of rows are gathered:
ids and gradients travel, tables do not. A step of R replicas equals one of a batch R times as large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from easyrec.config.training import TrainingConfig
from easyrec.embedding.collection import EmbeddingCollection
from easyrec.embedding.lookup import Lookup
from easyrec.features.batch import EncodedBatch
from easyrec.layers.normalization import synchronized_batch_norm
from easyrec.training.cluster.meeting import LOSSES, who_was_lost
from easyrec.training.cluster.roles import ClusterError, Role
from easyrec.training.prefetch import BatchStream, PreparedBatch, prepare
from easyrec.training.report import TrainingResult
from easyrec.training.schedules import schedule_factor
from easyrec.training.step import Tensors, TrainableNetwork, TrainStep, batch_rows, ragged_keys
from easyrec.training.trainer import Trainer


@dataclass(frozen=True)
class Replicas:
    """The replicas of a synchronous training.

    Attributes:
        strategy: TensorFlow's strategy that connects them.
        count: How many there are.
        first: Number of this process's first.
        local: How many are in this process.
        chief: Whether this process writes checkpoints.
        roles: The processes, in the order of their replicas.
    """

    strategy: Any
    count: int
    first: int = 0
    local: int = 1
    chief: bool = True
    roles: Sequence[Role] = ()


@dataclass(frozen=True)
class _Group:
    """The batches of one step for this process, and the rows of all processes in it."""

    own: list[EncodedBatch]
    num_rows: int


class ReplicaStream:
    """The batches of a stream, dealt out to replicas: of each R in a row, this process gets its own.

    Args:
        stream: The batches; alike in every process.
        replicas: Who there is.
    """

    def __init__(self, stream: BatchStream, replicas: Replicas) -> None:
        self._stream = stream
        self._replicas = replicas

    def batches(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        """The groups of an epoch; a replica for which the last group has no batch left gets an empty one."""
        replicas, group = self._replicas, []
        for batch in self._stream.batches(epoch, skip * replicas.count):
            group.append(batch)
            if len(group) == replicas.count:
                yield self._own(group)
                group = []
        if group:
            missing = replicas.count - len(group)
            yield self._own([*group, *([group[0].slice(0, 0)] * missing)])

    def _own(self, group: list[EncodedBatch]) -> _Group:
        first = self._replicas.first
        own = group[first : first + self._replicas.local]
        return _Group(own, sum(batch.num_rows for batch in group))


def prepare_group(embeddings: EmbeddingCollection, group: _Group) -> PreparedBatch:
    """The batches of this process ready for the step."""
    parts = [prepare(embeddings, batch) for batch in group.own]
    for part, batch in zip(parts, group.own, strict=True):
        part.lookup["share"] = tf.constant(batch.num_rows / group.num_rows, tf.float32)
    return PreparedBatch(
        group.num_rows,
        parts[0].arrays,
        {str(index): part.tensors for index, part in enumerate(parts)},
        {str(index): part.lookup for index, part in enumerate(parts)},
    )


class ReplicaStep(TrainStep):
    """The inner step of synchronous replicas.

    Args:
        network: The network; its weights are changed.
        config: As for `TrainStep`.
        replicas: Who takes part.
        stop: Asked in every step whether this process wants to end; all end after the same step.
    """

    def __init__(
        self,
        network: TrainableNetwork,
        config: TrainingConfig,
        replicas: Replicas,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(network, config)
        self._replicas = replicas
        self._stop = stop
        self.stopped = False
        self._functions: dict[Any, Any] = {}

    def __call__(self, batch: Any, lookup: Any, factor: float) -> Tensors:
        """Trains on one batch a replica, see `TrainStep`."""
        names = sorted(batch)
        key = tuple(batch_rows(batch[name]) for name in names)
        full = all(rows == self.config.batch_size for rows in key)
        function = self._functions.get(full)
        if function is None:
            # One function for full batches, compiled, and one for all others.
            dense = tf.function(
                partial(self.gradients), jit_compile=full and self.config.jit_compile, autograph=False
            )
            step = partial(self._step, dense=dense)
            function = tf.function(step, autograph=False, reduce_retracing=True)
            self._functions[full] = function
        losses = function(
            [batch[name] for name in names],
            [lookup[name] for name in names],
            tf.constant(factor, tf.float32),
            tf.constant(float(self._stop())),
        )
        self.stopped = float(losses.pop("stop")) > 0
        return losses

    def _step(
        self,
        batches: Sequence[Tensors],
        lookups: Sequence[Lookup],
        factor: tf.Tensor,
        stop: tf.Tensor,
        dense: Any,
    ) -> Tensors:
        strategy = self._replicas.strategy

        if self._replicas.local == 1:
            results = strategy.run(partial(self._replica, dense=dense), args=(batches[0], lookups[0], stop))
        else:

            def one(stop: tf.Tensor) -> Any:
                context = tf.distribute.get_replica_context()
                index = _static(context.replica_id_in_sync_group) - self._replicas.first
                return self._replica(batches[index], lookups[index], stop, dense=dense)

            results = strategy.run(one, args=(stop,))
        losses, gradients, state, rows = tf.nest.map_structure(
            lambda value: strategy.experimental_local_results(value)[0], results
        )
        penalty = update_shared_rows(self, rows, factor)
        if penalty is not None:
            losses["embedding_l2"] = penalty
            losses["loss"] += penalty
        self.apply(self.clipped(gradients), state, factor)
        return losses

    def _replica(self, batch: Tensors, lookup: Lookup, stop: tf.Tensor, dense: Any) -> Any:
        """In replica context: gradients of one batch, added up over all replicas."""
        context = tf.distribute.get_replica_context()
        embeddings = self.network.embeddings
        share = lookup["share"]
        rows = embeddings.gather(lookup)
        weights, state = self.read()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(rows)
            activations = embeddings.expand(rows, lookup)
        ragged = ragged_keys(batch)
        fixed = {key: value for key, value in batch.items() if key not in ragged}
        if self.config.synchronized_batch_norm:
            # Not as a function of its own, compiled or not: replicas cannot meet inside of one.
            with synchronized_batch_norm(partial(_sum_over_replicas, context, share)):
                losses, upstream, gradients, after = self.gradients(activations, fixed, weights, state)
        else:
            losses, upstream, gradients, after = dense(activations, fixed, weights, state)
        targets = {key: activations[key] for key in upstream}
        row_gradients = tape.gradient(targets, rows, output_gradients=upstream)
        # A batch without rows has a mean loss that is no number; it has no share.
        some = share > 0
        whole = {name: tf.where(some, value * share, 0.0) for name, value in losses.items()}
        whole["stop"] = tf.identity(stop)
        reduced = [tf.where(some, gradient * share, tf.zeros_like(gradient)) for gradient in gradients]
        kept = [
            _averaged(context, value, before, share, some) for value, before in zip(after, state, strict=True)
        ]
        gathered = {}
        for group in embeddings.groups:
            unique = f"unique/{group.name}"
            gathered[unique] = context.all_gather(tf.identity(lookup[unique]), axis=0)
            for kind, _ in embeddings.kinds(group):
                key = f"{kind}/{group.name}"
                gathered[key] = context.all_gather(row_gradients[key] * share, axis=0)
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, [whole, reduced])
        return total[0], total[1], kept, gathered


def update_shared_rows(step: TrainStep, gathered: Tensors, factor: tf.Tensor) -> tf.Tensor | None:
    """Updates each row once, with the sum of the gradients that several batches have for it.

    Args:
        step: Whose rows and optimizer.
        gathered: Of all batches, one after the other: `unique/<group>` their distinct ids, and by table key the
            gradients of their rows, the l2 penalty left out.
        factor: The schedule's factor.

    Returns:
        The l2 penalty on the rows used, or None where there is none.
    """
    embeddings = step.network.embeddings
    lookup, rows, gradients = {}, {}, {}
    for group in embeddings.groups:
        unique = f"unique/{group.name}"
        ids, inverse = tf.unique(gathered[unique])
        lookup[unique] = ids
        for kind, _ in embeddings.kinds(group):
            key = f"{kind}/{group.name}"
            gradients[key] = tf.math.unsorted_segment_sum(gathered[key], inverse, tf.size(ids))
            table = embeddings.tables[key]
            # Servers read the rows themselves, so that only the penalty needs them here.
            rows[key] = table.gather(ids) if embeddings.l2 or not table.remote else gradients[key]
    penalty = embeddings.penalty(rows) if embeddings.l2 else None
    embeddings.apply_gradients(
        step.row_optimizer,
        lookup,
        rows,
        gradients,
        factor * step.config.optimizer.embedding.learning_rate,
        clip_norm=step.config.optimizer.clip_embedding_norm,
    )
    return penalty


def _sum_over_replicas(context: Any, share: tf.Tensor, values: list[tf.Tensor]) -> list[tf.Tensor]:
    """Sums over replicas, inside the loss of each.

    What is wanted is the gradient of the losses' mean weighted by the shares, and each replica's gradient is multiplied
    by its own share in the end. What comes back from another replica's loss therefore gets that one's share here.
    """

    @tf.custom_gradient
    def total(*values: tf.Tensor) -> Any:
        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            added = context.all_reduce(tf.distribute.ReduceOp.SUM, [one * share for one in upstream])
            return [tf.math.divide_no_nan(one, share) for one in added]

        return context.all_reduce(tf.distribute.ReduceOp.SUM, list(values)), gradient

    return list(total(*values))


def _averaged(
    context: Any, value: tf.Tensor, before: tf.Tensor, share: tf.Tensor, some: tf.Tensor
) -> tf.Tensor:
    """Moving averages over all replicas; counters and seeds move on alike everywhere."""
    if not value.dtype.is_floating:
        return value
    mine = tf.where(some, value, before) * share
    return context.all_reduce(tf.distribute.ReduceOp.SUM, mine)


def _static(index: Any) -> int:
    """A replica's number as Python knows it."""
    found = tf.get_static_value(index)
    return int(index if found is None else found)


class ReplicaTrainer(Trainer):
    """The outer loop of one process among synchronous replicas.

    Args:
        *args: As for `Trainer`.
        replicas: Who takes part.
        **options: As for `Trainer`.
    """

    def __init__(self, *args: Any, replicas: Replicas, **options: Any) -> None:
        self._replicas = replicas
        super().__init__(*args, **options)
        if self.total_steps is not None and self.config.max_steps is None:
            epochs = self.config.epochs
            self.total_steps = epochs * -(-(self.total_steps // epochs) // replicas.count)
            self._factor = schedule_factor(self.config.optimizer.schedule, self.total_steps)

    def fit(self, stream: BatchStream, *, resume: bool = False) -> TrainingResult:
        """Trains to the end, or to a signal; `stream` gives the same batches in every process."""
        try:
            return super().fit(ReplicaStream(stream, self._replicas), resume=resume)
        except LOSSES as error:
            if not self._replicas.roles:
                raise  # on one machine nobody can be lost
            raise ClusterError(
                f"{who_was_lost(error, self._replicas.roles)} after step {self.progress.step}. Processes in step end "
                "together; start all of them again with --resume, to go on from the last checkpoint"
            ) from error

    def _make_step(self, network: TrainableNetwork, config: TrainingConfig) -> TrainStep:
        return ReplicaStep(network, config, self._replicas, lambda: self._asked is not None)

    def _prepare_batch(self, batch: Any) -> PreparedBatch:
        return prepare_group(self.network.embeddings, batch)

    @property
    def _asked(self) -> str | None:
        return self._interrupt.requested

    @property
    def _interrupted(self) -> bool:
        """Whether some process was asked to end: all processes know it after the same step."""
        return isinstance(self.step, ReplicaStep) and self.step.stopped

    def _save(self, metrics: dict[str, float]) -> None:
        if self._replicas.chief:
            super()._save(metrics)
