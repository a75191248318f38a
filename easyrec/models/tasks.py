"""Heads: from the logits of a task to its loss and its prediction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import keras
import tensorflow as tf

from easyrec.config.tasks import LOSSES, MulticlassTask, RegressionTask, TaskConfig, class_names
from easyrec.errors import ConfigError, DataError
from easyrec.models.retrieval import Towers


class Head:
    """One task of a network.

    A head of another package derives from this class, sets `units` and `predict`, and is registered in
    `easyrec.config.tasks.TASKS` with its configuration class, which names the loss and the metrics.

    Args:
        config: Its configuration.
        name: Name of the task.

    Attributes:
        units: How many logits a row has.
        metrics: Names of the metrics to report, as in `evaluation`.
        layer: A layer whose weights belong to the head, or None.
    """

    units: int = 1
    towers: ClassVar[bool] = False
    """Whether it takes the vectors of two towers in place of logits."""

    def __init__(self, config: TaskConfig, name: str) -> None:
        self.config = config
        self.name = name
        self.metrics = config.effective_metrics
        loss = config.effective_loss
        self.layer: keras.layers.Layer | None = None
        self._loss = partial(LOSSES[loss.type].load(), **loss.model_dump(exclude={"type"}))

    def labels(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor | None:
        """The labels [B] of a batch.

        Raises:
            DataError: It has none.
        """
        key = f"label/{self.name}"
        if key not in batch:
            raise DataError(
                f"the batch has no labels of the task {self.name!r} (key {key!r}); it holds {', '.join(sorted(batch))}"
            )
        return batch[key]

    def loss(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """The loss of each row [B], from labels [B] and logits [B, units]."""
        return self._loss(labels, logits[:, 0] if self.units == 1 else logits)

    def predict(self, logits: tf.Tensor) -> tf.Tensor:
        """What a user of the model gets, from logits [B, units]."""
        raise NotImplementedError


class BinaryHead(Head):
    """A probability."""

    def predict(self, logits: tf.Tensor) -> tf.Tensor:
        """The probability of a positive label, [B]."""
        return tf.sigmoid(logits[:, 0])


@keras.saving.register_keras_serializable(package="easyrec")
class LabelScale(keras.layers.Layer):
    """Mean and standard deviation of a label, as weights that training does not move; 0 and 1 until they are set.

    They are weights so that checkpoints and bundles carry them.
    """

    def __init__(self, name: str = "label_scale") -> None:
        super().__init__(name=name, trainable=False)
        self.mean = self.add_weight(name="mean", shape=(), initializer="zeros", trainable=False)
        self.deviation = self.add_weight(name="deviation", shape=(), initializer="ones", trainable=False)
        self.built = True

    def adapt(self, mean: float, deviation: float) -> None:
        """Sets both; a label that never changes keeps the deviation 1."""
        self.mean.assign(mean)
        self.deviation.assign(deviation or 1.0)

    def standardize(self, labels: tf.Tensor) -> tf.Tensor:
        """(label - mean) / deviation, [B]."""
        return (labels - self.mean) / self.deviation

    def restore(self, values: tf.Tensor) -> tf.Tensor:
        """The inverse of `standardize`, [B]."""
        return values * self.deviation + self.mean


class RegressionHead(Head):
    """A number. Unless `normalize` is off, the logit is its distance from the label's mean in standard deviations."""

    def __init__(self, config: RegressionTask, name: str) -> None:
        super().__init__(config, name)
        self.scale = LabelScale() if config.normalize else None
        self.layer = self.scale

    def loss(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """The loss of each row [B], from labels [B] and logits [B, 1]."""
        return super().loss(labels if self.scale is None else self.scale.standardize(labels), logits)

    def predict(self, logits: tf.Tensor) -> tf.Tensor:
        """The value, [B]."""
        values = logits[:, 0]
        return values if self.scale is None else self.scale.restore(values)


class MulticlassHead(Head):
    """The probability of each class."""

    def __init__(self, config: MulticlassTask, name: str) -> None:
        super().__init__(config, name)
        classes = class_names(config)
        if classes is None:
            raise ConfigError(
                f"tasks.{name}: the classes are not known yet; give `classes`, or fit the configuration to the data"
            )
        self.units = len(classes)

    def predict(self, logits: tf.Tensor) -> tf.Tensor:
        """The probabilities of the classes, [B, C]."""
        return tf.nn.softmax(logits)


class RetrievalHead(Head):
    """Which item a user takes, out of all; every method takes `Towers` in place of logits."""

    units = 0
    towers = True

    def labels(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor | None:
        """The labels [B] of a batch, or None when every row is a positive."""
        return batch.get(f"label/{self.name}")

    def option(self, name: str) -> bool:
        """Whether an option of the loss is on."""
        return bool(self._loss.keywords.get(name))

    def retrieval_loss(self, scores: tf.Tensor, items: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """The loss of each row, [B].

        Args:
            scores: [B, B], row i's user against row j's item.
            items: What the loss needs to know of the items, by the names of its arguments.
        """
        return self._loss(scores, **items)

    def predict(self, logits: Towers) -> tf.Tensor:
        """The score, [B]: the dot product of the two vectors."""
        return tf.reduce_sum(logits.user * logits.item, axis=1)
