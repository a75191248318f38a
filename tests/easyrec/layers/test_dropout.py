"""Dropout by hashed positions."""

import numpy as np
import pytest
import tensorflow as tf

from easyrec.layers import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_drops_the_share_and_keeps_the_mean(rate: float) -> None:
    dropped = np.asarray(Dropout(rate, seed=1)(tf.ones([400, 250]), training=True))
    deviation = np.sqrt(rate * (1 - rate) / dropped.size)
    assert np.mean(dropped == 0) == pytest.approx(rate, abs=4 * deviation)
    np.testing.assert_allclose(dropped[dropped != 0], 1 / (1 - rate), rtol=1e-6)


def test_rows_columns_and_calls_are_independent() -> None:
    layer = Dropout(0.5, seed=1)
    first, second = (np.asarray(layer(tf.ones([1000, 200]), training=True)) != 0 for _ in range(2))
    # Correlations of independent masks are 0 within 1 / sqrt(n); neighbouring cells, rows and calls are compared.
    for one, other in ((first, second), (first[:, 1:], first[:, :-1]), (first[1:], first[:-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(one.size)
    # Shares of kept values by row and by column scatter as the binomial does.
    for axis, count in ((0, 1000), (1, 200)):
        assert np.std(first.mean(axis)) == pytest.approx(np.sqrt(0.25 / count), rel=0.2)


def test_the_same_seed_gives_the_same_masks_compiled_or_not() -> None:
    values = tf.ones([64, 16])
    eager, compiled = Dropout(0.3, seed=7), Dropout(0.3, seed=7)
    function = tf.function(lambda x: compiled(x, training=True), jit_compile=True)
    for _ in range(3):
        np.testing.assert_array_equal(eager(values, training=True), function(values))


def test_nothing_happens_outside_training() -> None:
    np.testing.assert_array_equal(Dropout(0.5)(tf.ones([4, 4])), np.ones([4, 4]))
