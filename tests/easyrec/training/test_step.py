"""The inner step against one that Keras and plain NumPy would take."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from easyrec.training.state import network_state
from easyrec.training.step import TrainStep, batch_rows, ragged_keys
from tests.easyrec.training.small_pipeline import network, pipeline, rows


def plain(**training):
    """A configuration without dropout and batch normalisation, so that a step can be worked out by hand."""
    config = pipeline(**training)
    model = config.model.model_copy(update={"dropout": 0.0, "batch_norm": False})
    return config.model_copy(update={"model": model})


def take(step, batch, factor=1.0):
    arrays = batch.as_dict()
    tensors = {key: tf.constant(value) for key, value in arrays.items()}
    return step(tensors, step.network.embeddings.host_lookup(arrays), factor)


def weights(network):
    return {
        variable.name: np.concatenate([*map(np.atleast_1d, variable.read())])
        for variable in network_state(network)
    }


SGD = {"dense": {"type": "sgd", "learning_rate": 0.5}, "embedding": {"type": "sgd", "learning_rate": 0.5}}


@pytest.mark.parametrize(("count", "jit"), [(32, True), (32, False), (7, True)], ids=["xla", "plain", "odd"])
def test_a_step_moves_every_weight_along_the_gradient_of_the_loss(count, jit):
    config = plain(optimizer=SGD, jit_compile=jit)
    model = network(config)
    batch = rows(count=count)
    before = weights(model)
    losses = take(TrainStep(model, config.training), batch, factor=0.1)
    after = weights(model)
    assert float(losses["loss"]) == pytest.approx(float(losses["liked"]))
    expected = gradients(network(config), batch)
    assert before.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(
            (before[name] - after[name]) / (0.5 * 0.1),
            gradient.reshape(before[name].shape),
            rtol=2e-2,
            atol=2e-5,
        )


def gradients(model, batch):
    """Of the loss in every weight, by TensorFlow through the tables themselves."""
    tensors = {key: tf.constant(value) for key, value in batch.as_dict().items()}
    tables = {key: table.shards[0] for key, table in model.embeddings.tables.items()}
    dense = {name: variable.value for name, variable in model.named_variables().items()}
    with tf.GradientTape() as tape:
        tape.watch(list(tables.values()))
        loss = model.loss(model.forward(tensors), tensors)[0]
    of_tables, of_dense = tape.gradient(loss, [tables, dense], unconnected_gradients="zero")
    result = {f"dense/{name}": value.numpy() for name, value in of_dense.items()}
    for kind, table, key in model.embeddings.places():
        rows = tf.convert_to_tensor(of_tables[key]).numpy()[table.offset : table.offset + table.rows]
        result[f"{kind}/{table.name}"] = rows
    return result


def test_the_joint_norm_of_dense_gradients_is_clipped():
    config = plain(optimizer={**SGD, "clip_norm": 0.01})
    model = network(config)
    before = weights(model)
    take(TrainStep(model, config.training), rows(count=32))
    after = weights(model)
    moved = [before[name] - after[name] for name in before if name.startswith("dense/")]
    norm = np.sqrt(sum(float((values**2).sum()) for values in moved)) / 0.5
    assert norm == pytest.approx(0.01, rel=1e-3)


def test_the_embedding_penalty_is_part_of_the_loss():
    config = plain()
    config = config.model_copy(update={"embedding": config.embedding.model_copy(update={"l2": 0.1})})
    model = network(config)
    losses = take(TrainStep(model, config.training), rows(count=32))
    assert float(losses["embedding_l2"]) > 0
    assert float(losses["loss"]) == pytest.approx(float(losses["liked"]) + float(losses["embedding_l2"]))


def test_the_schedule_scales_both_learning_rates():
    config = plain(optimizer=SGD)
    moved = []
    for factor in (1.0, 0.25):
        model = network(config)
        before = weights(model)
        take(TrainStep(model, config.training), rows(count=32), factor)
        after = weights(model)
        moved.append({name: after[name] - before[name] for name in before})
    for name, change in moved[0].items():
        np.testing.assert_allclose(moved[1][name], 0.25 * change, rtol=1e-3, atol=1e-7)


def test_a_task_may_be_called_values():
    batch = {
        "label/values": np.zeros(3),
        "label/weights": np.zeros(3),
        "t/values": np.zeros(9),
        "t/row_lengths": np.zeros(3),
    }
    assert ragged_keys(batch) == {"t/values", "t/row_lengths"}
    assert batch_rows(batch) == 3
    assert batch_rows({"t/values": np.zeros(9), "t/row_lengths": np.zeros(3)}) == 3


@pytest.mark.parametrize("jit", [False, True])
def test_a_batch_in_parts_moves_the_weights_as_the_whole_does(jit):
    batch = rows(count=32)
    after = []
    for parts in (1, 4):
        config = plain(optimizer=SGD, jit_compile=jit, accumulate=parts)
        model = network(config)
        losses = take(TrainStep(model, config.training), batch)
        after.append((weights(model), float(losses["loss"])))
    (whole, loss), (parts, mean) = after
    assert mean == pytest.approx(loss, rel=1e-5)
    for name, value in whole.items():
        np.testing.assert_allclose(parts[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
