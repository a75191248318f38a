"""Activations by name, those with weights of their own included."""

from __future__ import annotations

import keras

from easyrec.errors import ConfigError, nearest
from easyrec.layers.dice import Dice

_WITH_WEIGHTS = ("dice", "prelu")


def activation_layer(activation: str, rank: int = 2) -> keras.layers.Layer:
    """A new layer that applies the activation called `activation`.

    Args:
        activation: "dice", "prelu", or a name of `keras.activations` such as "relu".
        rank: Rank of the tensors it will see; `prelu` shares its slope over all axes but the last.

    Returns:
        A layer that keeps the shape of its input; it is called `activation`.

    Raises:
        ConfigError: There is no such activation.
    """
    if activation == "dice":
        return Dice(name=activation)
    if activation == "prelu":
        return keras.layers.PReLU(shared_axes=list(range(1, rank - 1)) or None, name=activation)
    try:
        return keras.layers.Activation(activation, name=activation)
    except ValueError as error:
        known = [*_WITH_WEIGHTS, *(name for name in dir(keras.activations) if name.islower())]
        raise ConfigError(f"unknown activation {activation!r}.{nearest(activation, known)}") from error
