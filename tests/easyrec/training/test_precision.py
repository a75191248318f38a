"""Mixed precision: every model trains with short numbers, to nearly the same losses and with float32 weights."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from easyrec.config.models import MODELS
from easyrec.config.pipeline import PipelineConfig
from easyrec.training.step import TrainStep
from tests.easyrec.training.small_pipeline import network, pipeline, rows


def losses(model: str, precision: str, steps: int = 3) -> list[float]:
    config = pipeline(precision=precision, batch_size=32).model_dump(mode="json")
    config["model"] = {"type": model}
    config["data"]["keys"] = {"user": "user", "item": "item"}
    built = PipelineConfig.model_validate(config)
    made = network(built)
    step = TrainStep(made, built.training)
    assert {weight.dtype for weight in made.trainable_variables} == {"float32"}
    found = []
    for seed in range(steps):
        arrays = rows(seed, count=32).as_dict()
        tensors = {key: tf.constant(value) for key, value in arrays.items()}
        found.append(float(step(tensors, made.embeddings.host_lookup(arrays), 1.0)["loss"]))
    predictions = made.predict(tensors)
    assert {value.dtype for value in predictions.values()} == {tf.float32}
    return found


@pytest.mark.parametrize("model", [part.name for part in MODELS])
def test_a_model_trains_with_short_numbers(model):
    assert np.isfinite(losses(model, "bfloat16", steps=1)).all()


@pytest.mark.slow
def test_the_losses_are_nearly_the_same():
    exact = losses("deepfm", "float32")
    for precision in ("bfloat16", "float16"):
        short = losses("deepfm", precision)
        np.testing.assert_allclose(short, exact, rtol=0.03)
        assert short != exact
