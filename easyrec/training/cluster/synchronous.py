"""Updates in step on parameter servers: each worker computes the gradients of a batch, the coordinator adds them up.

    batch ─> worker 0 ─┐ gradients of rows and dense weights, all from the same weights
    batch ─> worker 1 ─┼─> coordinator: sum, weighted by rows ──> servers: one update
    batch ─> worker 2 ─┘

A worker changes nothing, so a batch may be computed again when its worker is lost or hangs, and whatever a worker that
was given up sends later is ignored. The update is the one that replicas in step make (`easyrec.training.replicas`):
that of one batch of all rows of the round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from easyrec.data.prepared.records import RecordLayout
from easyrec.embedding.collection import Activations
from easyrec.training.cluster.load import worker_stat
from easyrec.training.cluster.split_function import Traffic, sized
from easyrec.training.replicas import update_shared_rows
from easyrec.training.step import Tensors, TrainStep

_HERE = "/job:chief/replica:0/task:0/device:CPU:0"
Results = Mapping[str, Any]


class GradientFunction:
    """Computes the gradients of one batch of a split, in graph operations that run on whichever worker gets it.

    Args:
        step: The inner step.
        layout: Of the records.
        batch_size: Rows of a full batch, for which the dense part is compiled.

    Attributes:
        names: Of the losses, in the order in which they are given.
    """

    def __init__(self, step: TrainStep, layout: RecordLayout, batch_size: int) -> None:
        self.names: list[str] = []
        self._step = step
        self._layout = layout
        self._batch_size = batch_size
        self._traffic = Traffic(step)
        self._functions: dict[bool, Any] = {}

    def of(self, full: bool) -> Any:
        """The function for batches that are full, compiled, or for smaller ones.

        It takes the file of a split and the position of the batch in it, and gives `losses` [parts]; by group the
        distinct ids and by table key the gradients of their rows; `gradient/<i>` and `state/<i>` of the dense part;
        and `bytes`, `seconds` and `worker` as the function that trains a split does.
        """
        if full not in self._functions:
            function = tf.function(
                partial(self._compute, full=full),
                input_signature=[tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)],
                autograph=False,
            )
            # Traced here: a new function is told to every process of the cluster, and would wait for one that hangs.
            function.get_concrete_function()
            self._functions[full] = function
        return self._functions[full]

    def _compute(self, path: tf.Tensor, position: tf.Tensor, full: bool) -> Tensors:
        begin = tf.timestamp()
        step, embeddings = self._step, self._step.network.embeddings
        with tf.control_dependencies([begin]):
            records = tf.data.TFRecordDataset(path, buffer_size=1 << 20).skip(position).take(1)
            batch, coded = self._layout.parse(next(iter(records)))
        lookup = embeddings.lookup(batch, coded)
        weights, state = step.read()
        compiled = tf.function(
            partial(step.gradients), jit_compile=full and step.config.jit_compile, autograph=False
        )

        def dense(activations: Activations, fixed: Tensors) -> Any:
            if full:
                activations, fixed = (sized(one, self._batch_size) for one in (activations, fixed))
            return compiled(activations, fixed, weights, state)

        results, found = step.through_rows(batch, lookup, embeddings.gather(lookup), dense)
        losses, _, gradients, after = results
        if embeddings.l2:  # counted once a round, for rows that several batches share
            losses["loss"] -= losses.pop("embedding_l2")
        for group in embeddings.groups:
            found[f"unique/{group.name}"] = lookup[f"unique/{group.name}"]
        found |= {f"gradient/{index}": value for index, value in enumerate(gradients)}
        found |= {f"state/{index}": value for index, value in enumerate(after)}
        self.names = sorted(losses)
        found["losses"] = tf.stack([losses[name] for name in self.names])
        found["bytes"] = tf.cast(self._traffic.of(lookup), tf.float64)
        with tf.control_dependencies(list(found.values())):
            found["seconds"] = tf.timestamp() - begin
            found["worker"] = worker_stat()
        return found


class RoundUpdate:
    """One update of rows and weights from the gradients of several batches.

    Args:
        strategy: In whose scope the step's variables were made.
        step: The inner step.
    """

    def __init__(self, strategy: tf.distribute.Strategy, step: TrainStep) -> None:
        self._strategy = strategy
        self._step = step
        self._keys = [
            *(f"unique/{group.name}" for group in step.network.embeddings.groups),
            *step.network.embeddings.tables,
        ]
        self._function = tf.function(partial(self._run), input_signature=self._signature(), autograph=False)
        self._function.get_concrete_function()

    def __call__(self, results: Sequence[Results], rows: Sequence[int], factor: float) -> float:
        """Updates the weights.

        Args:
            results: Of `GradientFunction`, a batch each, as NumPy values.
            rows: Rows of each batch.
            factor: The schedule's factor.

        Returns:
            The l2 penalty on the rows used; 0 where there is none.
        """
        shares = [number / sum(rows) for number in rows]
        gathered = {
            key: np.concatenate(
                [
                    one[key] if key.startswith("unique/") else one[key] * np.float32(share)
                    for one, share in zip(results, shares, strict=True)
                ]
            )
            for key in self._keys
        }
        gradients = [
            _mean([one[f"gradient/{index}"] for one in results], shares)
            for index in range(len(self._step.weights))
        ]
        state = [
            _mean([one[f"state/{index}"] for one in results], shares)
            for index in range(len(self._step.state))
        ]
        return float(self._function(gathered, gradients, state, np.float32(factor)))

    def _signature(self) -> list[Any]:
        embeddings = self._step.network.embeddings
        gathered = {
            f"unique/{group.name}": tf.TensorSpec([None], group.id_dtype) for group in embeddings.groups
        }
        gathered |= {
            key: tf.TensorSpec([None, table.dim], tf.float32) for key, table in embeddings.tables.items()
        }
        gradients = [tf.TensorSpec(one.value.shape, tf.float32) for one in self._step.weights]
        state = [tf.TensorSpec(one.value.shape, one.value.dtype) for one in self._step.state]
        return [gathered, gradients, state, tf.TensorSpec([], tf.float32)]

    def _run(self, *arguments: Any) -> tf.Tensor:
        return self._strategy.run(self._update, args=arguments)

    def _update(
        self, gathered: Tensors, gradients: list[tf.Tensor], state: list[tf.Tensor], factor: tf.Tensor
    ) -> tf.Tensor:
        with tf.device(_HERE):  # Keras asks where gradients lie
            here = [tf.identity(gradient) for gradient in gradients]
            penalty = update_shared_rows(self._step, gathered, factor)
            here = self._step.clipped(here)
        self._step.apply(here, state, factor)
        return tf.constant(0.0) if penalty is None else penalty


def _mean(values: Sequence[Any], shares: Sequence[float]) -> Any:
    """The weighted mean; counters and seeds move on alike everywhere."""
    if not np.issubdtype(np.asarray(values[0]).dtype, np.floating):
        return values[0]
    return sum(
        (np.asarray(value) * np.float32(share) for value, share in zip(values, shares, strict=True)),
        start=np.float32(0),
    )
