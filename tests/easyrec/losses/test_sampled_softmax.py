import numpy as np
import pytest
import tensorflow as tf

from easyrec.losses import in_batch_softmax

RNG = np.random.default_rng(0)
SCORES = RNG.normal(scale=2, size=(5, 5)).astype(np.float32)
ITEMS = np.array([3, 1, 3, 2, 1])
LOG_Q = np.log(np.array([0.5, 0.1, 0.5, 0.2, 0.1], np.float32))


def _expected(scores, items, log_q):
    """Row by row: the own item against the items of rows that hold another item."""
    losses = []
    for i in range(len(scores)):
        corrected = scores[i].astype(np.float64) - log_q
        others = [corrected[j] for j in range(len(scores)) if j == i or items is None or items[j] != items[i]]
        losses.append(np.log(np.sum(np.exp(others))) - corrected[i])
    return losses


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_loss_equals_the_sum_over_other_items(corrected, masked):
    losses = in_batch_softmax(SCORES, ITEMS, LOG_Q, logq_correction=corrected, mask_accidental_hits=masked)
    expected = _expected(SCORES, ITEMS if masked else None, LOG_Q if corrected else np.zeros(5))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_a_row_without_negatives_has_no_loss_and_no_gradient():
    for scores, items in ((SCORES[:1, :1], ITEMS[:1]), (SCORES, np.full(5, 7))):
        scores = tf.constant(scores)
        with tf.GradientTape() as tape:
            tape.watch(scores)
            losses = in_batch_softmax(scores, items, logq_correction=False)
        np.testing.assert_allclose(losses, 0, atol=1e-6)
        np.testing.assert_allclose(tape.gradient(losses, scores), 0, atol=1e-6)


def test_the_correction_takes_popularity_out():
    # Both negatives have the same score; the rarer one must weigh more once popularity is corrected for.
    scores = tf.constant([[0.0, 0.0, 0.0]] * 3)
    log_q = tf.math.log([0.3, 0.6, 0.1])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = in_batch_softmax(scores, tf.constant([0, 1, 2]), log_q)[0]
    gradient = tape.gradient(loss, scores)[0]
    np.testing.assert_allclose(gradient[2] / gradient[1], 6.0, rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_values_and_gradients_are_finite_at_extreme_scores(compiled):
    @tf.function(jit_compile=compiled)
    def both(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            losses = in_batch_softmax(scores, tf.constant(ITEMS), tf.constant(LOG_Q))
        return losses, tape.gradient(losses, scores)

    for scale in (1e2, 1e5, 1e8):
        losses, gradients = both(tf.constant(SCORES * scale))
        assert np.all(np.isfinite(losses))
        assert np.all(np.isfinite(gradients))


def test_what_an_option_needs_must_be_given():
    with pytest.raises(ValueError, match="logq_correction needs item_log_probabilities, got None"):
        in_batch_softmax(SCORES, ITEMS)
    with pytest.raises(ValueError, match="mask_accidental_hits needs item_ids, got None"):
        in_batch_softmax(SCORES, None, LOG_Q)
