import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, log_softmax, softmax

from easyrec.config.models import MODELS, DeepModelConfig
from easyrec.errors import ConfigError, DataError, TrainingError
from easyrec.features.outputs import FeatureSchema, NumbersOutput
from easyrec.losses import in_batch_softmax
from easyrec.models.base import RecModel
from easyrec.models.network import build_network
from tests.easyrec.models import conformance as suite

RETRIEVAL = {"taken": {"type": "retrieval"}}


def _loss(net, data):
    total, parts = net.loss(net.forward(data), data)
    return float(total), {name: float(value) for name, value in parts.items()}


def test_predictions_follow_from_the_logits_of_each_task():
    tasks = {"liked": "binary", "rating": "regression", "kind": {"type": "multiclass", "classes": 3}}
    net = suite.spread(suite.network("deepfm", tasks))
    data = suite.tensors(suite.batch(5))
    logits, predictions = net.forward(data), net.predict(data)
    np.testing.assert_allclose(predictions["liked"], expit(logits["liked"][:, 0]), rtol=1e-5)
    np.testing.assert_allclose(predictions["rating"], logits["rating"][:, 0])
    np.testing.assert_allclose(predictions["kind"], softmax(logits["kind"], axis=1), rtol=1e-5)


def test_the_loss_is_the_mean_over_rows_weighted_by_sample_and_task():
    tasks = {
        "liked": {
            "type": "binary",
            "weight": 2.0,
            "loss": {"type": "binary_crossentropy", "label_smoothing": 0.1},
        },
        "kind": {"type": "multiclass", "classes": 3, "weight": 0.5},
    }
    net = suite.spread(suite.network("fm", tasks))
    weight = np.array([1, 0, 2, 0.5], np.float32)
    data = suite.tensors({**suite.batch(4), "weight": weight})
    logits = net.forward(data)
    smoothed = data["label/liked"].numpy() * 0.9 + 0.05
    p = expit(logits["liked"][:, 0].numpy().astype(np.float64))
    binary = -smoothed * np.log(p) - (1 - smoothed) * np.log(1 - p)
    of_class = -log_softmax(logits["kind"], axis=1)[np.arange(4), data["label/kind"].numpy().astype(int)]
    expected = {"liked": np.average(binary, weights=weight), "kind": np.average(of_class, weights=weight)}
    total, parts = _loss(net, data)
    assert parts == pytest.approx(expected, rel=1e-4)
    assert total == pytest.approx(2 * expected["liked"] + 0.5 * expected["kind"], rel=1e-4)


def test_a_batch_of_weight_zero_has_no_loss():
    net = suite.network("fm", {"liked": {"type": "binary"}})
    assert _loss(net, suite.tensors({**suite.batch(4), "weight": np.zeros(4, np.float32)}))[0] == 0


def test_a_missing_label_is_named():
    net = suite.network("fm", {"clicked": {"type": "binary"}})
    with pytest.raises(DataError, match=r"no labels of the task 'clicked' \(key 'label/clicked'\)"):
        _loss(net, suite.tensors(suite.batch(2)))


def test_retrieval_compares_each_user_with_the_items_of_the_batch():
    net = suite.spread(suite.network("two_tower", RETRIEVAL))
    data = suite.tensors(suite.batch(8))
    user, item = net.encode_side(data, "user")["user_vector"], net.encode_side(data, "item")["item_vector"]
    counts = np.maximum(suite.ITEM_COUNTS, 1)
    ids = data["ids"][:, 1]
    log_q = np.log(counts / counts.sum())[ids.numpy()]
    scores = user.numpy() @ item.numpy().T / 0.1
    losses = in_batch_softmax(tf.constant(scores), ids, tf.constant(log_q, tf.float32))
    assert _loss(net, data)[0] == pytest.approx(float(np.mean(losses)), rel=1e-4)
    # Rows whose label is not above 0 do not count, but their items are negatives still.
    label = np.array([1, 0, 1, -1, 1, 0, 2, 0], np.float32)
    with_label = {**data, "label/taken": tf.constant(label)}
    assert _loss(net, with_label)[0] == pytest.approx(float(np.mean(losses[label > 0])), rel=1e-4)
    nothing = {**data, "label/taken": tf.zeros(8)}
    assert _loss(net, nothing)[0] == 0


