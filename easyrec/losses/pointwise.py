"""Losses of one example at a time.

All take `labels` [B] float and `logits`, and return [B]. Values and gradients stay finite at logits up to 1e30 in size;
a squared error, of course, up to 1e19 only.
"""

from __future__ import annotations

import tensorflow as tf


def binary_crossentropy(labels: tf.Tensor, logits: tf.Tensor, label_smoothing: float = 0.0) -> tf.Tensor:
    """Log loss of a binary label: -y log p - (1 - y) log(1 - p), p = sigmoid(logit).

    Args:
        labels: [B], 0 or 1, or a probability.
        logits: [B].
        label_smoothing: Share s in [0, 1) by which labels move towards one half: y (1 - s) + s / 2.

    Returns:
        [B].
    """
    smoothed = labels * (1.0 - label_smoothing) + 0.5 * label_smoothing
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=smoothed, logits=logits)


def focal(labels: tf.Tensor, logits: tf.Tensor, gamma: float = 2.0, alpha: float | None = None) -> tf.Tensor:
    """Log loss in which examples that are right already weigh less (Lin et al. 2017, equation 5).

        y a (1 - p)^gamma (-log p) + (1 - y) (1 - a) p^gamma (-log(1 - p)),   p = sigmoid(logit)

    Args:
        labels: [B], 0 or 1, or a probability.
        logits: [B].
        gamma: How strongly easy examples are discounted; 0 gives the log loss.
        alpha: Weight a of positives against 1 - a of negatives; both 1 when None.

    Returns:
        [B].
    """
    positive, negative = (1.0, 1.0) if alpha is None else (alpha, 1.0 - alpha)
    # log(1 - p) = log_sigmoid(-logit): powers taken through the logarithm have finite gradients at p = 0 and 1.
    log_p, log_not_p = tf.math.log_sigmoid(logits), tf.math.log_sigmoid(-logits)
    # A power of e^-80 is zero beside any loss; without the limit its gradient would be 0 times infinity.
    hit = -positive * tf.exp(gamma * tf.maximum(log_not_p, -80.0)) * log_p
    miss = -negative * tf.exp(gamma * tf.maximum(log_p, -80.0)) * log_not_p
    return labels * hit + (1.0 - labels) * miss


def mean_squared_error(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Squared error (logit - y)^2.

    Args:
        labels: [B].
        logits: [B], the predicted values.

    Returns:
        [B]; the mean is taken by whoever averages over the batch.
    """
    return tf.square(logits - labels)


def mean_absolute_error(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Absolute error |logit - y|.

    Args:
        labels: [B].
        logits: [B], the predicted values.

    Returns:
        [B].
    """
    return tf.abs(logits - labels)


def huber(labels: tf.Tensor, logits: tf.Tensor, delta: float = 1.0) -> tf.Tensor:
    """Error e = logit - y, squared near zero and linear beyond `delta` (Huber 1964).

        0.5 e^2 where |e| <= delta,  delta (|e| - 0.5 delta) elsewhere

    Args:
        labels: [B].
        logits: [B], the predicted values.
        delta: Where the two forms meet.

    Returns:
        [B].
    """
    error = tf.abs(logits - labels)
    near = tf.minimum(
        error, delta
    )  # keeps the square of a huge error, which would overflow, out of the gradient
    return 0.5 * tf.square(near) + delta * (error - near)


def categorical_crossentropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Log loss of one class among C: -log softmax(logits)_y.

    Args:
        labels: [B], the class of each example, from 0 to C - 1, as integers in any numeric type.
        logits: [B, C].

    Returns:
        [B]; NaN where a label is no class, on every device.
    """
    classes = tf.cast(labels, tf.int32)
    count = logits.shape[-1]
    # TensorFlow raises on a CPU, and returns NaN on a GPU and under XLA; one behaviour is easier to find.
    known = (classes >= 0) & (classes < count)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.where(known, classes, 0), logits=logits)
    return tf.where(known, loss, float("nan"))
