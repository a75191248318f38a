"""The encoder as a whole: sharing, counts, coverage, chosen features, errors, export, a feature type from outside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from pydantic import Field, ValidationError

from easyrec.config.columns import ColumnInfo
from easyrec.config.features import FEATURES, FeatureConfig
from easyrec.errors import BundleError, ConfigError, DataError, EasyRecError, SchemaError
from easyrec.features.base import Counter, Transform
from easyrec.features.encoder import Encoder
from easyrec.features.inputs import InputSpec
from easyrec.features.outputs import IdsOutput, NumbersOutput
from easyrec.features.tensors import Tensor, missing
from tests.easyrec.features.conformance import check_feature, kinds_of, padded, pipeline, same

INTS = pa.list_(pa.int64())
TABLE = pa.table(
    {
        "user": pa.array([1, 2, 2, 3]),
        "item": ["a", "b", "a", None],
        "price": [1.0, 2.0, None, 4.0],
        "tags": ["x|y", "", "y", None],
        "recent": pa.array([["a"], ["b", "a", "a"], [], None], pa.list_(pa.string())),
    }
)
FEATURES_OF_TABLE: dict[str, Any] = {
    "user": {"type": "id", "side": "user"},
    "item": {"type": "id", "side": "item"},
    "price": {"type": "number", "side": "item"},
    "tags": {"type": "tags", "side": "item", "separator": "|"},
    "recent": {"type": "sequence", "side": "user", "of": "item", "max_length": 2},
}


def fitted(features: Mapping[str, Any] | None = None, table: pa.Table = TABLE, **data: Any) -> Encoder:
    return Encoder(pipeline(features or FEATURES_OF_TABLE, **data), kinds_of(table)).fit([table])


# Schema and inputs


def test_the_schema_tells_tables_rows_and_sides() -> None:
    encoder = fitted()
    item = IdsOutput("item", "item", 4, 16, "item")
    assert encoder.schema.outputs == (
        IdsOutput("user", "user", 5, 16, "user"),
        item,
        NumbersOutput("price", 1, "item"),
        IdsOutput("tags", "tags", 4, 16, "item", pooling="mean"),
        IdsOutput("recent", "item", 4, 16, "user", pooling="mean", sequence=True, max_length=2),
    )
    assert list(encoder.inputs.values()) == [
        InputSpec("user", "user", "int", "user", feature="user"),
        InputSpec("item", "item", "string", "item", feature="item"),
        InputSpec("price", "price", "float", "item", role="number", feature="price"),
        InputSpec("tags", "tags", "string", "item", feature="tags"),
        InputSpec("recent", "recent", "string", "user", True, feature="recent"),
    ]


def test_columns_may_be_given_as_column_infos() -> None:
    columns = {name: ColumnInfo(name, kind) for name, kind in kinds_of(TABLE).items()}  # type: ignore[arg-type]
    assert Encoder(pipeline(FEATURES_OF_TABLE), columns).fit([TABLE]).schema == fitted().schema


def test_only_the_columns_that_are_learned_from_are_read() -> None:
    features = {
        "user": {"type": "id", "vocabulary": {"size": 10}},
        "item": {"type": "id"},
        "log": {"type": "number", "column": "price", "normalize": "log1p"},
        "recent": {"type": "sequence", "of": "item"},
    }
    encoder = Encoder(pipeline(features), kinds_of(TABLE))
    assert encoder.fit_columns() == ["item"]
    assert encoder.fit_columns(counts=["user"]) == ["user", "item"]
    assert encoder.fit([TABLE.select(["item"])]).vocabulary("item").rows == 4


def test_nothing_to_learn_reads_nothing() -> None:
    def chunks() -> Iterator[pa.Table]:
        raise AssertionError("read")
        yield

    encoder = Encoder(pipeline({"user": {"type": "id", "vocabulary": {"size": 3}}}), {"user": "int"})
    assert encoder.fit_columns() == []
    assert encoder.fit(chunks()).schema.ids[0].rows == 5


# Sharing


def test_features_of_one_table_share_one_vocabulary() -> None:
    table = pa.table({"a": ["x", "y", "y"], "b": ["z", "x", None]})
    features = {"a": {"type": "id", "table": "t"}, "b": {"type": "id", "table": "t"}}
    encoder = fitted(features, table)
    assert encoder.vocabulary("a") is encoder.vocabulary("b")
    # x and y are there twice, z once
    assert encoder.encode_table(table).dense["ids"].tolist() == [[2, 4], [3, 2], [3, 0]]
    assert encoder.counts("a").tolist() == [0, 0, 1, 2, 0]
    assert encoder.counts("b").tolist() == [1, 0, 1, 0, 1]


def test_a_feature_may_name_the_table_of_another() -> None:
    table = pa.table({"a": ["x", "y"], "b": pa.array([["z"], ["x"]])})
    encoder = fitted({"a": {"type": "id"}, "b": {"type": "tags", "table": "a"}}, table)
    assert [output.table for output in encoder.schema.ids] == ["a", "a"]
    assert [output.rows for output in encoder.schema.ids] == [5, 5]


def test_a_sequence_may_stand_before_the_feature_it_is_of() -> None:
    features = {
        "recent": FEATURES_OF_TABLE["recent"],
        "item": {"type": "id", "table": "t", "embedding_dim": 4},
    }
    encoder = fitted(features)
    assert [(output.table, output.dim, output.rows) for output in encoder.schema.ids] == [("t", 4, 4)] * 2


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (
            {
                "user": {"type": "id", "table": "t", "vocabulary": {"min_count": 2}},
                "item": {"type": "id", "table": "t"},
            },
            "features.item.vocabulary .*'user' and 'item' share the table 't'",
        ),
        (
            {"user": {"type": "id", "table": "t", "embedding_dim": 3}, "item": {"type": "id", "table": "t"}},
            "features.item .*table 't' with 'user'.*dim differ: 16 and 3",
        ),
        (
            {"item": {"type": "id"}, "recent": {"type": "sequence", "of": "item", "embedding_dim": 3}},
            "features.recent.embedding_dim .*'item', which is 16 wide, got 3",
        ),
        ({"recent": {"type": "sequence", "of": "itme"}, "item": {"type": "id"}}, "Did you mean 'item'"),
        (
            {"price": {"type": "number", "buckets": 2, "table": "item"}, "item": {"type": "id"}},
            "their rows differ",
        ),
        ({"tags": {"type": "tags", "separator": "|", "weights": "price"}}, "features.tags.weights .*weight_separator"),
    ],
    ids=["vocabulary", "dim", "sequence dim", "sequence of nothing", "rows", "weights of text"],
)  # fmt: skip
def test_features_that_contradict_each_other(features: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fitted(features)


# Counts and coverage


def test_counts_by_id_are_known_for_fitted_vocabularies() -> None:
    assert fitted().counts("item").tolist() == [1, 0, 2, 1]
    assert fitted({"item": {"type": "id", "vocabulary": {"min_count": 2}}}).counts("item").tolist() == [
        1,
        1,
        2,
    ]


@pytest.mark.parametrize("vocabulary", [{"buckets": 5}, {"size": 10}, [1, 2]], ids=str)
def test_counts_by_id_of_other_vocabularies_are_taken_on_request(vocabulary: Any) -> None:
    config = pipeline({"user": {"type": "id", "vocabulary": vocabulary}})
    encoder = Encoder(config, {"user": "int"}).fit([TABLE.slice(0, 2), TABLE.slice(2)], counts=["user"])
    ids = encoder.encode_table(TABLE).dense["ids"][:, 0]
    assert encoder.counts("user").tolist() == np.bincount(ids, minlength=encoder.schema.ids[0].rows).tolist()
    with pytest.raises(SchemaError, match="not counted"):
        Encoder(config, {"user": "int"}).fit([TABLE]).counts("user")


def test_coverage_adds_up_over_chunks_and_threads() -> None:
    encoder = fitted()
    rows = pa.table(
        {
            "user": pa.array([1, 9, None, 2]),
            "item": ["a", None, "", "new"],
            "price": [None, 1.0, float("inf"), 2.0],
            "tags": ["x|new||", "", None, "y"],
            "recent": pa.array([["a", None, "b", "new"], [], None, ["a"]]),
        }
    )
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: encoder.encode_table(rows, count=True), range(5)))
    encoder.encode_table(rows)
    coverage = encoder.coverage()
    assert coverage["user"] == {
        "rows": 20,
        "missing": 5,
        "unseen": 5,
        "missing_share": 0.25,
        "unseen_share": 1 / 3,
    }
    assert coverage["item"] == {
        "rows": 20,
        "missing": 10,
        "unseen": 5,
        "missing_share": 0.5,
        "unseen_share": 0.5,
    }
    assert coverage["price"] == {"rows": 20, "missing": 10, "infinite": 5, "missing_share": 0.5}
    assert coverage["tags"] == {
        "rows": 20, "missing": 10, "dropped": 10, "values": 15, "unseen": 5,
        "missing_share": 0.5, "unseen_share": 1 / 3,
    }  # fmt: skip
    assert coverage["recent"] == {
        "rows": 20, "missing": 10, "dropped": 5, "cut": 5, "values": 15, "unseen": 5,
        "missing_share": 0.5, "unseen_share": 1 / 3,
    }  # fmt: skip
    assert json.loads(json.dumps(coverage)) == coverage
    encoder.reset_coverage()
    assert encoder.coverage() == {}


def test_coverage_warns_of_features_that_are_never_there() -> None:
    encoder = fitted()
    rows = pa.table({"user": pa.array([8, 9]), "item": ["a", "b"], "price": [1.0, 2.0], "tags": [None, ""],
                     "recent": pa.array([["a"], []])})  # fmt: skip
    encoder.encode_table(rows, count=True)
    assert encoder.coverage_warnings() == [
        "feature 'user' has only values that are not in its vocabulary",
        "feature 'tags' is missing in all 2 rows",
    ]


# Encoding


def test_labels_and_weights_are_taken_along() -> None:
    table = TABLE.append_column("label/y", pa.array([1, 0, 1, 0], pa.float32()))
    table = table.append_column("weight", pa.array([1.0, 2.0, 3.0, 4.0]))
    batch = fitted(weight="price").encode_table(table)
    assert batch.dense["label/y"].tolist() == [1, 0, 1, 0]
    assert batch.dense["weight"].tolist() == [1, 2, 3, 4]
    assert batch.dense["weight"].dtype == batch.dense["label/y"].dtype == np.float32
    assert "weight" not in fitted().encode_table(table).dense, "no sample weight is configured"


def test_chosen_features_need_only_their_columns() -> None:
    encoder = fitted()
    everything = encoder.encode_table(TABLE)
    item_side = [output.feature for output in encoder.schema.outputs if output.side == "item"]
    table = TABLE.select(["item", "price", "tags"])
    batch = encoder.encode_table(table, features=item_side)
    assert batch.dense["ids"].tolist() == everything.dense["ids"][:, 1:].tolist()
    assert batch.as_dict().keys() == {"ids", "numbers", "tags/values", "tags/row_lengths"}
    raw = {name: padded(table, encoder.inputs[name]) for name in ("item", "price", "tags")}
    same(encoder.encode(raw, features=item_side), batch.as_dict())
    only_numbers = encoder.encode({"price": raw["price"]}, ["price"])
    assert only_numbers["ids"].shape == (4, 0)
    only_lists = encoder.encode({"tags": raw["tags"]}, ["tags"])
    assert (only_lists["ids"].shape, only_lists["numbers"].shape) == ((4, 0), (4, 0))


def test_a_column_may_serve_several_features_in_several_roles() -> None:
    table = pa.table({"year": pa.array([1999, 2001, None, 1999])})
    encoder = fitted(
        {
            "year": {"type": "number", "normalize": "none"},
            "year_id": {"type": "id", "column": "year"},
            "year_bucket": {"type": "number", "column": "year", "boundaries": [2000]},
        },
        table,
    )
    assert encoder.inputs.keys() == {"year"}
    for rows in (table, pa.table({"year": ["1999", "2001", None, "1999"]})):
        batch = encoder.encode_table(rows)
        assert batch.dense["ids"].tolist() == [[2, 1], [3, 2], [0, 0], [2, 1]]
        assert batch.dense["numbers"].ravel().tolist() == [1999, 2001, 0, 1999]


def test_one_column_as_number_and_category_needs_whole_numbers() -> None:
    table = pa.table({"x": [1.0, 2.0]})
    with pytest.raises(
        ConfigError,
        match=r"features.i .*column 'x' as int, but the feature 'n'.*under .columns:. of its file",
    ):
        fitted({"n": {"type": "number", "column": "x"}, "i": {"type": "id", "column": "x"}}, table)


def test_an_exported_module_encodes_like_the_training_input(tmp_path: Path) -> None:
    encoder = fitted()
    module = tf.Module()
    signature = {
        name: tf.TensorSpec(
            [None, None] if spec.list else [None],
            {"string": tf.string, "int": tf.int64, "float": tf.float32}[spec.kind],
            name,
        )
        for name, spec in encoder.inputs.items()
    }
    module.encode = tf.function(lambda raw: encoder.encode(raw), autograph=False, input_signature=[signature])
    module.encode.get_concrete_function()
    module.tables = encoder.resources
    tf.saved_model.save(module, tmp_path / "model")
    loaded = tf.saved_model.load(tmp_path / "model")
    raw = {name: padded(TABLE, spec) for name, spec in encoder.inputs.items()}
    same(loaded.encode(raw), encoder.encode_table(TABLE).as_dict())


# Errors


@pytest.mark.parametrize(
    ("features", "kinds", "message"),
    [
        ({"usr": {"type": "id"}}, {"user": "int"}, r"feature 'usr': column 'usr' is not in the data\. .*'user'"),
        ({"x": {"type": "id"}}, {"x": "list<int>"}, r"'x' holds list<int>, expected one value a row.*tags"),
        ({"x": {"type": "number"}}, {"x": "string"}, r"'x' holds string, expected a number.*float64"),
        ({"x": {"type": "number"}}, {"x": "map"}, "holds map, expected a number"),
        ({"x": {"type": "tags"}}, {"x": "string"}, "holds string, expected a list.*separator"),
        ({"x": {"type": "tags"}}, {"x": "int"}, "holds int, expected a list.*type: id"),
        ({"x": {"type": "cross", "of": ["x", "y"], "buckets": 5}}, {"x": "int"}, "column 'y' is not in the data"),
        (
            {"x": {"type": "tags", "weights": "w"}},
            {"x": "list<int>", "w": "list<string>"},
            r"'w' holds list<string>, expected a list of numbers",
        ),
        (
            {"x": {"type": "tags", "weight_separator": ":"}}, {"x": "list<int>"}, r"weight_separator .*splits text",
        ),
    ],
)  # fmt: skip
def test_columns_of_the_wrong_kind(features: dict[str, Any], kinds: dict[str, str], message: str) -> None:
    with pytest.raises(EasyRecError, match=message):
        Encoder(pipeline(features), kinds)


@pytest.mark.parametrize(
    ("feature", "column"),
    [
        ({"type": "id"}, pa.array([None, ""], pa.string())),
        ({"type": "number"}, pa.array([None, float("nan")])),
        ({"type": "number", "buckets": 3}, pa.array([None, float("inf")])),
        ({"type": "tags"}, pa.array([None, [], [None]], INTS)),
        ({"type": "sequence"}, pa.array([None, [], [None]], INTS)),
    ],
    ids=["id", "number", "buckets", "tags", "sequence"],
)
def test_a_feature_that_is_missing_throughout_is_an_error_when_fitted(feature: Any, column: pa.Array) -> None:
    with pytest.raises(DataError, match=r"feature 'f': every value.* is missing.*check its `column`"):
        fitted({"f": feature}, pa.table({"f": column}))


def test_training_data_without_rows_are_an_error() -> None:
    for chunks in ([], [TABLE.slice(0, 0)]):
        with pytest.raises(DataError, match="no rows"):
            Encoder(pipeline(FEATURES_OF_TABLE), kinds_of(TABLE)).fit(chunks)


def test_an_encoder_that_is_not_fitted_says_so() -> None:
    encoder = Encoder(pipeline(FEATURES_OF_TABLE), kinds_of(TABLE))
    with pytest.raises(DataError, match="not fitted"):
        encoder.encode_table(TABLE)


def test_names_of_features_are_checked() -> None:
    encoder = fitted()
    for ask in (
        lambda: encoder.vocabulary("itme"),
        lambda: encoder.encode_table(TABLE, features=["itme"]),
        lambda: encoder.fit_columns(counts=["itme"]),
    ):
        with pytest.raises(EasyRecError, match=r"'itme' is not a feature\. Did you mean 'item'"):
            ask()
    with pytest.raises(SchemaError, match="'price' has no vocabulary"):
        encoder.vocabulary("price")
    with pytest.raises(SchemaError, match="the input 'user' is missing"):
        encoder.encode({})
    with pytest.raises(SchemaError, match="no feature was selected"):
        encoder.encode({}, features=[])


def test_data_that_do_not_fit_name_feature_row_and_value() -> None:
    encoder = fitted()
    with pytest.raises(DataError, match="feature 'price': column 'price' has 'dear' in row 1"):
        encoder.encode_table(TABLE.set_column(2, "price", pa.array(["1", "dear", "2", "3"])))
    with pytest.raises(SchemaError, match="'recent' is not in the data"):
        encoder.encode_table(TABLE.drop_columns(["recent"]))


# Vocabularies given in the configuration or in a file


def test_a_file_gives_values_in_order(tmp_path: Path) -> None:
    path = tmp_path / "values.txt"
    path.write_text("b\r\n\nä\na b", encoding="utf-8")
    features = {"item": {"type": "id", "vocabulary": {"path": str(path)}}}
    encoder = fitted(features)
    encoder.save(tmp_path / "features")
    path.unlink()
    loaded = Encoder.load(encoder.config, tmp_path / "features")
    table = pa.table({"item": ["a b", "ä", "b", "a"]})
    assert loaded.encode_table(table).dense["ids"].ravel().tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", "holds no value"),
        (b"a\nb\na\n", "'a' in line 3 and in line 1"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_files_that_give_no_vocabulary(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "values.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        fitted({"item": {"type": "id", "vocabulary": {"path": str(path)}}})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", "a"], "given twice"),
        ([1, "1"], "given twice"),
        (["a", ""], "means missing"),
    ],
)
def test_lists_that_give_no_vocabulary(values: list[Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        pipeline({"item": {"type": "id", "vocabulary": values}})


# Stored state


def test_stored_vocabularies_are_plain_parquet(tmp_path: Path) -> None:
    fitted({"item": {"type": "id", "table": "a/b"}}).save(tmp_path)
    table = pq.read_table(tmp_path / "vocabularies" / "a%2Fb.parquet")
    assert table.to_pydict() == {"value": ["a", "b"], "count": [2, 1]}


def test_counts_survive_storing(tmp_path: Path) -> None:
    encoder = fitted()
    encoder.save(tmp_path)
    assert Encoder.load(encoder.config, tmp_path).counts("item").tolist() == encoder.counts("item").tolist()


def test_the_fingerprint_tells_encoders_apart() -> None:
    base = fitted()
    assert base.fingerprint == fitted().fingerprint
    others = [
        fitted(
            {**FEATURES_OF_TABLE, "item": {"type": "id", "side": "item", "vocabulary": {"oov_buckets": 2}}}
        ),
        fitted({**FEATURES_OF_TABLE, "price": {"type": "number", "side": "item", "fill": 1}}),
        fitted(table=TABLE.set_column(1, "item", pa.array(["a", "c", "a", None]))),
        fitted(table=TABLE.set_column(2, "price", pa.array([1.0, 2.0, None, 5.0]))),
    ]
    assert len({encoder.fingerprint for encoder in (base, *others)}) == 5


def _change_fingerprint(folder: Path) -> None:
    content = json.loads((folder / "features.json").read_text())
    content["features"]["price"]["state"]["offset"] += 1
    (folder / "features.json").write_text(json.dumps(content))


def _change_vocabulary(folder: Path) -> None:
    pq.write_table(pa.table({"value": ["a", "z"], "count": [2, 1]}), folder / "vocabularies" / "item.parquet")


DAMAGE: dict[str, tuple[Any, str]] = {
    "no folder": (lambda folder: (folder / "features.json").unlink(), "no fitted features"),
    "half a file": (lambda folder: (folder / "features.json").write_text('{"version":'), "cannot be read"),
    "not an object": (lambda folder: (folder / "features.json").write_text("[]"), "version None"),
    "version": (lambda folder: (folder / "features.json").write_text('{"version": 99}'), "version 99"),
    "keys": (lambda folder: (folder / "features.json").write_text('{"version": 1}'), "is damaged: it has no"),
    "vocabulary gone": (lambda folder: (folder / "vocabularies" / "item.parquet").unlink(), "miss the file"),
    "vocabulary cut": (
        lambda folder: (folder / "vocabularies" / "item.parquet").write_bytes(b"PAR1"), "cannot be read"
    ),
    "statistics changed": (_change_fingerprint, "fingerprint"),
    "vocabulary changed": (_change_vocabulary, "fingerprint"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_state_is_refused(damage: Any, message: str, tmp_path: Path) -> None:
    encoder = fitted()
    encoder.save(tmp_path)
    damage(tmp_path)
    with pytest.raises(BundleError, match=message):
        Encoder.load(encoder.config, tmp_path)


def test_state_of_other_features_is_refused(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    fewer = {name: FEATURES_OF_TABLE[name] for name in ("user", "item")}
    with pytest.raises(BundleError, match="these differ: price, recent, tags"):
        Encoder.load(pipeline(fewer), tmp_path)


# A feature type from outside


class RoundedConfig(FeatureConfig):
    """A number as a category, rounded."""

    type: Literal["rounded"] = "rounded"
    step: float = Field(1.0, gt=0)


class RoundedTransform(Transform[RoundedConfig]):
    """Ids of rounded numbers; the example of `easyrec.features.base`."""

    def __init__(self, config: RoundedConfig, scope: Any) -> None:
        super().__init__(config, scope)
        self.number = scope.number(config.column or scope.name)

    def inputs(self) -> tuple[InputSpec, ...]:
        return (self.number,)

    def output(self) -> IdsOutput:
        return IdsOutput(self.name, table=self.name, rows=101, dim=8, side=self.side)

    def transform(self, columns: Mapping[str, Tensor], count: Counter) -> Tensor:
        value = tf.cast(columns[self.number.name], tf.float32)
        absent = missing(columns[self.number.name])
        count("missing", absent)
        step = tf.clip_by_value(tf.round(value / self.config.step), 0, 99)
        return tf.where(absent, 0, 1 + tf.cast(step, tf.int32))


def test_a_feature_type_from_outside_keeps_the_rules(tmp_path: Path) -> None:
    FEATURES.register("rounded", RoundedConfig, RoundedTransform)
    try:
        train = pa.table({"f": [1.0, 2.0]})
        edge = pa.table({"f": [1.2, None, float("nan"), float("inf"), -3.0, 1e30, 49.9]})
        _, batch = check_feature({"f": {"type": "rounded", "step": 2.0}}, train, edge, tmp_path)
        assert batch.dense["ids"].ravel().tolist() == [2, 0, 0, 0, 1, 100, 26]
    finally:
        FEATURES.unregister("rounded")