def test_retrieval_says_what_it_misses():
    config = suite.config("two_tower", RETRIEVAL)
    data = suite.tensors(suite.batch(2))
    with pytest.raises(TrainingError, match="logq_correction needs the counts of the items"):
        _loss(build_network(config, suite.SCHEMA), data)
    keyless = suite.config("two_tower", RETRIEVAL, data={"train": "t.parquet", "keys": {"item": "sku"}})
    with pytest.raises(ConfigError, match=r"tasks\.taken .*add the column of `data\.keys\.item`"):
        _loss(build_network(keyless, suite.SCHEMA, suite.ITEM_COUNTS), data)
    plain = {"type": "in_batch_softmax", "logq_correction": False, "mask_accidental_hits": False}
    free = suite.config("two_tower", {"taken": {"type": "retrieval", "loss": plain}})
    assert np.isfinite(_loss(build_network(free, suite.SCHEMA), data)[0])


def test_a_retrieval_task_needs_two_towers():
    with pytest.raises(
        ConfigError, match=r"tasks\.taken\.type  a retrieval task needs .* use one of: two_tower"
    ):
        suite.network("deepfm", RETRIEVAL)


def test_two_towers_need_two_sides_and_one_score():
    one_sided = suite.SCHEMA.select({"movie_id", "genres"})
    with pytest.raises(ConfigError, match="none is of side user"):
        build_network(suite.config("two_tower", RETRIEVAL), one_sided)
    with pytest.raises(ConfigError, match="cannot have a multiclass task"):
        suite.network("two_tower", {"kind": {"type": "multiclass", "classes": 3}})


def test_din_needs_a_sequence_of_an_item():
    with pytest.raises(ConfigError, match="din attends over behaviour sequences"):
        build_network(suite.config("din", {"liked": "binary"}), suite.SCHEMA.select({"movie_id", "queries"}))


def test_embeddings_of_different_widths_are_refused_when_the_network_is_built():
    schema = FeatureSchema((*suite.SCHEMA.outputs, NumbersOutput("wide", 1, "item", embedding_dim=7)))
    with pytest.raises(ConfigError, match=r"features\.wide\.embedding_dim  .*this one is 7 wide"):
        build_network(suite.config("fm", {"liked": "binary"}), schema)


@pytest.mark.parametrize("name", ["deepfm", "dlrm", "logistic_regression", "two_tower"])
def test_a_model_uses_the_features_it_is_given(name):
    features = ["user_id", "movie_id", "recent", "prices"]
    net = suite.spread(suite.network({"type": name, "features": features}, {"liked": "binary"}))
    assert {table.name for _, table, _ in net.embeddings.places()} == {"user_id", "movie_id"}
    arrays, other = suite.batch(4), suite.batch(4, seed=9)
    kept = {"recent/values", "recent/row_lengths"}
    other |= {key: arrays[key] for key in kept}
    other["ids"][:, :2] = arrays["ids"][:, :2]
    other["numbers"][:, 2:] = arrays["numbers"][:, 2:]
    predictions = net.predict(suite.tensors(arrays))["liked"]
    np.testing.assert_allclose(net.predict(suite.tensors(other))["liked"], predictions)
    sides = [net.encode_side(suite.tensors(arrays), side) for side in ("user", "item")]
    np.testing.assert_allclose(net.score(*sides)["liked"], predictions, rtol=1e-5)


def test_a_model_of_numbers_only():
    schema = suite.SCHEMA.select({"age", "prices"})
    data = suite.tensors(suite.batch(4, schema=schema))
    for name in ("logistic_regression", "wide_and_deep", "dcn_v2", "mmoe"):
        net = build_network(suite.config(name, {"liked": "binary"}), schema)
        assert np.all(np.isfinite(suite.train(net, data, 2)))
    with pytest.raises(ConfigError, match="no feature has one"):
        build_network(suite.config("deepfm", {"liked": "binary"}), schema)


