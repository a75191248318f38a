"""Softmax over sampled items, for retrieval."""

from __future__ import annotations

import tensorflow as tf

# Far below any score, yet finite: its exponential is 0 and its gradient is not NaN.
_EXCLUDED = -1e9


def in_batch_softmax(
    scores: tf.Tensor,
    item_ids: tf.Tensor | None = None,
    item_log_probabilities: tf.Tensor | None = None,
    *,
    logq_correction: bool = True,
    mask_accidental_hits: bool = True,
) -> tf.Tensor:
    """Log loss of picking row i's own item among the items of the batch (Yi et al. 2019, equations 3 to 5).

        s'_ij = s_ij - log q_j,    loss_i = -log( exp(s'_ii) / sum_j exp(s'_ij) )

    Popular items are in a batch more often than others, so they are negatives more often; subtracting the log of the
    probability q_j that item j is in a row undoes that. The same item in another row (an accidental hit) is no
    negative: it leaves the sum.

    Args:
        scores: [B, B], user of row i against item of row j, temperature applied.
        item_ids: [B] integers; needed by `mask_accidental_hits`.
        item_log_probabilities: [B], log q_j; needed by `logq_correction`.
        logq_correction: Whether to correct for q_j.
        mask_accidental_hits: Whether to take accidental hits out.

    Returns:
        [B]; 0 for a row without any negative.

    Raises:
        ValueError: An option is on and what it needs is None.

    References:
        Yi et al. 2019, Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations.
    """
    rows = tf.shape(scores)[0]
    if logq_correction:
        if item_log_probabilities is None:
            raise ValueError("logq_correction needs item_log_probabilities, got None")
        scores = scores - item_log_probabilities[None, :]
    if mask_accidental_hits:
        if item_ids is None:
            raise ValueError("mask_accidental_hits needs item_ids, got None")
        same_item = item_ids[:, None] == item_ids[None, :]
        accidental = same_item & ~tf.eye(rows, dtype=tf.bool)
        scores = tf.where(accidental, _EXCLUDED, scores)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.range(rows), logits=scores)
