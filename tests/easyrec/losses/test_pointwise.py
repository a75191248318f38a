import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, log_softmax

from easyrec.losses import (
    binary_crossentropy,
    categorical_crossentropy,
    focal,
    huber,
    mean_absolute_error,
    mean_squared_error,
)

RNG = np.random.default_rng(0)
LABELS = np.array([0, 1, 1, 0, 1], np.float32)
LOGITS = RNG.normal(scale=3, size=5).astype(np.float32)
EXTREMES = np.array([-1e30, -1e4, -100, 0, 100, 1e4, 1e30], np.float32)


def _log_loss(labels, logits):
    p = expit(logits.astype(np.float64))
    return -labels * np.log(p) - (1 - labels) * np.log(1 - p)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_binary_crossentropy(smoothing):
    smoothed = LABELS * (1 - smoothing) + smoothing / 2
    expected = _log_loss(smoothed, LOGITS)
    np.testing.assert_allclose(
        binary_crossentropy(LABELS, LOGITS, label_smoothing=smoothing), expected, rtol=1e-5
    )


@pytest.mark.parametrize(("gamma", "alpha"), [(2.0, None), (1.5, 0.25), (0.0, 0.25)])
def test_focal(gamma, alpha):
    p = expit(LOGITS.astype(np.float64))
    of_label = np.where(LABELS == 1, p, 1 - p)
    weight = 1 if alpha is None else np.where(LABELS == 1, alpha, 1 - alpha)
    expected = -weight * (1 - of_label) ** gamma * np.log(of_label)
    np.testing.assert_allclose(focal(LABELS, LOGITS, gamma=gamma, alpha=alpha), expected, rtol=1e-4)


def test_focal_without_discount_is_the_log_loss():
    np.testing.assert_allclose(
        focal(LABELS, LOGITS, gamma=0.0), binary_crossentropy(LABELS, LOGITS), rtol=1e-5
    )


def test_errors_of_values():
    error = LOGITS - LABELS
    np.testing.assert_allclose(mean_squared_error(LABELS, LOGITS), error**2, rtol=1e-6)
    np.testing.assert_allclose(mean_absolute_error(LABELS, LOGITS), abs(error), rtol=1e-6)
    for delta in (0.5, 2.0):
        expected = np.where(abs(error) <= delta, error**2 / 2, delta * (abs(error) - delta / 2))
        np.testing.assert_allclose(huber(LABELS, LOGITS, delta=delta), expected, rtol=1e-5)


def test_categorical_crossentropy():
    logits = RNG.normal(size=(5, 3)).astype(np.float32)
    classes = np.array([0, 2, 1, 1, 0])
    expected = -log_softmax(logits, axis=1)[np.arange(5), classes]
    for labels in (classes.astype(np.float32), classes.astype(np.int64)):
        np.testing.assert_allclose(categorical_crossentropy(labels, logits), expected, rtol=1e-5)


def test_a_label_that_is_no_class_gives_nan():
    losses = categorical_crossentropy(np.array([0.0, 3.0, -1.0], np.float32), np.zeros([3, 3], np.float32))
    np.testing.assert_array_equal(np.isnan(losses), [False, True, True])


@pytest.mark.parametrize("loss", [binary_crossentropy, focal, mean_absolute_error, huber])
@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("compiled", [False, True])
def test_values_and_gradients_are_finite_at_extreme_logits(loss, label, compiled):
    @tf.function(jit_compile=compiled)
    def both(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            values = loss(tf.fill(logits.shape, label), logits)
        return values, tape.gradient(values, logits)

    values, gradients = both(tf.constant(EXTREMES))
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(gradients))
    assert np.any(gradients != 0)


def test_categorical_crossentropy_is_finite_at_extreme_logits():
    logits = tf.constant([[1e30, -1e30, 0.0], [-1e30, 1e30, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        values = categorical_crossentropy(tf.constant([0.0, 2.0]), logits)
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(tape.gradient(values, logits)))
