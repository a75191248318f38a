"""Vectors of length one, the zero vector included."""

import numpy as np
import tensorflow as tf

from easyrec.layers import UnitNorm


def test_length_is_one_and_the_zero_vector_stays() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    np.testing.assert_allclose(UnitNorm()(vectors), [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)


def test_gradient_is_finite_at_the_zero_vector() -> None:
    vectors = tf.constant([[3.0, 4.0], [0.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        total = tf.reduce_sum(UnitNorm()(vectors))
    assert np.isfinite(tape.gradient(total, vectors)).all()
