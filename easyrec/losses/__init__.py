"""Losses: functions of labels and logits that give one value per example.

They know nothing of the configuration; a loss takes its options as keyword arguments. Sample weights and the mean
over the batch are applied by whoever calls them.
"""

from easyrec.losses.pointwise import (
    binary_crossentropy,
    categorical_crossentropy,
    focal,
    huber,
    mean_absolute_error,
    mean_squared_error,
)
from easyrec.losses.sampled_softmax import in_batch_softmax

__all__ = [
    "binary_crossentropy",
    "categorical_crossentropy",
    "focal",
    "huber",
    "in_batch_softmax",
    "mean_absolute_error",
    "mean_squared_error",
]
