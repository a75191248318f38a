"""Tasks: what is predicted, with which loss and metrics."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from easyrec.config.base import Fraction, OneOf, TypedConfig
from easyrec.registry import Registry


class LossConfig(TypedConfig):
    """Base of the losses."""

    fits: ClassVar[tuple[str, ...]] = ()
    """Task types it can be used for; empty for all."""


class BinaryCrossentropyConfig(LossConfig):
    """Log loss of a binary label."""

    fits: ClassVar[tuple[str, ...]] = ("binary",)
    type: Literal["binary_crossentropy"] = "binary_crossentropy"
    label_smoothing: Fraction = 0.0
    """Labels move this far towards 0.5."""


class FocalConfig(LossConfig):
    """Log loss that weighs easy examples less (Lin et al. 2017)."""

    fits: ClassVar[tuple[str, ...]] = ("binary",)
    type: Literal["focal"] = "focal"
    gamma: float = Field(2.0, ge=0)
    """How strongly easy examples are discounted."""
    alpha: float | None = Field(None, gt=0, lt=1)
    """Weight of the positive class; no weighting unless given."""


class MeanSquaredErrorConfig(LossConfig):
    """Squared error."""

    fits: ClassVar[tuple[str, ...]] = ("regression",)
    type: Literal["mean_squared_error"] = "mean_squared_error"


class MeanAbsoluteErrorConfig(LossConfig):
    """Absolute error."""

    fits: ClassVar[tuple[str, ...]] = ("regression",)
    type: Literal["mean_absolute_error"] = "mean_absolute_error"


class HuberConfig(LossConfig):
    """Squared error near zero, absolute error beyond `delta`."""

    fits: ClassVar[tuple[str, ...]] = ("regression",)
    type: Literal["huber"] = "huber"
    delta: float = Field(1.0, gt=0)
    """Where the two forms meet."""


class CategoricalCrossentropyConfig(LossConfig):
    """Log loss of one class among several."""

    fits: ClassVar[tuple[str, ...]] = ("multiclass",)
    type: Literal["categorical_crossentropy"] = "categorical_crossentropy"


class InBatchSoftmaxConfig(LossConfig):
    """Softmax over the items of the batch, corrected for how often each is sampled (Yi et al. 2019)."""

    fits: ClassVar[tuple[str, ...]] = ("retrieval",)
    type: Literal["in_batch_softmax"] = "in_batch_softmax"
    logq_correction: bool = True
    """Subtract the log of each item's share of the training rows."""
    mask_accidental_hits: bool = True
    """Do not count the same item elsewhere in the batch as a negative."""


LOSSES: Registry[LossConfig] = Registry("loss", LossConfig)
LOSSES.register(
    "binary_crossentropy", BinaryCrossentropyConfig, "easyrec.losses.pointwise:binary_crossentropy"
)
LOSSES.register("focal", FocalConfig, "easyrec.losses.pointwise:focal")
LOSSES.register("mean_squared_error", MeanSquaredErrorConfig, "easyrec.losses.pointwise:mean_squared_error")
LOSSES.register(
    "mean_absolute_error", MeanAbsoluteErrorConfig, "easyrec.losses.pointwise:mean_absolute_error"
)
LOSSES.register("huber", HuberConfig, "easyrec.losses.pointwise:huber")
LOSSES.register(
    "categorical_crossentropy",
    CategoricalCrossentropyConfig,
    "easyrec.losses.pointwise:categorical_crossentropy",
)
LOSSES.register("in_batch_softmax", InBatchSoftmaxConfig, "easyrec.losses.sampled_softmax:in_batch_softmax")


