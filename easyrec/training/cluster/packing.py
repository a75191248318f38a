"""Dense weights between a worker and the servers: those of one server travel as one tensor, not one by one.

A model has dozens of small variables. Each of its own would cost a message a step; a message costs as much as some
tens of kilobytes do.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf


class Packing:
    """Packs values of variables into one tensor for each server and type.

    Args:
        variables: The variables; tensors are given and taken in their order.
    """

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        self._variables = [variable.value for variable in variables]
        parcels: dict[tuple[str, tf.DType], list[int]] = {}
        for index, variable in enumerate(self._variables):
            parcels.setdefault((variable.device, variable.dtype), []).append(index)
        self._parcels = [(device, indices) for (device, _), indices in parcels.items()]

    def read(self) -> list[tf.Tensor]:
        """The values as they are now, packed where they lie."""
        packed = []
        for device, indices in self._parcels:
            with tf.device(device):
                packed.append(self._packed([self._variables[index].read_value() for index in indices]))
        return packed

    def unpack(self, packed: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The values of `read`, one for each variable."""
        values: dict[int, tf.Tensor] = {}
        for (_, indices), tensor in zip(self._parcels, packed, strict=True):
            values.update(zip(indices, self._unpacked(tensor, indices), strict=True))
        return [values[index] for index in range(len(self._variables))]

    def _packed(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.concat([tf.reshape(value, [-1]) for value in values], 0)

    def _unpacked(self, packed: tf.Tensor, indices: Sequence[int]) -> list[tf.Tensor]:
        shapes = [self._variables[index].shape for index in indices]
        parts = tf.split(packed, [shape.num_elements() for shape in shapes])
        return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]
