import numpy as np
import pytest
import tensorflow as tf

from easyrec.config.models import MODELS, DeepModelConfig
from tests.easyrec.models import conformance as suite

BINARY = {"liked": {"type": "binary"}}
RETRIEVAL = {"taken": {"type": "retrieval"}}
SEVERAL = {"liked": {"type": "binary"}, "rating": {"type": "regression", "weight": 0.5}}

NAMES = MODELS.names()
DEEP = [part.name for part in MODELS if issubclass(part.config, DeepModelConfig)]
CASES = [
    *(pytest.param(name, BINARY, id=f"{name}-binary") for name in NAMES),
    pytest.param("two_tower", RETRIEVAL, id="two_tower-retrieval"),
]


def _tasks(name):
    if MODELS[name].config.towers:
        return SEVERAL
    return {**SEVERAL, "kind": {"type": "multiclass", "classes": 3}}


def _assert_close(left, right, tolerance=1e-5):
    assert left.keys() == right.keys()
    for key in left:
        np.testing.assert_allclose(left[key], right[key], rtol=tolerance, atol=tolerance, err_msg=key)


@pytest.mark.parametrize(("name", "tasks"), CASES)
def test_training_lowers_the_loss(name, tasks):
    net = suite.network(name, tasks)
    losses = suite.train(net, suite.tensors(suite.batch(32)), steps=8)
    assert np.all(np.isfinite(losses))
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_every_weight_and_every_table(name):
    net = suite.spread(suite.network(name, _tasks(name)))
    _, of_weights, of_tables = suite.gradients(net, suite.tensors(suite.batch(64)))
    for variable, gradient in zip(net.trainable_variables, of_weights, strict=True):
        assert gradient is not None, f"no gradient reaches {variable.path}"
        assert np.any(gradient != 0), f"the gradient of {variable.path} is zero everywhere"
    for key, gradient in of_tables.items():
        for _, table, fused in net.embeddings.places():
            if fused == key:
                part = gradient[table.offset : table.offset + table.rows]
                assert np.any(part != 0), f"no gradient reaches the table {table.name} of {key}"


@pytest.mark.parametrize("name", NAMES)
def test_every_model_takes_several_tasks(name):
    tasks = _tasks(name)
    net = suite.network(name, tasks)
    data = suite.tensors(suite.batch(6))
    predictions = net.predict(data)
    shapes = {"liked": [6], "rating": [6], "kind": [6, 3]}
    assert {key: value.shape.as_list() for key, value in predictions.items()} == {
        key: shapes[key] for key in tasks
    }
    total, parts = net.loss(net.forward(data), data)
    expected = sum(task.get("weight", 1.0) * parts[key] for key, task in tasks.items())
    np.testing.assert_allclose(total, expected, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_tasks_of_one_model_predict_different_things(name):
    net = suite.spread(suite.network(name, {"liked": {"type": "binary"}, "bought": {"type": "binary"}}))
    predictions = net.predict(suite.tensors(suite.batch(16)))
    assert not np.allclose(predictions["liked"], predictions["bought"])


@pytest.mark.parametrize(("name", "tasks"), CASES)
def test_a_batch_of_one_gives_what_a_larger_batch_gives(name, tasks):
    net = suite.spread(suite.network(name, tasks))
    many, alone = suite.batch(5), suite.batch(1)
    # Row 0 of the larger batch becomes the single row, multi-valued features included.
    for key in alone:
        if not key.endswith(("/values", "/weights")):
            alone[key] = many[key][:1]
    for key in alone:
        if key.endswith(("/values", "/weights")):
            alone[key] = many[key][: many[f"{key.split('/')[0]}/row_lengths"][0]]
    whole, single = net.predict(suite.tensors(many)), net.predict(suite.tensors(alone))
    _assert_close({key: value[:1] for key, value in whole.items()}, single)


@pytest.mark.parametrize(("name", "tasks"), CASES)
def test_a_batch_of_one_can_be_trained_on(name, tasks):
    net = suite.network(name, tasks)
    data = suite.tensors({**suite.batch(1), "label/liked": np.ones(1, np.float32)})
    assert np.all(np.isfinite(suite.train(net, data, steps=2)))


@pytest.mark.parametrize(("name", "tasks"), CASES)
def test_traced_once_for_any_batch_size_it_agrees_with_eager(name, tasks):
    net = suite.spread(suite.network(name, tasks))

    def dense(activations, numbers):
        return net.predictions(net.dense(activations, numbers, training=False))

    first = suite.tensors(suite.batch(4))
    activations = net.embeddings(first)
    any_size = {
        key: tf.TensorSpec([None, *value.shape[1:]], value.dtype) for key, value in activations.items()
    }
    numbers = tf.TensorSpec([None, first["numbers"].shape[1]])
    traced = tf.function(dense, input_signature=[any_size, numbers], autograph=False)
    for rows in (4, 1, 7):
        data = suite.tensors(suite.batch(rows))
        activations = net.embeddings(data)
        expected = net.predict(data)
        _assert_close(traced(activations, data["numbers"]), expected)


@pytest.mark.parametrize(("name", "tasks"), CASES)
def test_a_compiled_training_step_has_the_losses_and_gradients_of_an_eager_one(name, tasks):
    net = suite.spread(suite.network(name, tasks))
    data = suite.tensors(suite.batch(6))
    fixed = {key: value for key, value in data.items() if value.shape[0] == 6}

    def step(activations, fixed):
        learned = {key: value for key, value in activations.items() if not key.startswith("mask/")}
        with tf.GradientTape() as tape:
            tape.watch(learned)
            logits = net.dense({**activations, **learned}, fixed["numbers"], training=True)
            loss, _ = net.loss(logits, fixed)
        weights = [weight.value for weight in net.trainable_variables]
        zero = tf.UnconnectedGradients.ZERO
        return loss, tape.gradient(loss, [learned, weights], unconnected_gradients=zero)

    activations = net.embeddings(data)
    compiled = tf.function(step, jit_compile=True, autograph=False)
    left, right = (tf.nest.flatten(function(activations, fixed)) for function in (step, compiled))
    for eager, other in zip(left, right, strict=True):
        np.testing.assert_allclose(other, eager, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "tasks"), CASES)
