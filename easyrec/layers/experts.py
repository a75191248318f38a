"""Multi-gate mixture of experts (Ma et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from easyrec.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="easyrec")
class MultiGateMixtureOfExperts(keras.layers.Layer):
    """Experts shared by several tasks, mixed by a gate per task.

        g_t(x) = softmax(x W_t)                        [B, E]
        f_t(x) = sum_e g_t(x)_e · expert_e(x)          [B, H]

    Input: [B, N]. Output: one [B, H] per task, H = hidden_units[-1].

    Args:
        tasks: Number of gates.
        experts: Number of experts E.
        hidden_units: Layers of each expert, at least one.
        activation: Their activation, see `activation_layer`.
        dropout: Share of units dropped in training.
        batch_norm: Normalise before the activation.
        l2: Penalty on the squared kernels of the experts.
        **kwargs: `name` and what else every Keras layer takes.

    Raises:
        ValueError: `tasks` or `experts` is not positive.

    References:
        Ma et al. 2018, Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts.
    """

    def __init__(
        self,
        tasks: int,
        experts: int,
        hidden_units: Sequence[int],
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if tasks < 1 or experts < 1:
            raise ValueError(f"tasks and experts must be positive, got {tasks} and {experts}")
        self.tasks = tasks
        self.expert_options: dict[str, Any] = {
            "hidden_units": tuple(hidden_units),
            "activation": activation,
            "dropout": dropout,
            "batch_norm": batch_norm,
            "l2": l2,
        }
        self.experts = [MLP(**self.expert_options, name=f"expert_{index}") for index in range(experts)]
        self.gates = [
            keras.layers.Dense(experts, activation="softmax", use_bias=False, name=f"gate_{index}")
            for index in range(tasks)
        ]

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates experts and gates."""
        for layer in (*self.experts, *self.gates):
            layer.build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool = False) -> list[tf.Tensor]:
        """One mixture [B, H] per task."""
        outputs = ops.stack(
            [expert(inputs, training=training) for expert in self.experts], axis=1
        )  # [B, E, H]
        return [ops.sum(gate(inputs)[:, :, None] * outputs, axis=1) for gate in self.gates]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "tasks": self.tasks,
            "experts": len(self.experts),
            **self.expert_options,
        }
