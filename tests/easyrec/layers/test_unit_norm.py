"""Vectors of length one, the zero vector included."""

import numpy as np
import pytest
import tensorflow as tf

from easyrec.layers import UnitNorm


def test_length_is_one_and_the_zero_vector_stays() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    np.testing.assert_allclose(UnitNorm()(vectors), [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_zero_vector_passes_no_gradient_back_and_others_the_right_one(compiled: bool) -> None:
    @tf.function(jit_compile=compiled, autograph=False)
    def gradient(vectors: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            total = tf.reduce_sum(UnitNorm()(vectors) * [[1.0, 2.0]])
        return tape.gradient(total, vectors)

    # d(w.x/|x|)/dx = w/|x| - x (w.x)/|x|^3 with w = (1, 2), x = (3, 4)
    expected = [1 / 5 - 3 * 11 / 125, 2 / 5 - 4 * 11 / 125]
    np.testing.assert_allclose(gradient(tf.constant([[3.0, 4.0], [0.0, 0.0]])), [expected, [0, 0]], atol=1e-6)
