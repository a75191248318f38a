"""The collection against plain NumPy: activations, gradients of rows, updates."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from easyrec.config.training import EmbeddingOptimizerConfig
from easyrec.data.prepared.records import RecordLayout
from easyrec.embedding.collection import EmbeddingCollection
from easyrec.embedding.lookup import _take
from easyrec.embedding.optimizers import row_optimizer
from easyrec.features.batch import EncodedBatch, RaggedColumn
from easyrec.features.coded_ids import dictionaries
from easyrec.features.outputs import FeatureSchema, IdsOutput

OUTPUTS = [
    IdsOutput("user", "user", 6, 2, "user"),
    IdsOutput("tags", "tags", 5, 2, "item", pooling="mean", weighted=True),
    IdsOutput("city", "city", 4, 3, "user"),
    IdsOutput("item", "item", 7, 2, "item"),
    IdsOutput("recent", "item", 7, 2, "user", pooling="mean", sequence=True, max_length=3),
]
BATCH = {
    "ids": np.array([[1, 0, 2], [1, 3, 2], [5, 3, 6]], np.int32),  # user, city, item
    "tags/values": np.array([4, 1, 1], np.int32),
    "tags/row_lengths": np.array([2, 0, 1], np.int32),
    "tags/weights": np.array([1.0, 3.0, 2.0], np.float32),
    "recent/values": np.array([2, 6, 2], np.int32),
    "recent/row_lengths": np.array([0, 1, 2], np.int32),
}


def tensors(batch=BATCH):
    return {key: tf.constant(value) for key, value in batch.items()}


def numbered(batch=BATCH):
    """The ids of a batch as shards hold them."""
    ragged = {
        name: RaggedColumn(
            batch[f"{name}/values"], batch[f"{name}/row_lengths"], batch.get(f"{name}/weights")
        )
        for name in ("tags", "recent")
    }
    encoded = EncodedBatch(3, {"ids": batch["ids"]}, ragged)
    layout = RecordLayout.of(encoded, dictionaries(FeatureSchema(tuple(OUTPUTS))))
    return layout.parse(tf.constant(layout.pack(encoded)))[1]


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def collection(request):
    made = EmbeddingCollection(OUTPUTS, linear_units=2, seed=1, shards=request.param)
    for key, table in made.tables.items():
        if key.startswith("linear"):
            table.write(0, np.random.default_rng(0).standard_normal((table.rows, 2)).astype(np.float32))
    return made


def weights(collection, kind, table):
    for own, place, key in collection.places():
        if own == kind and place.name == table:
            return collection.tables[key].read(place.offset, place.offset + place.rows)
    raise KeyError(table)


def test_activations_hold_the_rows_of_the_ids(collection):
    activations = collection(tensors())
    user, item = weights(collection, "embedding", "user"), weights(collection, "embedding", "item")
    np.testing.assert_array_equal(activations["embedding/2"][:, 0], user[[1, 1, 5]])
    np.testing.assert_array_equal(activations["embedding/2"][:, 1], item[[2, 2, 6]])
    city = weights(collection, "embedding", "city")
    np.testing.assert_array_equal(activations["embedding/3"], city[[0, 3, 3]][:, None])
    tags = weights(collection, "embedding", "tags")
    expected = [(tags[4] + 3 * tags[1]) / 4, np.zeros(2), tags[1]]
    np.testing.assert_allclose(activations["pooled/tags"], expected, rtol=1e-6)
    np.testing.assert_array_equal(activations["mask/recent"], [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    np.testing.assert_array_equal(activations["sequence/recent"][1, 0], item[2])
    np.testing.assert_array_equal(activations["sequence/recent"][2], [item[6], item[2], np.zeros(2)])
    linear = weights(collection, "linear", "item")
    np.testing.assert_array_equal(activations["linear/2"][:, 1], linear[[2, 2, 6]])
    np.testing.assert_allclose(
        activations["linear_pooled/recent"], [np.zeros(2), linear[2], (linear[6] + linear[2]) / 2], rtol=1e-6
    )
    assert "pooled/recent" not in activations


LOOKUPS = {
    "graph": lambda collection: collection.lookup(tensors()),
    "host": lambda collection: collection.host_lookup(BATCH),
    "numbered": lambda collection: collection.lookup(tensors(), numbered()),
}


@pytest.mark.parametrize("where", LOOKUPS)
def test_a_lookup_holds_each_id_once_and_leads_to_the_same_activations(collection, where):
    lookup = LOOKUPS[where](collection)
    ids = lookup["unique/2"].numpy()
    if where == "numbered":
        assert ids.tolist() == sorted(ids)
    assert sorted(ids) == sorted({1, 5, 11 + 2, 11 + 6, 6 + 4, 6 + 1})
    rows = collection.gather(lookup)
    assert rows["embedding/2"].shape == (6, 2)
    assert rows["linear/2"].shape == (6, 2)
    expected = collection(tensors())
    activations = collection.expand(rows, lookup)
    assert activations.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(activations[key], value)


def test_all_lookups_give_the_gradient_of_each_row(collection):
    gradients = []
    for lookup in (make(collection) for make in LOOKUPS.values()):
        rows = collection.gather(lookup)
        with tf.GradientTape() as tape:
            tape.watch(rows)
            activations = collection.expand(rows, lookup)
            loss = tf.add_n(
                [
                    tf.reduce_sum(tf.square(values)) * (place + 1)
                    for place, values in enumerate(activations.values())
                ]
            )
        gradients.append((lookup, tape.gradient(loss, rows)))
    (lookup, graph), *others = gradients
    for key, gradient in graph.items():
        assert isinstance(gradient, tf.Tensor)
        ids = lookup[f"unique/{key[-1]}"].numpy()
        for same, other in others:
            order, own = np.argsort(ids), np.argsort(same[f"unique/{key[-1]}"])
            np.testing.assert_array_equal(ids[order], same[f"unique/{key[-1]}"].numpy()[own])
            np.testing.assert_allclose(gradient.numpy()[order], other[key].numpy()[own], rtol=1e-5)
    # By hand: user 1 is in rows 0 and 1, its loss Σ w² twice, times 1 (the first activation).
    place = lookup["unique/2"].numpy().tolist().index(1)
    np.testing.assert_allclose(
        graph["embedding/2"][place], 2 * 2 * weights(collection, "embedding", "user")[1], rtol=1e-5
    )


@pytest.mark.parametrize(("left_out", "only"), [("recent", {2, 5}), ("item", {2, 6})])
def test_ids_of_features_that_are_left_out_are_not_among_the_distinct_ones(left_out, only):
    """Both use the table `item`: rows that are only in the other one must not be fetched, nor moved."""
    batch = {**BATCH, "ids": np.array([[1, 0, 2], [1, 3, 2], [5, 3, 5]], np.int32)}
    used = [output for output in OUTPUTS if output.feature not in (left_out, "tags", "city")]
    collection = EmbeddingCollection(used, batch_outputs=OUTPUTS)
    lookup = collection.lookup(tensors(batch), numbered(batch))
    [offset] = [table.offset for table in collection.groups[0].tables if table.name == "item"]
    assert set((lookup["unique/2"].numpy() - offset).tolist()) & {*range(7)} == only
    found, expected = (
        collection.expand(collection.gather(one), one) for one in (lookup, collection.lookup(tensors(batch)))
    )
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def test_tables_of_other_models_are_left_out_of_numbered_ids():
    used = [output for output in OUTPUTS if output.feature in ("recent", "item")]
    collection = EmbeddingCollection(used, batch_outputs=OUTPUTS)
    found = collection.lookup(tensors(), numbered())
    np.testing.assert_array_equal(found["unique/2"], [2, 6])
    np.testing.assert_array_equal(found["inverse/2"], [0, 0, 1, 0, 1, 0])


def test_an_update_moves_the_rows_used_and_no_other(collection):
    optimizer = row_optimizer(EmbeddingOptimizerConfig(type="sgd"))
    optimizer.build(collection.tables)
    before = {key: table.read().copy() for key, table in collection.tables.items()}
    lookup = collection.host_lookup(BATCH)
    rows = collection.gather(lookup)
    gradients = {key: tf.ones_like(values) for key, values in rows.items()}
    collection.apply_gradients(optimizer, lookup, rows, gradients, tf.constant(0.5))
    for key, table in collection.tables.items():
        moved = before[key] - table.read()
        used = lookup[f"unique/{key[-1]}"].numpy()
        np.testing.assert_allclose(moved[used], 0.5, rtol=1e-5)
        assert not np.delete(moved, used, axis=0).any()


def test_l2_adds_the_gradient_of_its_penalty_on_the_rows_used():
    collection = EmbeddingCollection(OUTPUTS[:1], seed=1, l2=0.1)
    optimizer = row_optimizer(EmbeddingOptimizerConfig(type="sgd"))
    optimizer.build(collection.tables)
    before = collection.tables["embedding/2"].read()
    lookup = collection.host_lookup({"ids": np.array([[1], [1], [4]], np.int32)})
    rows = collection.gather(lookup)
    assert float(collection.penalty(rows)) == pytest.approx(0.1 * float((before[[1, 4]] ** 2).sum()))
    zeros = {key: tf.zeros_like(values) for key, values in rows.items()}
    collection.apply_gradients(optimizer, lookup, rows, zeros, tf.constant(1.0))
    expected = before.copy()
    expected[[1, 4]] *= 1 - 2 * 0.1
    np.testing.assert_allclose(collection.tables["embedding/2"].read(), expected, rtol=1e-6)


def test_clipping_applies_to_each_row_with_the_penalty_included():
    collection = EmbeddingCollection(OUTPUTS[:1], seed=1)
    optimizer = row_optimizer(EmbeddingOptimizerConfig(type="sgd"))
    optimizer.build(collection.tables)
    before = collection.tables["embedding/2"].read()
    lookup = collection.host_lookup({"ids": np.array([[1], [4]], np.int32)})
    rows = collection.gather(lookup)
    gradients = {"embedding/2": tf.constant([[30.0, 40.0], [0.3, 0.4]])}
    collection.apply_gradients(optimizer, lookup, rows, gradients, tf.constant(1.0), clip_norm=5.0)
    moved = before - collection.tables["embedding/2"].read()
    np.testing.assert_allclose(moved[[1, 4]], [[3, 4], [0.3, 0.4]], rtol=1e-5)


def test_a_batch_of_empty_lists_gives_zeros_and_changes_nothing():
    collection = EmbeddingCollection([OUTPUTS[1], OUTPUTS[4]], linear_units=1)
    optimizer = row_optimizer(EmbeddingOptimizerConfig())
    optimizer.build(collection.tables)
    empty = {
        **{f"{name}/values": np.zeros(0, np.int32) for name in ("tags", "recent")},
        **{f"{name}/row_lengths": np.zeros(2, np.int32) for name in ("tags", "recent")},
        "tags/weights": np.zeros(0, np.float32),
    }
    before = collection.tables["embedding/2"].read()
    lookup = collection.host_lookup(empty)
    rows = collection.gather(lookup)
    with tf.GradientTape() as tape:
        tape.watch(rows)
        activations = collection.expand(rows, lookup)
        loss = tf.add_n([tf.reduce_sum(value) for value in activations.values()])
    assert float(loss) == 0
    assert activations["sequence/recent"].shape == (2, 3, 2)
    gradients = tape.gradient(loss, rows, unconnected_gradients="zero")
    collection.apply_gradients(optimizer, lookup, rows, gradients, tf.constant(1.0))
    np.testing.assert_array_equal(collection.tables["embedding/2"].read(), before)


def test_reset_gives_the_first_values_again(collection):
    fresh = weights(collection, "embedding", "item").copy()
    for table in collection.tables.values():
        table.write(0, np.ones((table.rows, table.dim), np.float32))
    collection.reset()
    np.testing.assert_array_equal(weights(collection, "embedding", "item"), fresh)
    assert not weights(collection, "linear", "item").any()


@pytest.mark.parametrize("width", [1, 16, 40])
@pytest.mark.parametrize("ids", [[], [3], [5, 2, 5, 5, 2, 0]])
def test_gradients_of_rows_are_the_sums_over_their_places(ids, width):
    unique, inverse = tf.unique(tf.constant(ids, tf.int32))
    rows = tf.random.stateless_normal([int(unique.shape[0]), width], [1, 2])
    upstream = tf.random.stateless_normal([len(ids), width], [3, 4])
    with tf.GradientTape() as tape:
        tape.watch(rows)
        laid_out = _take(rows, inverse)
    found = tape.gradient(laid_out, rows, output_gradients=upstream)
    expected = np.zeros(rows.shape, np.float32)
    np.add.at(expected, inverse.numpy(), upstream.numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
