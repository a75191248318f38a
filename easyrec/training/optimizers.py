"""The Keras optimizer of the dense weights, built from the configuration."""

from __future__ import annotations

import inspect

import keras

from easyrec.config.training import DenseOptimizerConfig
from easyrec.errors import ConfigError, nearest

_CLASSES: dict[str, type[keras.optimizers.Optimizer]] = {
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "sgd": keras.optimizers.SGD,
    "adagrad": keras.optimizers.Adagrad,
    "rmsprop": keras.optimizers.RMSprop,
    "nadam": keras.optimizers.Nadam,
    "adamax": keras.optimizers.Adamax,
    "ftrl": keras.optimizers.Ftrl,
    "lion": keras.optimizers.Lion,
}
# Given elsewhere in the configuration, or meaningless here.
_RESERVED = {"self", "learning_rate", "name", "kwargs", "clipnorm", "clipvalue", "global_clipnorm"}


def dense_optimizer(config: DenseOptimizerConfig) -> keras.optimizers.Optimizer:
    """The optimizer that `config.type` names, with its options.

    Raises:
        ConfigError: An option is unknown to this optimizer, or Keras refuses its value.
    """
    kind = _CLASSES[config.type]
    known = set(inspect.signature(kind.__init__).parameters) - _RESERVED
    for name in config.options:
        if name not in known:
            hint = " Use `training.optimizer.clip_norm`." if "clip" in name else nearest(name, known)
            raise ConfigError(
                f"training.optimizer.dense.options.{name}: {config.type} has no such option.{hint}"
            )
    try:
        return kind(learning_rate=config.learning_rate, **config.options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"training.optimizer.dense.options: {error}") from error
