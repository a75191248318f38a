"""Integrated gradients of a trained network: what each feature of a row adds to its prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from easyrec.config.tasks import RetrievalTask
from easyrec.errors import DataError, nearest
from easyrec.features.encoder import Encoder
from easyrec.models.network import Network
from easyrec.models.sides import number_columns
from evaluation.attribution import Attribution, by_size

DEFAULT_STEPS = 64
_NUMBERS = "numbers"
_MASK = "mask/"
_LOG_ODDS = "log-odds"
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class _Inputs:
    """What a network computes from, as tensors: activations of the tables, and numbers."""

    moving: dict[str, tf.Tensor]
    fixed: dict[str, tf.Tensor]

    @classmethod
    def of(cls, network: Network, batch: Mapping[str, tf.Tensor]) -> _Inputs:
        moving = dict(network.embeddings(batch))
        if _NUMBERS in batch:
            moving[_NUMBERS] = batch[_NUMBERS]
        fixed = {key: moving.pop(key) for key in list(moving) if key.startswith(_MASK)}
        return cls(moving, fixed)


class IntegratedGradients:
    """Takes predictions apart (Sundararajan et al., "Axiomatic attribution for deep networks", ICML 2017).

    The path runs from an average row to the row, in the space of the embeddings and numbers; the gradients along it are
    summed by the midpoint rule, over the dimensions of each feature. Histories start from nothing.

    Args:
        network: The trained network.
        encoder: The fitted features.
        background: Rows whose average is the start, e.g. some evaluation rows.
        task: The task; the first unless given.
        steps: Points along the path.

    Raises:
        DataError: There is no such task.
    """

    def __init__(
        self,
        network: Network,
        encoder: Encoder,
        background: pa.Table,
        task: str | None = None,
        steps: int = DEFAULT_STEPS,
    ) -> None:
        if task is not None and task not in network.heads:
            raise DataError(f"there is no task {task!r}.{nearest(task, network.heads)}")
        self.task = task or next(iter(network.heads))
        self._network, self._encoder, self._steps = network, encoder, steps
        start = _Inputs.of(network, self._encode(background))
        self._start = {
            key: tf.zeros_like(value[:1])
            if key.startswith("sequence/")
            else tf.reduce_mean(value, 0, keepdims=True)
            for key, value in start.moving.items()
        }
        schema = encoder.schema
        self._columns = {
            group.name: [output.feature for output in group.singles] for group in network.embeddings.groups
        }
        self._numbers = tuple(number_columns(schema))
        self.features = [output.feature for output in network.model.schema.outputs]

    @property
    def unit(self) -> str:
        """What contributions are measured in."""
        head = self._network.heads[self.task]
        if isinstance(head.config, RetrievalTask):
            return "dot product"
        return _LOG_ODDS if head.config.type == "binary" else "prediction"

    def explain(self, table: pa.Table, names: list[str] | None = None) -> list[Attribution]:
        """The contributions of every feature to the predictions of rows.

        Args:
            table: Raw rows [B].
            names: How the rows are called; by their number unless given.

        Returns:
            One a row.
        """
        inputs = _Inputs.of(self._network, self._encode(table))
        start = {key: self._broadcast(key, value, inputs.moving[key]) for key, value in self._start.items()}
        change = {key: inputs.moving[key] - start[key] for key in start}
        total = {key: tf.zeros_like(value) for key, value in change.items()}
        chosen = self._classes(inputs)
        for step in range(self._steps):
            share = (step + 0.5) / self._steps
            point = {key: start[key] + share * change[key] for key in start}
            with tf.GradientTape() as tape:
                tape.watch(point)
                value = tf.reduce_sum(self._output(point, inputs.fixed, chosen))
            gradients = tape.gradient(value, point, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            total = {key: total[key] + gradients[key] / self._steps for key in total}
        parts = self._by_feature({key: (total[key] * change[key]).numpy() for key in total}, len(table))
        reached = self._output(inputs.moving, inputs.fixed, chosen).numpy()
        began = self._output(start, inputs.fixed, chosen).numpy()
        called = names or [f"row {row}" for row in range(len(table))]
        return [
            Attribution(
                called[row],
                float(reached[row]),
                float(began[row]),
                by_size(self.features, [float(parts[feature][row]) for feature in self.features]),
                self._values(table, row),
                self.unit,
            )
            for row in range(len(table))
        ]

    def _encode(self, table: pa.Table) -> dict[str, tf.Tensor]:
        return {
            key: tf.convert_to_tensor(value)
            for key, value in self._encoder.encode_table(table).as_dict().items()
        }

    @staticmethod
    def _broadcast(key: str, start: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        # Histories are as long as the longest of their batch; nothing of any length is zero everywhere.
        return tf.zeros_like(like) if key.startswith("sequence/") else tf.broadcast_to(start, tf.shape(like))

    def _predicted(self, moving: Mapping[str, tf.Tensor], fixed: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Log-odds or predictions, [B] or [B, C]."""
        activations = {key: value for key, value in moving.items() if key != _NUMBERS}
        logits = self._network.dense({**activations, **fixed}, moving.get(_NUMBERS))[self.task]
        if self.unit == _LOG_ODDS:
            return tf.squeeze(logits, axis=1)
        return self._network.heads[self.task].predict(logits)

    def _classes(self, inputs: _Inputs) -> tf.Tensor | None:
        """The most likely class of each row, which is what is explained; None for a task without classes."""
        predicted = self._predicted(inputs.moving, inputs.fixed)
        return None if len(predicted.shape) == 1 else tf.argmax(predicted, axis=1)

    def _output(
        self, moving: Mapping[str, tf.Tensor], fixed: Mapping[str, tf.Tensor], chosen: tf.Tensor | None
    ) -> tf.Tensor:
        """The explained number of each row, [B]."""
        predicted = self._predicted(moving, fixed)
        return predicted if chosen is None else tf.gather(predicted, chosen, axis=1, batch_dims=1)

    def _by_feature(self, parts: Mapping[str, Any], rows: int) -> dict[str, npt.NDArray[np.float64]]:
        found = {feature: np.zeros(rows) for feature in self.features}

        def add(feature: str, values: npt.NDArray[Any]) -> None:
            if feature in found:
                found[feature] += values.reshape(rows, -1).sum(axis=1)

        for key, values in parts.items():
            kind, _, name = key.partition("/")
            if key == _NUMBERS:
                for column, feature in enumerate(self._numbers):
                    add(feature, values[:, column])
            elif kind in ("embedding", "linear") and name in self._columns:
                for column, feature in enumerate(self._columns[name]):
                    add(feature, values[:, column])
            else:
                add(name, values)
        return found

    def _values(self, table: pa.Table, row: int) -> dict[str, str]:
        found = {}
        for feature in self.features:
            names = [
                spec.name
                for spec in self._encoder.transforms[feature].inputs()
                if spec.name in table.column_names
            ]
            found[feature] = ", ".join(_short(table[name][row].as_py()) for name in names)
        return found


def feature_columns(encoder: Encoder, features: list[str]) -> dict[str, list[str]]:
    """The raw columns that each feature reads, what permutation importance shuffles."""
    return {name: [spec.name for spec in encoder.transforms[name].inputs()] for name in features}


def score_of_task(predict: Callable[[pa.Table], Mapping[str, Any]], task: str) -> Callable[[pa.Table], Any]:
    """A model as a function of the scores of one task."""
    return lambda table: predict(table)[task]


def _short(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
