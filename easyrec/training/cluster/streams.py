"""Calls of one function that run beside each other, in a graph whose operations would otherwise wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def beside_each_other(function: Callable[..., Any], arguments: tuple[Any, ...], count: int) -> list[Any]:
    """Calls a function several times at once; for use in a `tf.function`.

    TensorFlow lets operations that change the same variable follow each other in the order of the program, and a call
    changes all variables that anything in it does. It tells variables apart by their handles, so each call gets
    handles of its own. What the calls do to a variable at the same time is for the function to take care of.

    Args:
        function: From tensors and iterators to tensors.
        arguments: Of each call.
        count: How many calls.

    Returns:
        What each call returns.
    """
    if count == 1:
        return [function(*arguments)]
    traced = tf.function(function, autograph=False).get_concrete_function(*arguments)
    traced.add_to_graph()
    inputs = [*tf.nest.flatten(arguments, expand_composites=True), *traced.captured_inputs]
    kinds = [output.dtype for output in traced.outputs]
    outcomes = []
    for _ in range(count):
        own = [_own_handle(tensor) for tensor in inputs]
        values = tf.raw_ops.StatefulPartitionedCall(args=own, Tout=kinds, f=traced)
        outcomes.append(tf.nest.pack_sequence_as(traced.structured_outputs, values))
    return outcomes


def _own_handle(tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype != tf.resource:
        return tensor
    # Not `Identity`, through which TensorFlow looks.
    with tf.device(tensor.device or None):
        return tf.raw_ops.IdentityN(input=[tensor])[0]
