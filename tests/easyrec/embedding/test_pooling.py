"""Pooling and padding against loops over rows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from easyrec.embedding.pooling import pad, pool, row_ids


def pooled_by_hand(values, lengths, pooling, weights):
    weights = np.ones(len(values), np.float32) if weights is None else weights
    result, start = [], 0
    for length in lengths:
        v, w = values[start : start + length], weights[start : start + length, None]
        start += length
        if length == 0:
            result.append(np.zeros(values.shape[1], np.float32))
        elif pooling == "max":
            result.append((v * w).max(0))
        else:
            divisor = {"sum": 1.0, "mean": w.sum(), "sqrtn": np.sqrt((w**2).sum())}[pooling]
            result.append((v * w).sum(0) / divisor if divisor else np.zeros(values.shape[1], np.float32))
    return np.stack(result)


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    weighted=st.booleans(),
    seed=st.integers(0, 9),
)
@pytest.mark.parametrize("pooling", ["sum", "mean", "sqrtn", "max"])
def test_pooling_equals_a_loop_over_rows(pooling, lengths, weighted, seed):
    random = np.random.default_rng(seed)
    values = random.standard_normal((sum(lengths), 3)).astype(np.float32)
    weights = random.uniform(0.1, 2, sum(lengths)).astype(np.float32) if weighted else None
    lengths = tf.constant(lengths, tf.int32)
    ours = pool(tf.constant(values), lengths, row_ids(lengths), pooling, weights)
    np.testing.assert_allclose(
        ours, pooled_by_hand(values, lengths.numpy(), pooling, weights), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("pooling", ["mean", "sqrtn"])
def test_weights_of_zero_pool_to_zeros(pooling):
    lengths = tf.constant([2], tf.int32)
    result = pool(tf.ones([2, 3]), lengths, row_ids(lengths), pooling, tf.zeros([2]))
    np.testing.assert_array_equal(result, np.zeros((1, 3)))


@pytest.mark.parametrize("pooling", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("lengths", [[0, 2, 1, 0], [0, 0]])
def test_gradients_of_pooling_are_finite_and_equal_differences(pooling, lengths):
    random = np.random.default_rng(0)
    values = tf.constant(random.standard_normal((sum(lengths), 2)), tf.float64)
    lengths = tf.constant(lengths, tf.int32)
    factors = tf.constant(random.standard_normal((lengths.shape[0], 2)), tf.float64)

    def loss(values):
        return tf.reduce_sum(factors * pool(values, lengths, row_ids(lengths), pooling))

    with tf.GradientTape() as tape:
        tape.watch(values)
        total = loss(values)
    gradient = tape.gradient(total, values).numpy()
    assert np.isfinite(gradient).all()
    for index in np.ndindex(*values.shape):
        step = np.zeros(values.shape)
        step[index] = 1e-6
        assert gradient[index] == pytest.approx(
            float(loss(values + step) - loss(values - step)) / 2e-6, abs=1e-6
        )


def test_padding_puts_values_first_and_zeros_behind():
    values = tf.constant([[1.0], [2], [3], [4]])
    padded, mask = pad(values, tf.constant([2, 0, 2]), tf.constant([0, 0, 2, 2]), 3)
    np.testing.assert_array_equal(padded[:, :, 0], [[1, 2, 0], [0, 0, 0], [3, 4, 0]])
    np.testing.assert_array_equal(mask, [[1, 1, 0], [0, 0, 0], [1, 1, 0]])


def test_padding_of_nothing_at_all():
    padded, mask = pad(tf.zeros([0, 2]), tf.constant([0, 0]), tf.zeros([0], tf.int32), 3)
    assert padded.shape == (2, 3, 2)
    assert not padded.numpy().any()
    assert not mask.numpy().any()
