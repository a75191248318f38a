"""What the layers that are made inside a block have in common: where their seeds come from, what they compute with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import keras


@contextmanager
def computing_with(precision: str) -> Iterator[None]:
    """Layers made inside compute with this type; their weights are float32."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32" if precision == "float32" else f"mixed_{precision}")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Initialisers and dropout layers made inside draw their seeds from `seed`; nothing outside is touched."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
