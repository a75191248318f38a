"""What a worker does with one split: read its batches, and train on each with the step that every strategy shares.

    records --(parse: input threads)--> batch --strategy.run--> rows and weights from the servers,
    the dense part on the worker (XLA), gradients to the servers

The loop over batches is outside `strategy.run`, in one function, so that a split costs one message from the
coordinator however many batches it has. Several such loops, the streams, take batches from one another: while one waits
for a server, another computes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from easyrec.data.prepared.records import RecordLayout
from easyrec.embedding.collection import Activations
from easyrec.embedding.lookup import Lookup
from easyrec.training.cluster.exchange import Exchange
from easyrec.training.cluster.load import worker_stat
from easyrec.training.cluster.streams import beside_each_other
from easyrec.training.step import Tensors, TrainStep

State = tuple[tf.Tensor, Tensors, Lookup, tf.Tensor, tf.Tensor]

_PREFETCH = 3
_LARGEST_SPLIT = 1 << 20


class Traffic:
    """Bytes that a batch moves between a worker and the servers.

    Args:
        step: The inner step.
    """

    def __init__(self, step: TrainStep) -> None:
        self._groups = [
            (
                f"unique/{group.name}",
                group.id_dtype().itemsize,
                2
                * sum(
                    embeddings.tables[f"{kind}/{group.name}"].row_bytes for kind, _ in embeddings.kinds(group)
                ),
            )
            for embeddings in [step.network.embeddings]
            for group in embeddings.groups
        ]
        self.dense = 4 * sum(
            2 * variable.value.shape.num_elements() for variable in (*step.weights, *step.state)
        )

    def of(self, lookup: Lookup) -> tf.Tensor:
        """Ids out, rows in, ids and gradients out; and the dense weights in and their gradients out."""
        total = tf.constant(self.dense, tf.int64)
        for key, id_bytes, rows in self._groups:
            total += tf.size(lookup[key], tf.int64) * (2 * id_bytes + rows)
        return total


class SplitFunction:
    """Trains on the batches of one split, in graph operations that run on whichever worker gets it.

    Args:
        strategy: The strategy in whose scope the step's variables were made.
        step: The inner step.
        layout: Of the records.
        batch_size: Rows of a full batch, for which the dense part is compiled.
        streams: How many batches are trained on at the same time. Each takes the next one when it is done.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: TrainStep,
        layout: RecordLayout,
        batch_size: int,
        streams: int = 1,
    ) -> None:
        self._strategy = strategy
        self._step = step
        self._layout = layout
        self._batch_size = batch_size
        self._streams = streams
        self._traffic = Traffic(step)
        self._exchange = Exchange(step)
        self._compiled = tf.function(
            partial(step.gradients), jit_compile=step.config.jit_compile, autograph=False
        )
        self.train = tf.function(
            partial(self._train),
            input_signature=[
                tf.TensorSpec([], tf.string),
                tf.TensorSpec([None], tf.float32),
                tf.TensorSpec([], tf.int32),
                tf.TensorSpec([], tf.int64),
            ],
            autograph=False,
        )
        # Traced here: a new function is told to every process of the cluster, and would wait for one that hangs.
        self.train.get_concrete_function()

    def _train(self, path: tf.Tensor, factors: tf.Tensor, full: tf.Tensor, seed: tf.Tensor) -> Tensors:
        """Trains on a split.

        Args:
            path: Its file.
            factors: The schedule's factor for each batch, [batches].
            full: How many of the batches are full.
            seed: Order of the batches; negative for that in the file. Batches that are not full come last.

        Returns:
            `losses` [parts], summed over batches; `bytes` that the batches moved between worker and servers; `seconds`
            of work; `worker`, what Linux says of the process that did it.
        """
        begin = tf.timestamp()
        with tf.control_dependencies([begin]):
            arguments = (iter(self.batches(path, seed)), factors, full)
            outcomes = beside_each_other(self._stream, arguments, self._streams)
            # Not `add_n`: a stream that found no batch gives one zero, whatever the number of losses.
            losses, moved = (sum(parts[1:], parts[0]) for parts in zip(*outcomes, strict=True))
        with tf.control_dependencies([losses]):
            seconds = tf.timestamp() - begin
            worker = worker_stat()
        return {"losses": losses, "bytes": moved, "worker": worker, "seconds": seconds}

    def _stream(self, batches: Any, factors: tf.Tensor, full: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Trains on batches until none is left; sums of losses, which are [1] for no batch, and bytes."""
        state = (*next(batches), tf.zeros([1]), tf.constant(0.0, tf.float64))
        # Two loops, because the shapes of full batches are known and the dense part is compiled for them.
        state = self._loop(batches, factors, full, True, state)
        _, _, _, losses, moved = self._loop(batches, factors, tf.size(factors), False, state)
        return losses, moved

    def _loop(self, batches: Any, factors: tf.Tensor, end: tf.Tensor, full: bool, state: State) -> State:
        """Trains on batches up to before number `end`; what comes next, sums of losses, bytes."""

        def body(
            index: tf.Tensor, batch: Tensors, lookup: Lookup, sums: tf.Tensor, moved: tf.Tensor
        ) -> State:
            losses = self._strategy.run(
                self._one, args=(batch, lookup, factors[index]), kwargs={"full": full}
            )
            self.names = sorted(losses)
            moved += tf.cast(self._traffic.of(lookup), tf.float64)
            sums += tf.stack([losses[name] for name in self.names])
            return (*next(batches), sums, moved)

        shapes = tf.nest.map_structure(lambda tensor: tensor.shape, state)
        return tf.while_loop(
            lambda index, *_: index < end,
            body,
            state,
            shape_invariants=(*shapes[:3], tf.TensorShape([None]), *shapes[4:]),
            parallel_iterations=1,
        )

    def batches(self, path: tf.Tensor, seed: tf.Tensor) -> tf.data.Dataset:
        """The batches of a split in the order of an epoch, with their lookups, on input threads.

        Each comes with its number. As many empty ones follow as there are streams, which tell each that it is done.
        """
        embeddings = self._step.network.embeddings

        # The shuffle of tf.data takes no seed that is a tensor; a split is small enough to be permuted as a whole.
        def ordered(records: tf.Tensor) -> tf.Tensor:
            rows = tf.io.decode_raw(tf.strings.substr(records, 0, 4), tf.int32)[:, 0]
            key = tf.stack([seed, tf.size(records, tf.int64)])
            places = tf.where(seed < 0, 0.0, tf.random.stateless_uniform(tf.shape(records), key))
            places += tf.cast(rows != self._batch_size, tf.float32)
            sequence = tf.gather(records, tf.argsort(places, stable=True))
            return tf.concat([sequence, [self._layout.empty] * self._streams], 0)

        def ready(index: tf.Tensor, record: tf.Tensor) -> tuple[tf.Tensor, Tensors, Lookup]:
            batch, coded = self._layout.parse(record)
            lookup = embeddings.lookup(batch, coded)
            if not self._step.network.reads_ids:  # then nobody makes them from their places
                batch.pop("ids", None)
            return tf.cast(index, tf.int32), batch, lookup

        records = tf.data.TFRecordDataset(path, buffer_size=1 << 20)
        records = records.batch(_LARGEST_SPLIT).map(ordered).unbatch().enumerate()
        return records.map(ready, num_parallel_calls=2).prefetch(_PREFETCH).with_options(_as_written())

    def _one(self, batch: Tensors, lookup: Lookup, factor: tf.Tensor, full: bool) -> Tensors:
        """One batch, in replica context."""
        step = self._step
        rows, values = self._exchange.fetch(lookup)
        count = len(step.weights)
        weights, before = values[:count], values[count:]

        def dense(activations: Activations, fixed: Tensors) -> Any:
            if not full:
                return step.gradients(activations, fixed, weights, before)
            return self._compiled(
                *(sized(one, self._batch_size) for one in (activations, fixed)), weights, before
            )

        (losses, _, gradients, after), row_gradients = step.through_rows(batch, lookup, rows, dense)
        row_gradients = step.final_row_gradients(rows, row_gradients)
        self._exchange.push(lookup, row_gradients, step.clipped(gradients), after, factor)
        return losses


def _as_written() -> tf.data.Options:
    """Runs a dataset as it is written: rewriting and tuning it anew for each split costs more than it gains."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return options


def sized(tensors: Tensors, rows: int) -> Tensors:
    """Tensors of a batch whose rows are known, with shapes that say so."""
    return {key: tf.ensure_shape(value, [rows, *value.shape[1:]]) for key, value in tensors.items()}