def test_a_model_without_numbers():
    schema = suite.SCHEMA.select({"user_id", "movie_id", "genres", "recent"})
    for name in MODELS.names():
        net = build_network(suite.config(name, {"liked": "binary"}), schema)
        data = suite.tensors(suite.batch(3, schema=schema))
        assert net.predict(data)["liked"].shape == (3,)
        del data["numbers"]
        assert net.predict(data)["liked"].shape == (3,)


def test_names_of_weights_do_not_depend_on_what_the_process_has_made():
    first = suite.network("mmoe", {"liked": "binary"}).named_variables()
    keras.layers.Dense(1).build((1, 1))
    second = suite.network("mmoe", {"liked": "binary"}).named_variables()
    assert list(first) == list(second)
    assert len(set(first)) == len(first)


def test_building_a_network_leaves_the_random_state_alone():
    import random

    random.seed(5)
    expected = random.random()
    random.seed(5)
    suite.network("deepfm", {"liked": "binary"})
    assert random.random() == expected


def test_an_unknown_side_is_refused():
    net = suite.network("fm", {"liked": "binary"})
    with pytest.raises(ConfigError, match="side must be 'user' or 'item', got 'context'"):
        net.encode_side(suite.tensors(suite.batch(2)), "context")
    with pytest.raises(ConfigError, match="ids has 2 columns; the side has 1, all features have 3"):
        net.encode_side({**suite.tensors(suite.batch(2)), "ids": tf.zeros([2, 2], tf.int32)}, "item")


def test_a_model_of_another_package_joins_by_registration():
    class ProductConfig(DeepModelConfig):
        """Products of embeddings."""

        type: str = "product"

    class Product(RecModel):
        def __init__(self, config, schema, task_units):
            super().__init__(config, schema, task_units)
            self.deep = self.mlp()
            self.logits = keras.layers.Dense(self.units)  # no name: Keras numbers it

        def call(self, inputs, training=False):
            squares = keras.ops.sum(keras.ops.square(inputs.fields), axis=1)
            return self.logits(self.deep(squares, training=training))

    MODELS.register("product", ProductConfig, Product)
    try:
        first, second = (suite.network("product", {"liked": "binary"}) for _ in range(2))
        data = suite.tensors(suite.batch(16))
        losses = suite.train(first, data, 10)
        assert losses[-1] < losses[0]
        suite.restore(second, suite.state(first))
        np.testing.assert_array_equal(second.predict(data)["liked"], first.predict(data)["liked"])
    finally:
        MODELS.unregister("product")


def test_a_regression_is_learned_in_standard_deviations_and_predicted_in_units_of_the_label():
    tasks = {"rating": {"type": "regression", "loss": {"type": "huber", "delta": 0.5}}}
    config = suite.config("fm", tasks)
    net = suite.spread(build_network(config, suite.SCHEMA, suite.ITEM_COUNTS, {"rating": (3000.0, 200.0)}))
    values = np.array([2900, 3000, 3500, 0], np.float32)
    data = suite.tensors({**suite.batch(4), "label/rating": values})
    logits = net.forward(data)["rating"][:, 0].numpy()
    np.testing.assert_allclose(net.predict(data)["rating"], 3000 + 200 * logits, rtol=1e-6)
    error = np.abs(logits - (values - 3000) / 200)
    expected = np.mean(np.where(error <= 0.5, 0.5 * error**2, 0.5 * (error - 0.25)))
    assert _loss(net, data)[1]["rating"] == pytest.approx(expected, rel=1e-5)
    raw = {"rating": {**tasks["rating"], "normalize": False}}
    plain = build_network(suite.config("fm", raw), suite.SCHEMA, None, {"rating": (3000.0, 200.0)})
    np.testing.assert_array_equal(plain.predict(data)["rating"], plain.forward(data)["rating"][:, 0])


def test_the_scale_of_a_label_is_kept_with_the_weights_and_not_trained():
    net = build_network(
        suite.config("fm", {"rating": "regression"}), suite.SCHEMA, None, {"rating": (7.0, 0.0)}
    )
    named = net.named_variables()
    scale = {name: float(named[f"label_scale/{name}"]) for name in ("mean", "deviation")}
    assert scale == {"mean": 7.0, "deviation": 1.0}  # a label that never changes
    trained = {id(variable) for variable in net.trainable_variables}
    assert not trained & {id(named[f"label_scale/{name}"]) for name in scale}
