"""What a retrieval task needs beside the model: the vectors of a batch, and how often each item is seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from easyrec.errors import ConfigError, Problem, TrainingError


class Towers(NamedTuple):
    """What a retrieval task has in place of logits: vectors [B, D] of users and of items."""

    user: tf.Tensor
    item: tf.Tensor


class ItemSampling:
    """How often each item is in a training row: what the loss of a retrieval task corrects for.

    Args:
        column: Column of the item's id in `ids`, or None when the item key is no feature.
        counts: Training rows by item id, [rows of its table], or None when they are not known.
    """

    def __init__(self, column: int | None, counts: npt.NDArray[Any] | None) -> None:
        self._column = column
        self._log_probabilities: tf.Variable | None = None
        if counts is not None:
            # An id that training has not seen counts once: its logarithm must be finite.
            shares = np.maximum(np.asarray(counts, np.float64), 1.0)
            logarithms = np.log(shares / shares.sum()).astype(np.float32)
            # A variable and not a constant: a large catalogue would be copied into every graph.
            self._log_probabilities = tf.Variable(logarithms, trainable=False, name="item_log_probabilities")

    def of(
        self, batch: Mapping[str, tf.Tensor], task: str, *, ids: bool, probabilities: bool
    ) -> dict[str, tf.Tensor]:
        """What is known of the items of a batch, as arguments of the loss.

        Args:
            batch: An encoded batch.
            task: Name of the task, for errors.
            ids: Whether the loss needs `item_ids` [B].
            probabilities: Whether the loss needs `item_log_probabilities` [B].

        Raises:
            ConfigError: The item key is not a feature.
            TrainingError: The counts are not known.
        """
        if not ids and not probabilities:
            return {}
        if self._column is None:
            raise ConfigError(
                [
                    Problem(
                        f"tasks.{task}",
                        "the loss tells items apart by their key, which is not a feature; add the column of "
                        "`data.keys.item` to `features` as `{type: id}`, or set `loss: {type: in_batch_softmax, "
                        "logq_correction: false, mask_accidental_hits: false}`",
                    )
                ]
            )
        known = {"item_ids": batch["ids"][:, self._column]}
        if probabilities:
            if self._log_probabilities is None:
                raise TrainingError(
                    f"tasks.{task}: logq_correction needs the counts of the items in the training data; pass "
                    "`item_counts` to `build_network`"
                )
            known["item_log_probabilities"] = tf.gather(self._log_probabilities, known["item_ids"])
        return known