def test_rows_of_which_nothing_but_the_item_is_known_can_be_trained_on(name, tasks):
    net = suite.network(name, tasks)
    arrays = suite.batch(4)
    for key, value in arrays.items():
        if key.endswith(("/values", "/weights")):
            arrays[key] = value[:0]
        elif key == "ids" or key.endswith("/row_lengths"):
            arrays[key] = np.zeros_like(value)
    arrays["ids"][:, 1] = [1, 2, 3, 4]
    arrays["numbers"][:, 0] = 0  # the user's number; those of the item stay
    data = suite.tensors(arrays)
    # Tables of zeros on top: norms and divisions by them must not break.
    for table in net.embeddings.tables.values():
        table.write(0, np.zeros([table.rows, table.dim], np.float32))
    loss, of_weights, of_tables = suite.gradients(net, data)
    assert np.isfinite(loss)
    for gradient in (*of_weights, *of_tables.values()):
        assert gradient is None or np.all(np.abs(gradient) < 1000)
    assert all(np.all(np.isfinite(values)) for values in net.predict(data).values())


@pytest.mark.parametrize(("name", "tasks"), CASES)
def test_a_rebuilt_network_with_the_same_weights_predicts_the_same(name, tasks):
    data = suite.tensors(suite.batch(5))
    net = suite.network(name, tasks)
    suite.train(net, data, steps=1)
    saved = suite.state(net)
    rebuilt = suite.network(name, tasks, training={"seed": 7})
    assert saved.keys() == suite.state(rebuilt).keys()
    suite.restore(rebuilt, saved)
    _assert_close(rebuilt.predict(data), net.predict(data), tolerance=0)


@pytest.mark.parametrize(("name", "tasks"), CASES)
def test_the_seed_decides_the_first_weights(name, tasks):
    first, again, other = (
        suite.state(suite.network(name, tasks, training={"seed": seed})) for seed in (3, 3, 4)
    )
    for key in first:
        np.testing.assert_array_equal(first[key], again[key], err_msg=key)
    if name != "logistic_regression":  # whose weights all start at zero
        assert any(not np.array_equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize(("name", "tasks"), CASES)
@pytest.mark.parametrize("users", [1, 6])
def test_two_stages_predict_what_one_stage_does(name, tasks, users):
    net = suite.spread(suite.network(name, tasks))
    arrays = suite.batch(6)
    if users == 1:  # one user against six items: the user's part is the same in each row
        one = suite.batch(1, seed=5)
        arrays = _with_user_of(one, arrays)
        user = suite.side_only(one, ("user", "context"))
    else:
        user = suite.side_only(arrays, ("user", "context"))
    item = suite.side_only(arrays, ("item",))
    expected = net.predict(suite.tensors(arrays))
    scored = net.score(net.encode_side(user, "user"), net.encode_side(item, "item"))
    _assert_close(scored, expected, tolerance=2e-6)
    # A batch of all features is as good as one of the side's own.
    both = suite.tensors(arrays)
    scored = net.score(net.encode_side(both, "user"), net.encode_side(both, "item"))
    _assert_close(scored, expected, tolerance=2e-6)


@pytest.mark.parametrize("name", DEEP)
def test_l2_dropout_and_batch_normalisation(name):
    options = {"l2": 0.1, "dropout": 0.3, "batch_norm": True, "hidden_units": [4], "activation": "dice"}
    net = suite.network({"type": name, **suite.OPTIONS.get(name, {}), **options}, BINARY)
    data = suite.tensors(suite.batch(16))
    total, parts = net.loss(net.forward(data), data)
    assert parts["regularization"] > 0
    np.testing.assert_allclose(total, parts["liked"] + parts["regularization"], rtol=1e-6)
    kernels = [v for path, v in net.named_variables().items() if path.endswith("kernel") and "dense" in path]
    if name != "mmoe":  # whose experts are penalised too, under the same names
        assert kernels
    np.testing.assert_allclose(
        parts["regularization"], 0.1 * sum(np.sum(np.square(v.numpy())) for v in _penalised(net)), rtol=1e-5
    )
    before = suite.state(net)
    losses = suite.train(net, data, steps=2)
    assert np.all(np.isfinite(losses))
    moved = [key for key, value in suite.state(net).items() if not np.array_equal(value, before[key])]
    assert any("moving_mean" in key for key in moved)
    assert any("seed_generator" in key for key in moved)


def _penalised(net):
    return [v for v in net.trainable_variables if getattr(v, "regularizer", None) is not None]


def _with_user_of(one, arrays):
    """The rows of `arrays`, each with the user and context features of the single row `one`."""
    rows = len(arrays["ids"])
    arrays = dict(arrays)
    for key, outputs in (("ids", suite.SCHEMA.single_ids), ("numbers", suite.SCHEMA.numbers)):
        widths = [getattr(output, "width", 1) for output in outputs]
        mine = np.repeat([output.side != "item" for output in outputs], widths)
        arrays[key] = np.where(mine, one[key], arrays[key])
    for output in suite.SCHEMA.multi_ids:
        if output.side != "item":
            arrays[f"{output.feature}/row_lengths"] = np.repeat(one[f"{output.feature}/row_lengths"], rows)
            arrays[f"{output.feature}/values"] = np.tile(one[f"{output.feature}/values"], rows)
    return arrays
