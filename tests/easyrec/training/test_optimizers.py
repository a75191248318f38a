from __future__ import annotations

import keras
import pytest

from easyrec.config.training import DenseOptimizerConfig
from easyrec.errors import ConfigError
from easyrec.training.optimizers import dense_optimizer

NAMES = DenseOptimizerConfig.model_fields["type"].annotation.__args__


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_a_keras_optimizer_with_the_learning_rate(name):
    optimizer = dense_optimizer(DenseOptimizerConfig(type=name, learning_rate=0.05))
    assert isinstance(optimizer, keras.optimizers.Optimizer)
    assert type(optimizer).__name__.lower() == name
    assert float(optimizer.learning_rate) == pytest.approx(0.05)


def test_options_reach_keras():
    optimizer = dense_optimizer(DenseOptimizerConfig(type="sgd", options={"momentum": 0.9, "nesterov": True}))
    assert (optimizer.momentum, optimizer.nesterov) == (0.9, True)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "sgd",
            {"momentun": 0.9},
            r"dense.options.momentun: sgd has no such option. Did you mean 'momentum'",
        ),
        ("adam", {"clipnorm": 1.0}, r"options.clipnorm.*Use `training.optimizer.clip_norm`"),
        ("sgd", {"momentum": 2.0}, r"dense.options: .*momentum"),
    ],
)
def test_options_that_keras_would_not_take_are_refused(kind, options, message):
    with pytest.raises(ConfigError, match=message):
        dense_optimizer(DenseOptimizerConfig(type=kind, options=options))
