"""(a) The best TensorFlow loop that was written by hand for this one model, over batches decoded beforehand.

DeepFM: one fused 16-wide table and a linear column beside it; ids made unique with `tf.unique`; the dense forward and
backward pass and Adam in one XLA function; gradients added up with `unsorted_segment_sum`; raw sparse Adagrad.
"""

from __future__ import annotations

import itertools
import resource
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf
from criteo_like import COUNTS, IDS, VOCABULARIES, auc
from settings import ADAGRAD, BATCH, DIM, HIDDEN, LEARNING_RATE, Outcome, arguments, finish

FIELDS = len(IDS)
OFFSETS = np.concatenate([[0], np.cumsum(VOCABULARIES)[:-1]]).astype(np.int32)


def decode(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All ids [N, F] as rows of the fused table, numbers [N, K], labels [N]."""
    table = pq.read_table(path)
    ids = np.stack([table[name].to_numpy() for name in IDS], 1).astype(np.int32) + OFFSETS
    numbers = np.log1p(np.stack([table[name].to_numpy() for name in COUNTS], 1), dtype=np.float32)
    return ids, numbers, table["label"].to_numpy().astype(np.float32)


class DeepFM(tf.Module):
    """Weights, step and prediction."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        tf.random.set_seed(seed)
        rows = int(sum(VOCABULARIES))
        self.table = tf.Variable(tf.random.truncated_normal([rows, DIM], stddev=0.05))
        self.table_sums = tf.Variable(tf.fill([rows, DIM], ADAGRAD["initial_accumulator"]))
        self.linear = tf.Variable(tf.zeros([rows, 1]))
        self.linear_sums = tf.Variable(tf.fill([rows, 1], ADAGRAD["initial_accumulator"]))
        sizes = [FIELDS * DIM + len(COUNTS), *HIDDEN, 1]
        glorot = tf.keras.initializers.GlorotUniform(seed=seed)
        self.dense = [
            tf.Variable(value)
            for fan_in, fan_out in itertools.pairwise(sizes)
            for value in (glorot([fan_in, fan_out]), tf.zeros([fan_out]))
        ]
        self.dense += [tf.Variable(tf.zeros([len(COUNTS), 1]))]
        self.first = [tf.Variable(tf.zeros_like(weight)) for weight in self.dense]
        self.second = [tf.Variable(tf.zeros_like(weight)) for weight in self.dense]
        self.time = tf.Variable(0.0)

    def logits(self, embeddings: tf.Tensor, linear: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
        """[B] from [B, F, D], [B, F, 1] and [B, K]."""
        hidden = tf.concat([tf.reshape(embeddings, [-1, FIELDS * DIM]), numbers], 1)
        for layer in range(len(HIDDEN)):
            hidden = tf.nn.relu(tf.matmul(hidden, self.dense[2 * layer]) + self.dense[2 * layer + 1])
        deep = tf.matmul(hidden, self.dense[-3]) + self.dense[-2]
        total = tf.reduce_sum(embeddings, 1)
        pairs = 0.5 * tf.reduce_sum(total * total - tf.reduce_sum(embeddings * embeddings, 1), 1)
        return deep[:, 0] + pairs + tf.reduce_sum(linear, [1, 2]) + tf.matmul(numbers, self.dense[-1])[:, 0]

    @tf.function(jit_compile=True)
    def dense_step(
        self, embeddings: tf.Tensor, linear: tf.Tensor, numbers: tf.Tensor, labels: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Forward, backward and Adam; the loss and the gradients of both activations."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([embeddings, linear, *self.dense])
            logits = self.logits(embeddings, linear, numbers)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
        d_embeddings, d_linear, *gradients = tape.gradient(loss, [embeddings, linear, *self.dense])
        self.time.assign_add(1.0)
        rate = LEARNING_RATE * tf.sqrt(1 - 0.999**self.time) / (1 - 0.9**self.time)
        for weight, first, second, gradient in zip(
            self.dense, self.first, self.second, gradients, strict=True
        ):
            first.assign_add(0.1 * (gradient - first))
            second.assign_add(0.001 * (gradient * gradient - second))
            weight.assign_sub(rate * first / (tf.sqrt(second) + 1e-7))
        return loss, d_embeddings, d_linear

    @tf.function(
        input_signature=[
            tf.TensorSpec([BATCH, FIELDS], tf.int32),
            tf.TensorSpec([BATCH, len(COUNTS)], tf.float32),
            tf.TensorSpec([BATCH], tf.float32),
        ]
    )
    def step(self, ids: tf.Tensor, numbers: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """One batch; the loss."""
        unique, inverse = tf.unique(tf.reshape(ids, [-1]))
        rows = tf.gather(self.table, unique)
        linear = tf.gather(self.linear, unique)
        loss, d_rows, d_linear = self.dense_step(
            tf.reshape(tf.gather(rows, inverse), [BATCH, FIELDS, DIM]),
            tf.reshape(tf.gather(linear, inverse), [BATCH, FIELDS, 1]),
            numbers,
            labels,
        )
        for variable, sums, gradient, width in (
            (self.table, self.table_sums, d_rows, DIM),
            (self.linear, self.linear_sums, d_linear, 1),
        ):
            summed = tf.math.unsorted_segment_sum(tf.reshape(gradient, [-1, width]), inverse, tf.size(unique))
            tf.raw_ops.ResourceSparseApplyAdagradV2(
                var=variable.handle,
                accum=sums.handle,
                lr=ADAGRAD["learning_rate"],
                epsilon=ADAGRAD["epsilon"],
                grad=summed,
                indices=unique,
            )
        return loss

    @tf.function
    def predict(self, ids: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
        """Probabilities [B]."""
        return tf.sigmoid(self.logits(tf.gather(self.table, ids), tf.gather(self.linear, ids), numbers))


def main() -> None:
    """Trains one epoch and prints the outcome."""
    options = arguments(__doc__)
    ids, numbers, labels = decode(options.data / "train.parquet")
    order = np.random.default_rng(options.seed).permutation(len(labels))
    ids, numbers, labels = ids[order], numbers[order], labels[order]
    model = DeepFM(options.seed)
    begin, cpu, steps = 0.0, 0.0, len(labels) // BATCH
    for step in range(steps):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        model.step(tf.constant(ids[rows]), tf.constant(numbers[rows]), tf.constant(labels[rows])).numpy()
        if step == 0:
            begin, cpu = time.perf_counter(), time.process_time()
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ids, numbers, labels = decode(options.data / "test.parquet")
    scores = [
        model.predict(ids[start : start + BATCH], numbers[start : start + BATCH]).numpy()
        for start in range(0, len(labels), BATCH)
    ]
    finish(Outcome((steps - 1) * BATCH, seconds, cpu_seconds, auc(labels, np.concatenate(scores)), peak))


if __name__ == "__main__":
    main()
