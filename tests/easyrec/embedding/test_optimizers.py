"""One step of each row optimizer equals the Keras optimizer on the rows used, and leaves the others alone."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from easyrec.config.training import EmbeddingOptimizerConfig
from easyrec.embedding.optimizers import clip_rows, row_optimizer
from easyrec.embedding.table import ShardedTable

KERAS = {
    "adagrad": lambda c: keras.optimizers.Adagrad(0.1, c.initial_accumulator, epsilon=c.epsilon),
    "lazy_adam": lambda c: keras.optimizers.Adam(0.1, c.beta_1, c.beta_2, epsilon=c.epsilon),
    "sgd": lambda c: keras.optimizers.SGD(0.1),
}
ROWS, DIM = 9, 3


@pytest.mark.parametrize("kind", sorted(KERAS))
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("accumulator", [0.0, 1e-6, 0.1])
def test_steps_equal_keras_on_the_rows_used(kind, shards, accumulator):
    config = EmbeddingOptimizerConfig(type=kind, initial_accumulator=accumulator)
    random = np.random.default_rng(1)
    first = random.standard_normal((ROWS, DIM)).astype(np.float32)
    table = ShardedTable("t", ROWS, DIM, shards=shards)
    table.write(0, first)
    ours = row_optimizer(config)
    ours.build({"t": table})
    dense = keras.Variable(first)
    theirs = KERAS[kind](config)
    theirs.build([dense])
    used = np.array([5, 0, 8])
    for scale in (1.0, 1e-3, 1e-5):
        gradient = (scale * random.standard_normal((3, DIM))).astype(np.float32)
        whole = np.zeros((ROWS, DIM), np.float32)
        whole[used] = gradient
        theirs.apply([tf.constant(whole)], [dense])
        ids = tf.constant(used, tf.int32)
        ours.apply("t", table, ids, table.gather(ids), tf.constant(gradient), tf.constant(0.1))
        ours.finish_step()
        np.testing.assert_allclose(table.read()[used], dense.numpy()[used], rtol=2e-5, atol=1e-7)
    unused = np.setdiff1d(np.arange(ROWS), used)
    np.testing.assert_array_equal(table.read()[unused], first[unused])
    for slot in ours.slots["t"].values():
        untouched = slot.read()[unused]
        np.testing.assert_array_equal(
            untouched, np.full_like(untouched, accumulator if kind == "adagrad" else 0)
        )


def test_lazy_adam_leaves_the_moments_of_unused_rows_where_adam_would_decay_them():
    optimizer = row_optimizer(EmbeddingOptimizerConfig(type="lazy_adam"))
    table = ShardedTable("t", 2, 1)
    optimizer.build({"t": table})
    for ids in ([0], [1]):
        where = tf.constant(ids)
        optimizer.apply("t", table, where, table.gather(where), tf.ones([1, 1]), tf.constant(0.1))
        optimizer.finish_step()
    m = optimizer.slots["t"]["m"].read()[:, 0]
    assert m[0] == m[1] == pytest.approx(0.1)


def test_a_step_never_makes_a_tensor_of_the_size_of_a_table():
    table = ShardedTable("t", 1_000, 2)
    optimizer = row_optimizer(EmbeddingOptimizerConfig())
    optimizer.build({"t": table})

    @tf.function(input_signature=[tf.TensorSpec([3], tf.int32), tf.TensorSpec([3, 2])])
    def step(ids, gradient):
        optimizer.apply("t", table, ids, table.gather(ids), gradient, tf.constant(0.1))

    graph = step.get_concrete_function().graph
    sizes = [
        output.shape.num_elements()
        for operation in graph.get_operations()
        for output in operation.outputs
        if output.dtype != tf.resource and output.shape.is_fully_defined()
    ]
    assert max(sizes) <= 6


def test_clipping_scales_only_the_rows_that_are_too_long():
    gradient = tf.constant([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(clip_rows(gradient, 1.0), [[0.6, 0.8], [0.3, 0.4], [0, 0]], rtol=1e-6)


@pytest.mark.parametrize("shards", [1, 2])
def test_row_wise_adagrad_has_one_sum_of_squares_a_row(shards):
    config = EmbeddingOptimizerConfig(type="row_wise_adagrad", initial_accumulator=0.5, epsilon=1e-3)
    optimizer = row_optimizer(config)
    table = ShardedTable("t", 5, 3, shards=shards)
    optimizer.build({"t": table})
    expected, sums = np.zeros((5, 3), np.float32), np.full((5, 1), 0.5, np.float32)
    used, random = np.array([4, 1]), np.random.default_rng(0)
    for _ in range(3):
        gradient = random.standard_normal((2, 3)).astype(np.float32)
        sums[used] += (gradient**2).mean(1, keepdims=True)
        expected[used] -= 0.1 * gradient / np.sqrt(sums[used] + 1e-3)
        ids = tf.constant(used)
        optimizer.apply("t", table, ids, table.gather(ids), tf.constant(gradient), tf.constant(0.1))
    np.testing.assert_allclose(table.read(), expected, rtol=1e-5)
    np.testing.assert_allclose(optimizer.slots["t"]["accumulator"].read(), sums, rtol=1e-6)
    assert optimizer.slot_values(16) == 1
