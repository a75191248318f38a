"""Cross network, version 2 (Wang et al. 2021)."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="easyrec")
class CrossNetwork(keras.layers.Layer):
    """Explicit interactions whose degree grows by one a layer.

        x_(l+1) = x_0 ∗ (x_l W_l + b_l) + x_l

    where ∗ is element-wise and W_l = V_l U_l with V_l [N, rank], U_l [rank, N] under `low_rank`.
    Input and output: [B, N].

    Args:
        layers: Number of cross layers.
        low_rank: Rank of the matrices; full rank when None.
        **kwargs: `name` and what else every Keras layer takes.

    Raises:
        ValueError: `layers` or `low_rank` is not positive.

    References:
        Wang et al. 2021, DCN V2: Improved Deep & Cross Network, equations 1 and 2.
    """

    def __init__(self, layers: int = 3, low_rank: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if layers < 1:
            raise ValueError(f"layers must be positive, got {layers}")
        if low_rank is not None and low_rank < 1:
            raise ValueError(f"low_rank must be positive or None, got {low_rank}")
        self.layers = layers
        self.low_rank = low_rank
        self.down: list[keras.layers.Layer] = []
        self.up: list[keras.layers.Layer] = []

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates W_l and b_l (or V_l, U_l and b_l) of every layer."""
        width = input_shape[-1]
        inner = width if self.low_rank is None else self.low_rank
        for index in range(self.layers):
            if self.low_rank is not None:
                self.down.append(keras.layers.Dense(inner, use_bias=False, name=f"down_{index}"))
                self.down[-1].build(input_shape)
            self.up.append(keras.layers.Dense(width, name=f"cross_{index}"))
            self.up[-1].build((*input_shape[:-1], inner))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The crossed vectors [B, N]."""
        crossed = inputs
        for index, up in enumerate(self.up):
            projected = crossed if self.low_rank is None else self.down[index](crossed)
            crossed = inputs * up(projected) + crossed
        return crossed

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "layers": self.layers, "low_rank": self.low_rank}
