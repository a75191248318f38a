from __future__ import annotations

import pytest

from easyrec.config.training import EarlyStoppingConfig
from easyrec.errors import TrainingError
from easyrec.training.stopping import EarlyStopping, Monitor, higher_is_better


@pytest.mark.parametrize(
    ("metric", "higher"),
    [
        ("liked/auc", True),
        ("liked/log_loss", False),
        ("stars/rmse", False),
        ("liked/brier", False),
        ("ranking/ndcg@10", True),
        ("liked/loss", False),
        ("liked/my_own_metric", True),
    ],
)
def test_the_direction_is_that_of_the_metric(metric, higher):
    assert higher_is_better(metric) is higher


def test_the_first_metric_is_monitored_unless_one_is_named():
    monitor = Monitor(None)
    assert monitor.describe() is None
    assert monitor.update({"liked/auc": 0.6, "liked/log_loss": 0.1})
    assert monitor.describe() == {"metric": "liked/auc", "value": 0.6, "higher_is_better": True}
    assert not monitor.update({"liked/auc": 0.5, "liked/log_loss": 0.0})
    assert monitor.best == 0.6


def test_an_unknown_metric_names_the_nearest():
    with pytest.raises(TrainingError, match=r"'liked/acu' is not among.*Did you mean 'liked/auc'"):
        Monitor("liked/acu").update({"liked/auc": 0.5})


def test_nan_is_no_improvement():
    monitor = Monitor(None)
    assert not monitor.update({"a/auc": float("nan")})
    assert monitor.update({"a/auc": 0.5})
    assert not monitor.update({"a/auc": float("nan")})


def test_training_stops_after_so_many_evaluations_without_improvement():
    stopping = EarlyStopping(EarlyStoppingConfig(metric="a/log_loss", patience=2, min_delta=0.01))
    stopped = []
    for value in [1.0, 0.9, 0.895, 0.8, 0.8, 0.795]:
        stopping.update({"a/log_loss": value})
        stopped.append(stopping.stop)
    assert stopped == [False, False, False, False, False, True]


def test_the_count_survives_a_restart():
    stopping = EarlyStopping(EarlyStoppingConfig(patience=2))
    for value in (0.7, 0.6):
        stopping.update({"a/auc": value})
    other = EarlyStopping(EarlyStoppingConfig(patience=2))
    other.restore(stopping.state())
    assert not other.stop
    other.update({"a/auc": 0.65})
    assert other.stop


def test_without_a_configuration_training_never_stops():
    stopping = EarlyStopping(None)
    for _ in range(50):
        stopping.update({"a/auc": 0.5})
    assert not stopping.stop
