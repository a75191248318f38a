"""Ids as places among the distinct ones of their table: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from easyrec.data.prepared.records import RecordLayout
from easyrec.features.batch import EncodedBatch, RaggedColumn
from easyrec.features.coded_ids import Dictionary, code, decode, dictionaries
from easyrec.features.outputs import FeatureSchema, IdsOutput

SCHEMA = FeatureSchema(
    (
        IdsOutput("user", "user", 9, 2, "user"),
        IdsOutput("tags", "tags", 9, 2, "item", pooling="mean", weighted=True),
        IdsOutput("item", "item", 9, 2, "item"),
        IdsOutput("city", "city", 9, 3, "user"),
        IdsOutput("recent", "item", 9, 2, "user", pooling="mean", sequence=True, max_length=3),
        IdsOutput("before", "item", 9, 2, "user"),
    )
)


@st.composite
def batches(draw):
    count = draw(st.integers(0, 12))
    random = np.random.default_rng(draw(st.integers(0, 999)))
    ids = random.integers(0, 9, (count, 4), np.int32)
    lengths = [random.integers(0, 3, count, np.int32) for _ in range(2)]
    values = [random.integers(0, 9, length.sum(), np.int32) for length in lengths]
    weights = random.random(len(values[0]), np.float32)
    return EncodedBatch(
        count,
        {"ids": ids, "label/liked": ids[:, 0].astype(np.float32)},
        {"tags": RaggedColumn(values[0], lengths[0], weights), "recent": RaggedColumn(values[1], lengths[1])},
    )


def test_features_that_share_a_table_are_numbered_together():
    assert dictionaries(SCHEMA) == (
        Dictionary("user", (0,), ()),
        Dictionary("tags", (), ("tags",)),
        Dictionary("item", (1, 3), ("recent",)),
        Dictionary("city", (2,), ()),
    )


@settings(max_examples=60, deadline=None)
@given(batch=batches())
def test_places_lead_to_the_ids_and_each_distinct_one_is_there_once_in_order(batch):
    numbered = dictionaries(SCHEMA)
    coded, distinct, sizes = code(batch, numbered)
    ids, recent, tags = batch.dense["ids"], batch.ragged["recent"].values, batch.ragged["tags"].values
    own = [ids[:, 0], tags, np.concatenate([ids[:, 1], ids[:, 3], recent]), ids[:, 2]]
    assert sizes.tolist() == [len(set(values.tolist())) for values in own]
    np.testing.assert_array_equal(distinct, np.concatenate([np.unique(values) for values in own]))
    found = decode(coded, numbered, distinct, sizes).as_dict()
    for key, value in batch.as_dict().items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)
        assert found[key].dtype == value.dtype


@settings(max_examples=20, deadline=None)
@given(batch=batches())
def test_a_record_gives_back_ids_and_places_here_and_in_tensorflow(batch):
    layout = RecordLayout.of(batch, dictionaries(SCHEMA))
    assert RecordLayout.from_dict(layout.as_dict()) == layout
    record = layout.pack(batch)
    coded, distinct, sizes = code(batch, layout.dictionaries)
    tensors, parsed = layout.parse(tf.constant(record))
    unpacked = layout.unpack(record).as_dict()
    for key, value in batch.as_dict().items():
        np.testing.assert_array_equal(unpacked[key], value, err_msg=key)
        np.testing.assert_array_equal(tensors[key], value, err_msg=key)
    np.testing.assert_array_equal(parsed.distinct, distinct)
    np.testing.assert_array_equal(parsed.sizes, sizes)
    np.testing.assert_array_equal(parsed.places["ids"], coded.dense["ids"])
    np.testing.assert_array_equal(parsed.places["recent"], coded.ragged["recent"].values)


def test_the_empty_record_has_no_rows_and_no_ids():
    layout = RecordLayout.of(_empty(), dictionaries(SCHEMA))
    assert layout.unpack(layout.empty).num_rows == 0
    tensors, parsed = layout.parse(tf.constant(layout.empty))
    assert tensors["ids"].shape == (0, 4)
    assert tf.size(parsed.distinct) == 0


def _empty() -> EncodedBatch:
    none = np.empty(0, np.int32)
    return EncodedBatch(
        0,
        {"ids": np.empty((0, 4), np.int32)},
        {"tags": RaggedColumn(none, none, np.empty(0, np.float32)), "recent": RaggedColumn(none, none)},
    )
