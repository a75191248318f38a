"""Tensors between a worker and the servers: the small ones of one server travel as one tensor, not one by one.

A model has dozens of small variables, and a step a few numbers. Each of its own would cost a message a step; a message
costs as much as some tens of kilobytes do, on both sides, for the threads that it wakes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import tensorflow as tf

Addressed = Mapping[Hashable, tuple[str, tf.Tensor]]
"""By any name, a device and a tensor that comes from there or goes there."""

# Rows of more values than that are worth a message of their own: to copy them would cost more.
_NARROW = 4
# Bytes of a size, and of the types that can carry one.
_WORD = 4
_HERE = "CPU:0"


def fetched(tensors: Addressed) -> dict[Hashable, tf.Tensor]:
    """Tensors of several devices on this one, by their names."""
    # Said to be here, or they would be kept on the server from one batch to the next and travel thrice.
    return _carried(tensors, outward=False)


def pushed(tensors: Addressed) -> dict[Hashable, tf.Tensor]:
    """Tensors of this device, each on the one that it is for, by their names."""
    return _carried(tensors, outward=True)


def _carried(tensors: Addressed, outward: bool) -> dict[Hashable, tf.Tensor]:
    arrived: dict[Hashable, tf.Tensor] = {}
    for device in dict.fromkeys(device for device, _ in tensors.values()):
        source, target = (_HERE, device) if outward else (device, _HERE)
        own = {name: tensor for name, (place, tensor) in tensors.items() if place == device}
        for dtype in dict.fromkeys(tensor.dtype for tensor in own.values()):
            small = {name: tensor for name, tensor in own.items() if tensor.dtype == dtype and _small(tensor)}
            if len(small) > 1:
                together = _as_one(list(small.values()), source, target)
                arrived.update(zip(small, together, strict=True))
        with tf.device(target):
            arrived.update({name: tf.identity(own[name]) for name in own if name not in arrived})
    return arrived


def _small(tensor: tf.Tensor) -> bool:
    """Whether it may travel with others: one of known size, as weights have, or narrow rows; not ids, sent before."""
    if tensor.dtype.size != _WORD:
        return False
    return tensor.shape.is_fully_defined() or (
        tensor.dtype == tf.float32 and tensor.shape[1:].num_elements() <= _NARROW
    )


def _as_one(tensors: Sequence[tf.Tensor], source: str, target: str) -> list[tf.Tensor]:
    """Tensors of one device and type on another device, moved as one: how many values each has, then the values."""
    dtype = tensors[0].dtype
    with tf.device(source):
        sizes = tf.stack([tf.size(tensor) for tensor in tensors])
        values = [tf.reshape(tensor, [-1]) for tensor in tensors]
        parcel = tf.concat([tf.bitcast(sizes, dtype), *values], 0)
    with tf.device(target):
        parcel = tf.identity(parcel)
        sizes = tf.bitcast(parcel[: len(tensors)], tf.int32)
        parts = tf.split(parcel[len(tensors) :], sizes, num=len(tensors))
        return [
            tf.reshape(part, [-1 if size is None else size for size in tensor.shape])
            for part, tensor in zip(parts, tensors, strict=True)
        ]
