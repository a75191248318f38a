"""From files to chunks: joins, labels, weights, filters, and what is left out and counted."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from easyrec.config.columns import ColumnInfo
from easyrec.data.bound import BoundDataset
from easyrec.data.dataset import open_dataset, peek_columns
from easyrec.errors import ConfigError, DataError, SchemaError

Write = Callable[..., str]
Bind = Callable[..., BoundDataset]
KEYS = {"keys": {"user": "user", "item": "item", "time": "time"}}
LOG = {
    "user": [1, 1, 2, 2, 3],
    "item": ["a", "b", "a", "c", "b"],
    "time": [1, 2, 1, 2, 1],
    "rating": [5.0, 2.0, None, 4.0, 1.0],
    "label": [1, 0, 1, 1, 0],
}


def rows(chunks: Any) -> list[dict[str, Any]]:
    return [row for chunk in chunks for row in chunk.to_pylist()]


def column(chunks: Any, name: str) -> list[Any]:
    return [row[name] for row in rows(chunks)]


def test_tables_are_joined_on_their_key(write: Write, bind: Bind) -> None:
    items = write({"item": ["c", "a"], "genre": [["x"], ["y", "z"]], "year": [None, 1999]}, "items.parquet")
    users = write({"user": [3, 1, 2], "city": ["Bonn", "Köln", None]}, "users.parquet")
    data = bind(
        {"train": write(LOG), **KEYS, "tables": {"item": items, "user": users}},
        {"user": {"type": "id"}, "item": {"type": "id"}, "genre": {"type": "tags"}, "city": {"type": "id"}},
    )
    assert data.columns["genre"] == ColumnInfo("genre", "list<string>", "item")
    assert data.columns["city"] == ColumnInfo("city", "string", "user")
    chunk = next(data.train.chunks())
    assert set(chunk.column_names) == {"user", "item", "time", "genre", "city", "label/label"}
    assert chunk.column("genre").to_pylist() == [["y", "z"], None, ["y", "z"], ["x"], None]
    assert chunk.column("city").to_pylist() == ["Köln", "Köln", None, None, "Bonn"]
    assert chunk.column("label/label").type == pa.float32()
    list(data.train.chunks())
    assert data.report.as_dict()["train"] == {
        "rows_read": 5, "rows_used": 5, "dropped": {}, "unmatched": {"item": 2, "user": 0}, "negatives": 0
    }  # fmt: skip
    assert data.items.column("item").to_pylist() == ["c", "a"]


def test_keys_of_different_types_are_compared_as_text(write: Write, bind: Bind) -> None:
    users = write({"user": ["1", "3"], "city": ["Köln", "Bonn"]}, "users.parquet")
    data = bind(
        {"train": write(LOG), **KEYS, "tables": {"user": users}},
        {"user": {"type": "id"}, "city": {"type": "id"}},
    )
    assert column(data.train.chunks(), "city") == ["Köln", "Köln", None, None, "Bonn"]
    assert any(
        "key 'user': int in the interactions, string in the user table" in note for note in data.report.notes
    )


@pytest.mark.parametrize("keys", [[5, 10**15, 7], [5, 6, 7], ["5", "x", "7"]])
def test_keys_are_found_whether_they_are_dense_sparse_or_text(
    write: Write, bind: Bind, keys: list[Any]
) -> None:
    items = write({"item": keys, "value": ["p", "q", "r"]}, "items.parquet")
    log = {"item": [keys[2], keys[0], keys[1], keys[0]], "label": [0, 1, 0, 1]}
    data = bind(
        {"train": write(log), "keys": {"item": "item"}, "tables": {"item": items}}, {"value": {"type": "id"}}
    )
    assert column(data.train.chunks(), "value") == ["r", "p", "q", "p"]


def test_a_table_with_a_key_twice_is_refused_naming_it(write: Write, bind: Bind) -> None:
    items = write({"item": ["a", "b", "b", "c"], "year": [1, 2, 3, 4]}, "items.parquet")
    with pytest.raises(DataError, match=r"1 keys more than once; the first is item 'b', in rows 2 and 3"):
        bind({"train": write(LOG), **KEYS, "tables": {"item": items}})


def test_a_table_without_the_key_is_refused_naming_the_nearest(write: Write, bind: Bind) -> None:
    items = write({"itme": ["a"]}, "items.parquet")
    with pytest.raises(SchemaError, match=r"the item table .* has no column 'item'.*Did you mean 'itme'"):
        bind({"train": write(LOG), **KEYS, "tables": {"item": items}})
    with pytest.raises(ConfigError, match=r"data\.tables\.item is joined on `data\.keys\.item`"):
        bind({"train": write(LOG), "tables": {"item": items}})


def test_rows_without_a_key_are_left_out_and_counted(write: Write, bind: Bind) -> None:
    log = {"user": [1, None, 2, None], "item": ["a", "b", None, None], "label": [0, 1, 1, 0]}
    data = bind(
        {"train": write(log), "keys": {"user": "user", "item": "item"}, "split": None},
        {"user": {"type": "id"}},
        tasks={"label": {"type": "regression"}},
    )
    assert column(data.train.chunks(), "user") == [1]
    assert data.report.as_dict()["train"]["dropped"] == {
        "no value in key column 'user'": 2, "no value in key column 'item'": 1
    }  # fmt: skip


def test_only_rows_for_which_the_filter_holds_are_used(write: Write, bind: Bind) -> None:
    items = write({"item": ["a", "b", "c"], "year": [1990, 2000, None]}, "items.parquet")
    data = bind(
        {"train": write(LOG), **KEYS, "tables": {"item": items}, "where": "year >= 1995 or rating > 3"}
    )
    assert column(data.train.chunks(), "item") == ["a", "b", "c", "b"]
    assert data.report.as_dict()["train"]["dropped"] == {"`data.where` does not hold": 1}


# ---------------------------------------------------------------------------------------------------------- labels


def bound_label(write: Write, bind: Bind, values: Any, on_error: str = "fail", **task: Any) -> BoundDataset:
    values = values if isinstance(values, pa.Array) else pa.array(values)
    table = pa.table({"x": pa.array(range(len(values))), "y": values})
    task = {"type": "binary", **task}
    return bind({"train": write(table), "on_error": on_error}, {"x": {"type": "number"}}, tasks={"y": task})


@pytest.mark.parametrize(
    ("values", "task", "expected"),
    [
        ([True, False], {}, [1, 0]),
        (pa.array([0.0, 1.0], pa.float64()), {}, [0, 1]),
        (pa.array([3.5, None, 4.0, 5.0]), {"label": "y >= 4"}, [0, 1, 1]),
        (["no", "yes", None], {"label": "y == 'yes'"}, [0, 1]),
        ([1.5, -2.0], {"type": "regression"}, [1.5, -2.0]),
        ([0, 2, 1], {"type": "multiclass", "classes": 3}, [0, 2, 1]),
    ],
)
def test_labels_are_columns_or_expressions(
    write: Write, bind: Bind, values: Any, task: Any, expected: list[float]
) -> None:
    data = bound_label(write, bind, values, **task)
    assert column(data.train.chunks(columns=["label/y"]), "label/y") == expected
    nulls = sum(value is None for value in (values.to_pylist() if isinstance(values, pa.Array) else values))
    dropped = {"no label of task 'y'": nulls} if nulls else {}
    assert data.report.as_dict()["train"]["dropped"] == dropped


def test_a_comparison_that_is_never_true_shows_what_the_column_holds(write: Write, bind: Bind) -> None:
    data = bound_label(write, bind, ["no", "yes", None], label="y == 'Yes'")
    with pytest.raises(
        DataError, match=r"all 2 training rows have label 0.*The column 'y' holds 'no', 'yes'\."
    ):
        list(data.train.chunks(columns=["label/y"]))


def test_rows_left_out_are_told_in_words(write: Write, bind: Bind, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n1,0\n2,1\n3,\n4,1,9\n")
    data = bind(
        {"train": str(tmp_path / "rows.csv"), "on_error": "skip"},
        {"x": {"type": "number"}},
        tasks={"y": "binary"},
    )
    list(data.train.chunks())
    counted, unread = data.report.left_out()
    assert counted == "train: 1 of 3 rows were left out: no label of task 'y' (1)"
    assert unread.startswith("train: left out a row that could not be read: ")
    assert "rows.csv, line 5: too many cells" in unread


def test_a_pass_knows_the_mean_and_deviation_of_a_number(write: Write, bind: Bind) -> None:
    data = bound_label(write, bind, [1.0, None, 4.0, 7.0], type="regression")
    for _ in range(2):  # each pass begins anew
        list(data.train.chunks(columns=["label/y"]))
        moments = data.train.labels[0].moments
        assert (moments.count, moments.mean, moments.deviation) == (3, 4.0, pytest.approx(6**0.5))


def test_a_retrieval_task_without_a_label_takes_every_row(write: Write, bind: Bind) -> None:
    data = bind({"train": write(LOG), **KEYS}, tasks={"chosen": {"type": "retrieval"}}, model="two_tower")
    assert column(data.train.chunks(), "label/chosen") == [1.0] * 5
    counts = {"chosen": {"type": "retrieval", "label": "rating"}}
    data = bind({"train": write(LOG), **KEYS}, tasks=counts, model="two_tower")
    assert column(data.train.chunks(), "label/chosen") == [5.0, 2.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("values", "task", "message"),
    [
        ([0, 1, 2, 3.5], {}, r"2 in .*row 3; 3\.5 in .*row 4\. A binary label is 0 or 1.*`label: y >= 4`"),
        ([0.0, 1.0, float("nan")], {}, r"NaN in .*row 3"),
        (
            [0, 1, 3],
            {"type": "multiclass", "classes": 3},
            r"3 in .*row 3\. A label is a whole number from 0 to 2",
        ),
        ([0.0, float("inf")], {"type": "regression"}, r"inf in .*row 2\. A label is a finite number"),
    ],
)
def test_wrong_labels_are_refused_or_left_out(
    write: Write, bind: Bind, values: Any, task: Any, message: str
) -> None:
    data = bound_label(write, bind, values, **task)
    with pytest.raises(DataError, match=message):
        list(data.train.chunks())
    data = bound_label(write, bind, values, on_error="skip", **task)
    kept = column(data.train.chunks(columns=["label/y"]), "label/y")
    assert kept == [value for value in values[:2] if np.isfinite(value)]
    assert data.report.as_dict()["train"]["dropped"] == {"wrong label of task 'y'": len(values) - len(kept)}


def test_text_is_no_label(write: Write, bind: Bind) -> None:
    with pytest.raises(ConfigError, match=r"a label is a number.* text; compare it, such as `y == 'yes'`"):
        bound_label(write, bind, ["0", "1"])


def test_labels_of_one_class_end_the_first_pass(write: Write, bind: Bind) -> None:
    data = bound_label(write, bind, [1, 1, 1])
    with pytest.raises(DataError, match=r"task 'y': all 3 training rows have label 1 .*`data\.negatives`"):
        list(data.train.chunks())
    data = bound_label(write, bind, [2, 2], type="multiclass", classes=3)
    with pytest.raises(DataError, match=r"task 'y': all 2 training rows have label 2 "):
        list(data.train.chunks())
    data = bound_label(write, bind, [1, 2], type="multiclass", classes=3)
    assert len(list(data.train.chunks())) == 1
    data = bound_label(write, bind, [3, 3], type="regression")
    assert len(list(data.train.chunks())) == 1
    data = bound_label(write, bind, pa.array([None, None], pa.int64()))
    with pytest.raises(DataError, match=r"no training rows are left of 2 \(no label of task 'y': 2\)"):
        list(data.train.chunks())


def test_weights_are_checked(write: Write, bind: Bind) -> None:
    log = {"x": [1, 2, 3], "y": [0, 1, 1], "w": [0.5, 0.0, 2.0]}
    config: Any = ({"x": {"type": "number"}},)
    tasks = {"tasks": {"y": {"type": "binary"}}}
    data = bind({"train": write(log), "weight": "w * 2"}, *config, **tasks)
    assert column(data.train.chunks(), "weight") == [1.0, 0.0, 4.0]
    for wrong, shown in ((-1.0, "-1"), (None, "null"), (float("inf"), "inf")):
        path = write({**log, "w": [0.5, wrong, 2.0]})
        with pytest.raises(DataError, match=rf"the sample weight has wrong values: {shown} in .*row 2"):
            list(bind({"train": path, "weight": "w"}, *config, **tasks).train.chunks())
        data = bind({"train": path, "weight": "w", "on_error": "skip"}, *config, **tasks)
        assert column(data.train.chunks(), "weight") == [0.5, 2.0]


# ------------------------------------------------------------------------------------------------------ evaluation


def test_evaluation_columns_take_the_training_types(write: Write, bind: Bind) -> None:
    train = write({"x": [1, 2], "s": pa.array(["a", "b"]).dictionary_encode(), "label": [0, 1]})
    test = write({"s": ["c"], "x": [2.5], "label": [True], "more": [1]}, "eval.parquet")
    with pytest.raises(
        SchemaError, match=r"column 'label' is int in the training data .*, but bool in the evaluation data"
    ):
        bind({"train": train, "eval": test}, {"x": {"type": "number"}})
    test = write({"s": ["c"], "x": [2.5], "label": [1.0], "more": [1]}, "eval.parquet")
    data = bind({"train": train, "eval": test}, {"x": {"type": "number"}, "s": {"type": "id"}})
    assert next(data.train.chunks()).schema == next(data.eval.chunks()).schema
    assert rows(data.eval.chunks()) == [{"x": 2.5, "s": "c", "label/label": 1.0}]
    test = write({"x": ["2"], "label": [1]}, "eval.parquet")
    with pytest.raises(
        SchemaError,
        match=r"column 'x' is int in the training data .*, but string in the evaluation data .*`x: string`",
    ):
        bind({"train": train, "eval": test}, {"x": {"type": "number"}})
    test = write({"xx": [2], "label": [1]}, "eval.parquet")
    with pytest.raises(SchemaError, match=r"the eval data .* have no column 'x'\. Did you mean 'xx'\?"):
        bind({"train": train, "eval": test}, {"x": {"type": "number"}})


def test_a_column_without_a_value_takes_the_type_its_feature_wants(write: Write, bind: Bind) -> None:
    train = write({"n": pa.nulls(2), "t": pa.nulls(2), "c": pa.nulls(2), "label": [0, 1]})
    data = bind({"train": train}, {"n": {"type": "number"}, "t": {"type": "tags"}, "c": {"type": "id"}})
    assert {name: data.columns[name].kind for name in "ntc"} == {
        "n": "float",
        "t": "list<string>",
        "c": "string",
    }
    assert rows(data.train.chunks(columns=["n", "t", "c"])) == [{"n": None, "t": None, "c": None}] * 2


def test_relevant_rows_are_those_with_a_label_or_those_of_a_condition(write: Write, bind: Bind) -> None:
    log = {**LOG, "user": [1, 1, 2, 2, 2], "item": ["a", "b", "a", "c", "c"], "label": [1, 0, 1, 0, 1]}
    data = bind({"train": write(LOG), "eval": write(log, "eval.parquet"), **KEYS})
    assert sorted(map(tuple, (row.values() for row in data.relevant().to_pylist()))) == [
        (1, "a", 1.0), (2, "a", 1.0), (2, "c", 1.0)
    ]  # fmt: skip
    data = bind(
        {"train": write(LOG), "eval": write(log, "eval.parquet"), **KEYS},
        evaluation={"relevant": "rating >= 4"},
    )
    assert sorted((row["user"], row["item"]) for row in data.relevant().to_pylist()) == [(1, "a"), (2, "c")]


# --------------------------------------------------------------------------------------------- snapshots, histories

SEQUENCE = {
    "user": {"type": "id"},
    "item": {"type": "id"},
    "mood": {"type": "id", "side": "user"},
    "price": {"type": "number", "side": "item"},
    "recent": {"type": "sequence", "of": "item", "max_length": 2},
    "liked": {"type": "sequence", "history": {"of": "item", "where": "rating >= 4", "last": 3}},
}
STORY = {
    "user": [1, 2, 1, 1, 1, 2],
    "item": ["a", "a", "b", "c", "a", "d"],
    "time": [1, 5, 2, 2, 3, None],
    "rating": [5, 5, 1, 4, 3, 5],
    "mood": ["good", "bad", "calm", "wild", None, "late"],
    "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "label": [1, 0, 1, 0, 1, 1],
}


def test_each_row_sees_what_its_user_did_strictly_before(write: Write, bind: Bind) -> None:
    data = bind({"train": write(STORY, row_group_size=2), **KEYS}, SEQUENCE)
    chunk = pa.concat_tables(data.train.chunks())
    assert chunk.column("recent").to_pylist() == [[], [], ["a"], ["a"], ["b", "c"], []]
    assert chunk.column("liked").to_pylist() == [[], [], ["a"], ["a"], ["a", "c"], []]
    shuffled = pa.concat_tables(data.train.chunks(seed=5))
    pairs = {(row["user"], row["item"], row["time"]): row["recent"] for row in shuffled.to_pylist()}
    assert pairs[1, "a", 3] == ["b", "c"]


def test_evaluation_rows_see_training_and_earlier_evaluation_rows_but_not_the_reverse(
    write: Write, bind: Bind
) -> None:
    later = {**STORY, "user": [1, 1, 3, 1, 2, 2], "item": list("uvwxyz"), "time": [2, 4, 1, 5, 1, 9]}
    data = bind({"train": write(STORY), "eval": write(later, "eval.parquet"), **KEYS}, SEQUENCE)
    assert column(data.eval.chunks(), "recent") == [["a"], ["u", "a"], [], ["a", "v"], [], ["y", "a"]]
    assert column(data.train.chunks(), "recent")[4] == ["b", "c"]


def test_a_snapshot_is_the_state_after_the_last_training_row(write: Write, bind: Bind) -> None:
    data = bind({"train": write(STORY), **KEYS}, SEQUENCE)
    assert data.user_snapshot().to_pylist() == [
        {"user": 1, "mood": None, "recent": ["c", "a"], "liked": ["a", "c"], "seen": ["a", "b", "c"]},
        {"user": 2, "mood": "bad", "recent": ["a"], "liked": ["a"], "seen": ["a", "d"]},
    ]
    chosen = data.user_snapshot(pa.array([2, 9]))
    assert chosen.column("user").to_pylist() == [2, 9]
    assert chosen.to_pylist()[1] == {"user": 9, "mood": None, "recent": [], "liked": [], "seen": []}
    assert data.items.to_pylist() == [
        {"item": "a", "price": 2.0}, {"item": "b", "price": 3.0},
        {"item": "c", "price": 4.0}, {"item": "d", "price": 6.0},
    ]  # fmt: skip


def test_users_without_training_rows_are_described_by_the_user_table(write: Write, bind: Bind) -> None:
    users = write({"user": [2, 9], "city": ["Bonn", "Ulm"]}, "users.parquet")
    data = bind(
        {"train": write(STORY), **KEYS, "tables": {"user": users}},
        {"user": {"type": "id"}, "city": {"type": "id"}},
    )
    assert data.user_snapshot(pa.array([9, 1, 2])).column("city").to_pylist() == ["Ulm", None, "Bonn"]


def test_times_of_any_kind_order_the_same(write: Write, bind: Bind) -> None:
    moments = [datetime.datetime(2024, 1, day) if day else None for day in (1, 5, 2, 2, 3, 0)]
    kinds: dict[str, Any] = {
        "s": pa.array(moments, pa.timestamp("s")),
        "ns": pa.array(moments, pa.timestamp("ns", "UTC")),
        "date": pa.array([moment and moment.date() for moment in moments]),
        "float": pa.array([1.0, 5.0, 2.0, 2.0, 3.0, float("nan")]),
    }
    for name, times in kinds.items():
        data = bind({"train": write({**STORY, "time": times}, f"{name}.parquet"), **KEYS}, SEQUENCE)
        assert column(data.train.chunks(), "recent") == [[], [], ["a"], ["a"], ["b", "c"], []], name


def test_what_is_made_once_is_kept_in_the_cache(write: Write, bind: Bind, tmp_path: Path) -> None:
    data = {"train": write(STORY), **KEYS}
    cache = tmp_path / "cache"
    first = pa.concat_tables(bind(data, SEQUENCE, cache=cache).train.chunks())
    made = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert made
    again = pa.concat_tables(bind(data, SEQUENCE, cache=cache).train.chunks())
    assert again.equals(first)
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == made


def test_a_file_is_opened_with_the_features_still_holding_patterns(write: Write, pipeline: Any) -> None:
    dataset = open_dataset(
        pipeline({"train": write({"I1": [1], "I2": [2], "label": [1]})}, {"I*": {"type": "number"}})
    )
    assert {name: info.kind for name, info in dataset.columns.items()} == {
        "I1": "int",
        "I2": "int",
        "label": "int",
    }


def test_a_look_at_the_columns_converts_and_keeps_nothing(
    write: Write, pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log.csv").write_text("user,item,label,empty\n1,a,1,\n2,b,0,\n")
    items = write({"item": ["a"], "year": [1999]}, "items.parquet")
    config = pipeline(
        {"train": str(tmp_path / "log.csv"), "keys": {"item": "item"}, "tables": {"item": items}},
        {"item": {"type": "id"}, "{empty,x*}": {"type": "number"}},
    )
    monkeypatch.setattr("easyrec.data.store.Store.build", None)
    assert peek_columns(config) == {
        "user": ColumnInfo("user", "int"),
        "item": ColumnInfo("item", "string"),
        "label": ColumnInfo("label", "int"),
        "empty": ColumnInfo("empty", "float"),
        "year": ColumnInfo("year", "int", "item"),
    }
    monkeypatch.undo()
    assert peek_columns(config) == open_dataset(config).columns


def test_whole_numbers_that_pandas_stored_as_floats_are_read_as_declared(write: Write, bind: Bind) -> None:
    path = write({"user": [1.0, float("nan"), 3.0], "label": [0, 1, 1]})
    source = {"path": path, "columns": {"user": "int64"}}
    data = bind(
        {"train": source, "keys": {"user": "user"}},
        {"user": {"type": "id"}},
        tasks={"label": {"type": "regression"}},
    )
    assert column(data.train.chunks(), "user") == [1, 3]
    assert data.report.as_dict()["train"]["dropped"] == {"no value in key column 'user'": 1}