class TaskConfig(TypedConfig):
    """Options that every task has."""

    label: str | None = None
    """Label: a column, or an expression such as `rating >= 4`; the column of the task's name unless given."""
    loss: Annotated[LossConfig, OneOf(LOSSES)] | None = None
    """Loss; the task type's own unless given."""
    weight: float = Field(1.0, gt=0)
    """Factor of this task's loss in the sum."""
    metrics: list[str] | None = None
    """Metrics to report; the task type's own unless given."""

    default_loss: ClassVar[LossConfig | None] = None
    """The task type's own loss."""
    default_metrics: ClassVar[tuple[str, ...]] = ()
    """The task type's own metrics, by their names in `evaluation`."""

    @model_validator(mode="after")
    def _loss_fits(self) -> TaskConfig:
        if self.loss is None:
            if self.default_loss is None:
                raise ValueError(f"a {self.type} task has no loss of its own; give `loss`")
        elif self.loss.fits and self.type not in self.loss.fits:
            known = [part.name for part in LOSSES if not part.config.fits or self.type in part.config.fits]
            raise ValueError(
                f"the loss {self.loss.type} is for {' or '.join(self.loss.fits)} tasks; "
                f"a {self.type} task takes {', '.join(known)}"
            )
        return self

    @property
    def effective_loss(self) -> LossConfig:
        """The loss given, or the task type's own."""
        loss = self.loss or self.default_loss
        if loss is None:
            raise ValueError(f"a {self.type} task has no loss of its own; give `loss`")
        return loss

    @property
    def effective_metrics(self) -> tuple[str, ...]:
        """The metrics given, or the task type's own."""
        return self.default_metrics if self.metrics is None else tuple(self.metrics)


class BinaryTask(TaskConfig):
    """A label of 0 or 1: clicked, liked, bought."""

    default_loss: ClassVar[LossConfig | None] = BinaryCrossentropyConfig()
    default_metrics: ClassVar[tuple[str, ...]] = ("auc", "log_loss")

    type: Literal["binary"] = "binary"


class RegressionTask(TaskConfig):
    """A number."""

    default_loss: ClassVar[LossConfig | None] = MeanSquaredErrorConfig()
    default_metrics: ClassVar[tuple[str, ...]] = ("rmse", "mae")

    type: Literal["regression"] = "regression"
    normalize: bool = True
    """Learn the label's distance from its mean in standard deviations (losses and their options count in them too);
    predictions and metrics are in the label's own units."""


class MulticlassTask(TaskConfig):
    """One class among several: numbers from 0, or whatever whole numbers or words the label holds."""

    default_loss: ClassVar[LossConfig | None] = CategoricalCrossentropyConfig()
    default_metrics: ClassVar[tuple[str, ...]] = ("log_loss", "accuracy")

    type: Literal["multiclass"] = "multiclass"
    classes: Annotated[int, Field(ge=2)] | list[str] | list[int] | None = None
    """How many classes there are, when the label numbers them from 0; or the values of the label, in the order of the
    probabilities. Found in the data unless given."""

    @field_validator("classes")
    @classmethod
    def _several_and_distinct(
        cls, value: int | list[str] | list[int] | None
    ) -> int | list[str] | list[int] | None:
        if not isinstance(value, list):
            return value
        twice = [name for place, name in enumerate(value) if name in value[:place]]
        if twice:
            raise ValueError(f"the class {twice[0]!r} is given twice")
        if len(value) < 2:
            raise ValueError("there must be at least two classes")
        return value


def class_names(task: TaskConfig) -> list[str] | list[int] | None:
    """The classes of a task, in the order of its probabilities; None when it has none, or they are not known yet."""
    classes: int | list[str] | list[int] | None = getattr(task, "classes", None)
    return list(range(classes)) if isinstance(classes, int) else classes


def prediction_columns(name: str, task: TaskConfig) -> list[str]:
    """Names of the columns in a table of predictions: the task's, or those of its classes.

    Classes that have names of their own, not numbers from 0, come with the most probable one in the task's column.
    """
    classes = class_names(task)
    if classes is None:
        return [name]
    own = [name] if isinstance(getattr(task, "classes", None), list) else []
    return [*own, *(f"{name}_{label}" for label in classes)]


class RetrievalTask(TaskConfig):
    """Which item a user takes, out of all; trained on rows whose label is above 0, or on all rows without a label."""

    default_loss: ClassVar[LossConfig | None] = InBatchSoftmaxConfig()
    default_metrics: ClassVar[tuple[str, ...]] = ("ndcg@10", "recall@10")

    type: Literal["retrieval"] = "retrieval"


TASKS: Registry[TaskConfig] = Registry("task type", TaskConfig)
TASKS.register("binary", BinaryTask, "easyrec.models.tasks:BinaryHead")
TASKS.register("regression", RegressionTask, "easyrec.models.tasks:RegressionHead")
TASKS.register("multiclass", MulticlassTask, "easyrec.models.tasks:MulticlassHead")
TASKS.register("retrieval", RetrievalTask, "easyrec.models.tasks:RetrievalHead")
