import pytest
from pydantic import ValidationError

from easyrec.config.tasks import (
    LOSSES,
    TASKS,
    BinaryTask,
    LossConfig,
    MulticlassTask,
    RegressionTask,
    RetrievalTask,
)
from evaluation import parse_metric


@pytest.mark.parametrize("part", list(TASKS), ids=lambda part: part.name)
def test_every_task_has_a_head_a_loss_that_fits_and_metrics_that_exist(part):
    options = {"classes": 3} if part.name == "multiclass" else {}
    config = part.config(**options)
    head = TASKS.build(config, "task")
    assert head.config is config
    assert config.effective_loss.type in LOSSES
    assert part.name in config.effective_loss.fits
    kind = "ranking" if part.name == "retrieval" else part.name
    assert head.metrics
    for name in head.metrics:
        assert kind in parse_metric(name).metric.kinds


@pytest.mark.parametrize("part", list(LOSSES), ids=lambda part: part.name)
def test_every_loss_can_be_loaded_and_belongs_to_a_task(part):
    assert callable(part.load())
    assert set(part.config.fits) <= set(TASKS.names())
    assert part.config.fits


@pytest.mark.parametrize(
    ("task", "loss", "fitting"),
    [
        (BinaryTask, "huber", "binary_crossentropy, focal"),
        (RegressionTask, "focal", "huber, mean_absolute_error, mean_squared_error"),
        (RetrievalTask, "binary_crossentropy", "in_batch_softmax"),
    ],
)
def test_a_loss_of_another_kind_of_task_is_refused(task, loss, fitting):
    with pytest.raises(ValidationError, match=f"a {task().type} task takes {fitting}"):
        task(loss={"type": loss})


def test_a_loss_of_another_package_fits_every_task():
    class OwnConfig(LossConfig):
        """A loss of one's own."""

        type: str = "own"
        power: float = 2.0

    LOSSES.register("own", OwnConfig, lambda labels, logits, power: abs(labels - logits) ** power)
    try:
        for task in (BinaryTask, RegressionTask):
            head = TASKS.build(task(loss={"type": "own", "power": 3.0}), "task")
            assert head.loss(1.0, _column(3.0)) == 8.0
    finally:
        LOSSES.unregister("own")


def _column(value):
    import numpy as np

    return np.full([1, 1], value)


def test_metrics_given_replace_the_default():
    assert TASKS.build(BinaryTask(metrics=["f1"]), "task").metrics == ("f1",)
    assert TASKS.build(MulticlassTask(classes=4), "task").units == 4
