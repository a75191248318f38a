"""What a batch moves between a worker and the servers: rows and weights in, their gradients out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from easyrec.embedding.collection import Rows
from easyrec.embedding.lookup import Lookup
from easyrec.training.cluster.packing import fetched, pushed
from easyrec.training.step import Tensors, TrainStep


class Exchange:
    """Fetches what a step reads and sends what it changes, in as few messages as is worth it.

    For use in the function of a worker, in replica context.

    Args:
        step: The inner step, whose variables lie on servers.
    """

    def __init__(self, step: TrainStep) -> None:
        self._step = step
        self._dense = [variable.value for variable in (*step.weights, *step.state)]
        homes = {weight.value.device for weight in step.weights}
        # Keras takes all gradients from one place. It is the server if all weights lie there, and else the worker.
        self._home = homes.pop() if len(homes) == 1 else None

    def fetch(self, lookup: Lookup) -> tuple[Rows, list[tf.Tensor]]:
        """The rows of a batch, and the values of the dense weights and state."""
        embeddings = self._step.network.embeddings
        wanted: dict[Any, tuple[str, tf.Tensor]] = {}
        for key, table in embeddings.tables.items():
            for shard, part in enumerate(table.sent(embeddings.ids_of(key, lookup))):
                wanted[key, shard] = table.shards[shard].device, part
        for index, variable in enumerate(self._dense):
            with tf.device(variable.device):
                wanted[index] = variable.device, variable.read_value()
        here = fetched(wanted)
        rows = {
            key: table.received(
                embeddings.ids_of(key, lookup), [here[key, shard] for shard in range(len(table.shards))]
            )
            for key, table in embeddings.tables.items()
        }
        return rows, [here[index] for index in range(len(self._dense))]

    def push(
        self,
        lookup: Lookup,
        row_gradients: Tensors,
        gradients: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        factor: tf.Tensor,
    ) -> None:
        """Has rows, dense weights and state changed where they lie.

        Args:
            lookup: The batch's distinct ids.
            row_gradients: By table key; final.
            gradients: Of the dense weights; clipped.
            state: New values of the dense state.
            factor: The schedule's factor.
        """
        step, tables = self._step, self._step.network.embeddings.tables
        leaving: dict[Any, tuple[str, tf.Tensor]] = {}
        for key, table in tables.items():
            ids = step.network.embeddings.ids_of(key, lookup)
            for shard, rows, part in table.parts(ids, tf.cast(row_gradients[key], table.transfer)):
                device = table.shards[shard].device
                leaving["rows", key, shard] = device, rows
                leaving["gradient", key, shard] = device, part
                leaving["factor", device] = device, factor
        for index, (variable, value) in enumerate(zip(self._dense, (*gradients, *state), strict=True)):
            if self._home is not None or index >= len(gradients):
                leaving[index] = variable.device, value
        if self._home is not None:
            leaving["factor", self._home] = self._home, factor
        there = pushed(leaving)
        for key, table in tables.items():
            for shard, variable in enumerate(table.shards):
                with tf.device(variable.device):
                    rate = there["factor", variable.device] * step.config.optimizer.embedding.learning_rate
                part = there["rows", key, shard], there["gradient", key, shard]
                step.row_optimizer.apply_remote(key, table, shard, *part, rate)
        step.row_optimizer.finish_step()
        dense = [there.get(index, value) for index, value in enumerate((*gradients, *state))]
        with contextlib.nullcontext() if self._home is None else tf.device(self._home):
            factor = there.get(("factor", self._home), factor)
            step.apply(dense[: len(gradients)], dense[len(gradients) :], factor)
