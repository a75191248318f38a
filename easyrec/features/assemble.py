"""The results of single features, put together as `easyrec.features.outputs` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from easyrec.features.batch import EncodedBatch, RaggedColumn
from easyrec.features.outputs import FeatureSchema
from easyrec.features.tensors import Tensor, WeightedIds


def assemble(schema: FeatureSchema, encoded: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What each transform returned as one flat mapping of tensors."""
    result: dict[str, Tensor] = {}
    for output in schema.multi_ids:
        value = encoded[output.feature]
        ids = value.ids if isinstance(value, WeightedIds) else value
        result[f"{output.feature}/values"] = ids.flat_values
        result[f"{output.feature}/row_lengths"] = tf.cast(ids.row_lengths(), tf.int32)
        if isinstance(value, WeightedIds):
            result[f"{output.feature}/weights"] = value.weights.flat_values
    singles = [encoded[output.feature] for output in schema.single_ids]
    numbers = [encoded[output.feature] for output in schema.numbers]
    some = singles or numbers or [result[f"{output.feature}/row_lengths"] for output in schema.multi_ids]
    rows = tf.shape(some[0])[0]
    result["ids"] = tf.stack(singles, axis=1) if singles else tf.zeros([rows, 0], tf.int32)
    result["numbers"] = tf.concat(numbers, axis=1) if numbers else tf.zeros([rows, 0], tf.float32)
    return result


def to_batch(
    schema: FeatureSchema,
    outputs: Mapping[str, list[Any]],
    rows: int,
    labels: Mapping[str, NDArray[np.float32]],
) -> EncodedBatch:
    """What the traced function returned as a batch of NumPy arrays.

    Columns are laid side by side here, because NumPy does that several times faster than tf.stack.
    """
    ids = np.empty((rows, len(schema.single_ids)), np.int32)
    for position, output in enumerate(schema.single_ids):
        ids[:, position] = outputs[output.feature][0].numpy()
    numbers = np.empty((rows, sum(output.width for output in schema.numbers)), np.float32)
    position = 0
    for number in schema.numbers:
        numbers[:, position : position + number.width] = outputs[number.feature][0].numpy()
        position += number.width
    ragged = {
        output.feature: RaggedColumn(*(part.numpy() for part in outputs[output.feature]))
        for output in schema.multi_ids
    }
    return EncodedBatch(rows, {"ids": ids, "numbers": numbers, **labels}, ragged)
