"""Which id and which number a value becomes. A change here changes every stored model: it has to be meant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from easyrec.features.batch import EncodedBatch
from easyrec.features.encoder import Encoder
from tests.easyrec.features.conformance import kinds_of, pipeline

INTS = pa.list_(pa.int64())
TEXTS = pa.list_(pa.string())


def encode(
    features: dict[str, Any], train: dict[str, Any], rows: dict[str, Any] | None = None
) -> EncodedBatch:
    table = pa.table(train)
    encoder = Encoder(pipeline(features), kinds_of(table)).fit([table])
    return encoder.encode_table(table if rows is None else pa.table(rows))


def ids(config: dict[str, Any], train: Any, rows: Any) -> list[int]:
    return encode({"f": {"type": "id", **config}}, {"f": train}, {"f": rows}).dense["ids"][:, 0].tolist()


def lists(batch: EncodedBatch, feature: str = "f") -> list[list[int]]:
    column = batch.ragged[feature]
    return [column.values[a:b].tolist() for a, b in zip(column.splits[:-1], column.splits[1:], strict=True)]


# Published examples of BigQuery's FARM_FINGERPRINT, which is the same function, as signed 64-bit integers.
FINGERPRINTS = {
    "1footrue": -1541654101129638711,
    "2applefalse": 2794438866806483259,
    "3true": -4880158226897771312,
}


@pytest.mark.parametrize("buckets", [2, 1000, 2**31 - 2])
def test_hash_is_farmhash_fingerprint64(buckets: int) -> None:
    expected = [1 + value % 2**64 % buckets for value in FINGERPRINTS.values()]
    assert ids({"vocabulary": {"buckets": buckets}}, ["x"], [*FINGERPRINTS, None, ""]) == [*expected, 0, 0]


def test_fitted_ids_are_ordered_by_count_then_text() -> None:
    train = ["b", "a", "c", "b", None, "", "ä", "B"]
    assert ids({}, train, ["b", "B", "a", "c", "ä", "new", None, ""]) == [2, 3, 4, 5, 6, 1, 0, 0]


def test_integers_and_their_text_have_the_same_ids() -> None:
    values = [9, 10, 9, 10, -1, 100, 7, 7, 7]
    text = [str(value) for value in values]
    expected = [4, 3, 4, 3, 5, 6, 2, 2, 2]  # 7 thrice; then "10" before "9"; then "-1" before "100"
    for train in (pa.array(values), pa.array(text)):
        for rows in (
            pa.array(values),
            pa.array(text),
            pa.array(values, pa.float64()),
            pa.array(values, pa.int16()),
        ):
            assert ids({}, train, rows) == expected


@pytest.mark.parametrize(
    "vocabulary",
    ["fitted", {"min_count": 2, "oov_buckets": 5}, [7, "9"], {"buckets": 11}, {"size": 50}],
    ids=str,
)
def test_training_on_integers_and_predicting_on_text_agree_for_every_vocabulary(vocabulary: Any) -> None:
    values = [7, 9, 9, 3, 49, 50, 123456789, -4, None]
    text = [None if value is None else str(value) for value in values]
    floats = pa.array(values, pa.float64())
    config = {"vocabulary": vocabulary}
    expected = ids(config, pa.array(values), pa.array(values))
    for train in (pa.array(values), pa.array(text), floats):
        for rows in (pa.array(values), pa.array(text), floats, pa.array(text).dictionary_encode()):
            assert ids(config, train, rows) == expected
    assert expected[-1] == 0


def test_text_that_is_not_the_decimal_form_is_another_value() -> None:
    assert ids({}, pa.array([3]), ["3", "3.0", "03", "+3", " 3", "3 "]) == [2, 1, 1, 1, 1, 1]


def test_unseen_values_are_hashed_to_the_buckets() -> None:
    found = ids({"vocabulary": {"oov_buckets": 1000}}, ["known"], [*FINGERPRINTS, "known", None])
    assert found == [*(1 + value % 2**64 % 1000 for value in FINGERPRINTS.values()), 1001, 0]


def test_min_count_and_max_size_cut_the_vocabulary() -> None:
    train = ["a"] * 3 + ["b"] * 2 + ["c"] * 2 + ["d"]
    assert ids({"vocabulary": {"min_count": 2}}, train, ["a", "b", "c", "d"]) == [2, 3, 4, 1]
    assert ids({"vocabulary": {"max_size": 2}}, train, ["a", "b", "c", "d"]) == [2, 3, 1, 1]
    assert ids({"vocabulary": {"min_count": 9}}, train, ["a", None]) == [1, 0]


def test_given_values_keep_their_order() -> None:
    assert ids({"vocabulary": ["x", 5, "a"]}, ["a"], ["x", "5", "a", "b", None]) == [2, 3, 4, 1, 0]
    assert ids({"vocabulary": ["x", 5, "a"]}, pa.array([5]), pa.array([5, 6, None])) == [3, 1, 0]


def test_plain_integers_are_shifted_by_two() -> None:
    rows = pa.array([0, 1, 9, 10, -1, None])
    assert ids({"vocabulary": {"size": 10}}, rows, rows) == [2, 3, 11, 1, 1, 0]


def test_a_cross_hashes_the_texts_with_the_unit_separator_between() -> None:
    batch = encode(
        {"f": {"type": "cross", "of": ["a", "b"], "buckets": 1000}},
        {"a": ["x", "x", None, ""], "b": pa.array([1, -20, 1, 1])},
    )
    expected = [1 + int(tf.strings.to_hash_bucket_fast(text, 1000)) for text in ("x\x1f1", "x\x1f-20")]
    assert batch.dense["ids"][:, 0].tolist() == [*expected, 0, 0]


def test_the_parts_of_a_cross_do_not_run_into_each_other() -> None:
    batch = encode(
        {"f": {"type": "cross", "of": ["a", "b"], "buckets": 10_000}}, {"a": ["ab", "a"], "b": ["c", "bc"]}
    )
    first, second = batch.dense["ids"][:, 0].tolist()
    assert first != second


def test_tags_split_strip_and_drop_empty_values() -> None:
    rows = ["a|b", " b | a ", "", "|", None, "a||z", "a a|b"]
    batch = encode({"f": {"type": "tags", "separator": "|"}}, {"f": ["a|a|b", "c"]}, {"f": rows})
    assert lists(batch) == [[2, 3], [3, 2], [], [], [], [2, 1], [1, 3]]


def test_a_separator_is_not_a_regular_expression() -> None:
    batch = encode({"f": {"type": "tags", "separator": ".*"}}, {"f": ["a.*b", "b"]}, {"f": ["a.*b", "a.b"]})
    assert lists(batch) == [[3, 2], [1]]


def test_weights_are_read_from_the_last_separator_and_malformed_ones_are_one() -> None:
    table = {"f": ["a:2|b:0.5", "a|a:x", "a:b:3", ":4", "a:-1e1", "a:inf", "a: 7 "]}
    config = {
        "f": {"type": "tags", "separator": "|", "weight_separator": ":", "vocabulary": ["a", "b", "a:b"]}
    }
    encoder = Encoder(pipeline(config), kinds_of(pa.table(table))).fit([])
    batch = encoder.encode_table(pa.table(table), count=True)
    assert lists(batch) == [[2, 3], [2, 2], [4], [], [2], [2], [2]]
    assert batch.ragged["f"].weights is not None
    assert batch.ragged["f"].weights.tolist() == [2.0, 0.5, 1.0, 1.0, 3.0, -10.0, 1.0, 7.0]
    assert encoder.coverage()["f"] | {"missing_share": 0} == {
        "rows": 7, "missing": 1, "values": 8, "unseen": 0, "malformed": 3, "dropped": 1,
        "missing_share": 0, "unseen_share": 0.0,
    }  # fmt: skip


def test_tags_keep_the_first_values_and_sequences_the_latest() -> None:
    cells = pa.array([[1, 2, 3, 4], [None, 1, 2, None], None], INTS)
    vocabulary = [1, 2, 3, 4]
    batch = encode(
        {
            "t": {"type": "tags", "column": "c", "max_length": 2, "vocabulary": vocabulary},
            "s": {"type": "sequence", "column": "c", "max_length": 2, "vocabulary": vocabulary},
        },
        {"c": cells},
    )
    assert lists(batch, "t") == [[2, 3], [2, 3], []]
    assert lists(batch, "s") == [[4, 5], [2, 3], []]


def test_a_map_gives_keys_and_weights() -> None:
    cells = pa.array([[("a", 1.5), ("b", None)], None, [("a", 2.0)]], pa.map_(pa.string(), pa.float32()))
    batch = encode({"f": {"type": "tags"}}, {"f": cells})
    assert lists(batch) == [[2, 3], [], [2]]
    assert batch.ragged["f"].weights is not None
    assert batch.ragged["f"].weights.tolist() == [1.5, 1.0, 2.0]


NUMBERS = [1.0, 2.0, 3.0, 6.0, None, math.nan, math.inf]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(x - 3) / math.sqrt(3.5) for x in (1, 2, 3, 6)] + [0, 0, 0]),
        ({"normalize": "minmax", "fill": 0.5}, [0, 0.2, 0.4, 1, 0.5, 0.5, 0.5]),
        ({"normalize": "log1p"}, [math.log(2), math.log(3), math.log(4), math.log(7), 0, 0, 0]),
        ({"normalize": "none", "fill": -1}, [1, 2, 3, 6, -1, -1, -1]),
    ],
    ids=["zscore", "minmax", "log1p", "none"],
)
def test_numbers(options: dict[str, Any], expected: list[float]) -> None:
    batch = encode({"f": {"type": "number", **options}}, {"f": NUMBERS})
    np.testing.assert_allclose(batch.dense["numbers"][:, 0], expected, rtol=1e-6, atol=1e-7)


def test_log1p_takes_negative_numbers_as_zero_and_counts_them() -> None:
    table = pa.table({"f": [-1.0, -0.0, 1.0, None, -math.inf]})
    encoder = Encoder(pipeline({"f": {"type": "number", "normalize": "log1p"}}), kinds_of(table)).fit([])
    numbers = encoder.encode_table(table, count=True).dense["numbers"][:, 0]
    np.testing.assert_allclose(numbers, [0, 0, math.log(2), 0, 0], rtol=1e-6)
    coverage = encoder.coverage()["f"]
    assert (coverage["negative"], coverage["missing"], coverage["infinite"]) == (1, 2, 1)


def test_a_bucket_begins_with_its_boundary() -> None:
    rows = {"f": [-5.0, 0.0, 0.05, 0.1, 3.0, 99.0, math.nan, math.inf, None]}
    batch = encode({"f": {"type": "number", "boundaries": [0, 0.1, 3]}}, {"f": [1.0]}, rows)
    assert batch.dense["ids"][:, 0].tolist() == [1, 2, 2, 3, 4, 4, 0, 0, 0]


def test_fitted_buckets_hold_equal_shares() -> None:
    batch = encode({"f": {"type": "number", "buckets": 4}}, {"f": list(range(100))})
    assert np.bincount(batch.dense["ids"][:, 0]).tolist() == [0, 25, 25, 25, 25]


@pytest.mark.parametrize("normalize", ["zscore", "minmax"])
def test_a_constant_number_becomes_zero_with_a_warning(normalize: str) -> None:
    table = pa.table({"f": [7.0, 7.0, None]})
    encoder = Encoder(pipeline({"f": {"type": "number", "normalize": normalize}}), kinds_of(table)).fit(
        [table]
    )
    assert encoder.encode_table(pa.table({"f": [7.0, 8.0, None]})).dense["numbers"].tolist() == [
        [0],
        [0],
        [0],
    ]
    assert encoder.warnings == ["feature 'f' is 7 in every row of the training data"]


def test_large_integers_are_normalised_exactly() -> None:
    start = 1_700_000_000
    batch = encode(
        {"f": {"type": "number", "normalize": "minmax"}}, {"f": pa.array([start, start + 1, start + 4])}
    )
    np.testing.assert_allclose(batch.dense["numbers"][:, 0], [0, 0.25, 1])


def test_outputs_stand_in_the_order_of_the_configuration() -> None:
    batch = encode(
        {
            "n2": {"type": "number", "column": "n", "normalize": "none"},
            "b": {"type": "id"},
            "n1": {"type": "number", "column": "m", "normalize": "none"},
            "a": {"type": "id", "vocabulary": {"size": 9}},
        },
        {"a": pa.array([5, 6]), "b": ["x", "y"], "n": [1.0, 2.0], "m": [3.0, 4.0]},
    )
    assert batch.dense["ids"].tolist() == [[2, 7], [3, 8]]
    assert batch.dense["numbers"].tolist() == [[1, 3], [2, 4]]
