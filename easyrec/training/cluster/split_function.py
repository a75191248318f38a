"""What a worker does with one split: read its batches, and train on each with the step that every strategy shares.

    records --(parse, ids made unique: input threads)--> batch --strategy.run--> rows and weights from the servers,
    the dense part on the worker (XLA), gradients to the servers

The loop over batches is outside `strategy.run`, in one function, so that a split costs one message from the
coordinator however many batches it has.
"""

from __future__ import annotations

from functools import partial

import tensorflow as tf

from easyrec.data.prepared.records import RecordLayout
from easyrec.embedding.lookup import Lookup
from easyrec.training.step import Tensors, TrainStep, ragged_keys

_PREFETCH = 3
_LARGEST_SPLIT = 1 << 20
_STAT = "/proc/self/stat"


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
                sum(dim for _, dim in embeddings.kinds(group)),
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
        for key, id_bytes, width in self._groups:
            total += tf.size(lookup[key], tf.int64) * (2 * id_bytes + 8 * width)
        return total


class SplitFunction:
    """Trains on the batches of one split, in graph operations that run on whichever worker gets it.

    Args:
        strategy: The strategy in whose scope the step's variables were made.
        step: The inner step.
        layout: Of the records.
        batch_size: Rows of a full batch, for which the dense part is compiled.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, step: TrainStep, layout: RecordLayout, batch_size: int
    ) -> None:
        self._strategy = strategy
        self._step = step
        self._layout = layout
        self._batch_size = batch_size
        self._traffic = Traffic(step)
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
        records = self.records(path, seed)
        with tf.control_dependencies([begin]):
            losses, moved = self._loop(records, True, factors[:full])
            rest, more = self._loop(records, False, factors[full:])
        with tf.control_dependencies([losses, rest]):
            seconds = tf.timestamp() - begin
            worker = worker_stat()
        return {"losses": losses + rest, "bytes": moved + more, "worker": worker, "seconds": seconds}

    def _loop(self, records: tf.data.Dataset, full: bool, factors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Trains on the batches that are full, or on those that are not; sums of the losses, and bytes moved.

        Two loops, because the shapes of full batches are known and the dense part is compiled for them.
        """
        iterator = iter(self.batches(records, full))

        def body(index: tf.Tensor, sums: tf.Tensor, moved: tf.Tensor) -> tuple[tf.Tensor, ...]:
            batch, lookup = next(iterator)
            losses = self._strategy.run(
                self._one, args=(batch, lookup, factors[index]), kwargs={"full": full}
            )
            self.names = sorted(losses)
            moved += tf.cast(self._traffic.of(lookup), tf.float64)
            return index + 1, sums + tf.stack([losses[name] for name in self.names]), moved

        start = (tf.constant(0), tf.zeros([1]), tf.constant(0.0, tf.float64))
        _, sums, moved = tf.while_loop(
            lambda index, sums, moved: index < tf.size(factors),
            body,
            start,
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([])),
            parallel_iterations=1,
        )
        return sums, moved

    def records(self, path: tf.Tensor, seed: tf.Tensor) -> tf.data.Dataset:
        """The records of a split in the order of an epoch."""
        records = tf.data.TFRecordDataset(path, buffer_size=1 << 20)

        # The shuffle of tf.data takes no seed that is a tensor; a split is small enough to be permuted as a whole.
        def permuted(some: tf.Tensor) -> tf.Tensor:
            key = tf.stack([seed, tf.size(some, tf.int64)])
            mixed = tf.gather(some, tf.argsort(tf.random.stateless_uniform(tf.shape(some), key)))
            return tf.where(seed < 0, some, mixed)

        return records.batch(_LARGEST_SPLIT).map(permuted).unbatch()

    def batches(self, records: tf.data.Dataset, full: bool) -> tf.data.Dataset:
        """The batches that are full, or the others, with their lookups, made ready on input threads."""
        embeddings = self._step.network.embeddings

        def wanted(record: tf.Tensor) -> tf.Tensor:
            rows = tf.io.decode_raw(tf.strings.substr(record, 0, 4), tf.int32)[0]
            return (rows == self._batch_size) == full

        def ready(record: tf.Tensor) -> tuple[Tensors, Lookup]:
            batch = self._layout.parse(record, self._batch_size if full else None)
            return batch, embeddings.lookup(batch)

        return records.filter(wanted).map(ready, num_parallel_calls=2).prefetch(_PREFETCH)

    def _one(self, batch: Tensors, lookup: Lookup, factor: tf.Tensor, full: bool) -> Tensors:
        """One batch, in replica context."""
        step = self._step
        embeddings = step.network.embeddings
        rows = embeddings.gather(lookup)
        weights, state = step.read()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(rows)
            activations = embeddings.expand(rows, lookup)
        ragged = ragged_keys(batch)
        fixed = {key: value for key, value in batch.items() if key not in ragged}
        sized = activations
        if full:
            sized = {
                key: tf.ensure_shape(value, [self._batch_size, *value.shape[1:]])
                for key, value in activations.items()
            }
        dense = self._compiled if full else step.gradients
        losses, upstream, gradients, state = dense(sized, fixed, weights, state)
        targets = {key: activations[key] for key in upstream}
        row_gradients = tape.gradient(targets, rows, output_gradients=upstream)
        if embeddings.l2:
            losses["embedding_l2"] = embeddings.penalty(rows)
            losses["loss"] += losses["embedding_l2"]
        embeddings.apply_gradients(
            step.row_optimizer,
            lookup,
            rows,
            row_gradients,
            factor * step.config.optimizer.embedding.learning_rate,
            clip_norm=step.config.optimizer.clip_embedding_norm,
        )
        step.apply(gradients, state, factor)
        return losses


def worker_stat() -> tf.Tensor:
    """The line in which Linux describes the process that runs this: its name, CPU time and memory."""
    lines = tf.data.TextLineDataset(_STAT).take(1)
    return lines.reduce(tf.constant(""), lambda _, line: line)
