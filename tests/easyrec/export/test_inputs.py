"""Columns of any type become the tensors of the signatures, or are refused with the row and the value."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from easyrec.errors import DataError, SchemaError
from easyrec.export import inputs
from easyrec.export.frames import as_table
from easyrec.export.inputs import MISSING_INT, blocks, to_tensors
from easyrec.export.manifest import InputEntry


def entry(kind: str, **options: Any) -> InputEntry:
    return InputEntry.model_validate(
        {"name": "x", "column": "x", "tensor": "x", "kind": kind, "side": "user"} | options
    )


def convert(values: Any, kind: str, **options: Any) -> Any:
    array = to_tensors(as_table({"x": values}), [entry(kind, **options)])["x"]
    return array.tolist()


@pytest.mark.parametrize(
    "values",
    [
        [3, None],
        ["3", None],
        [" 3 ", ""],
        [3.0, float("nan")],
        pd.Series([3, pd.NA], dtype="Int64"),
        pd.Series(["3", None], dtype="string"),
        pd.Series(["3", None], dtype="category"),
        pa.array(["3", None]).dictionary_encode(),
        pa.array([3, None], pa.uint8()),
    ],
)
def test_whole_numbers(values: Any) -> None:
    assert convert(values, "int") == [3, MISSING_INT]


@pytest.mark.parametrize(
    "values", [["3", None], [3, None], [3.0, None], pa.array(["3", None], pa.large_string())]
)
def test_text(values: Any) -> None:
    assert convert(values, "string") == ["3", ""]


@pytest.mark.parametrize("values", [[3, None], [3.0, None], ["3", None], [" 3.0", ""]])
def test_numbers(values: Any) -> None:
    found = convert(values, "float", role="number")
    assert found[0] == 3
    assert np.isnan(found[1])


def test_times_and_truth_are_whole_numbers() -> None:
    assert convert([True, False], "int") == [1, 0]
    assert convert([datetime.datetime(1970, 1, 2)], "int") == [86_400]


@pytest.mark.parametrize("values", [[[1, 2], None, [], [3]], [np.array([1, 2]), None, np.array([]), [3]]])
def test_lists_are_padded(values: Any) -> None:
    assert convert(values, "int", list=True) == [
        [1, 2],
        [MISSING_INT] * 2,
        [MISSING_INT] * 2,
        [3, MISSING_INT],
    ]
    assert convert([["a", None], ["b"]], "string", list=True) == [["a", ""], ["b", ""]]
    assert convert(pa.array([], pa.list_(pa.int64())), "int", list=True) == []
    assert convert([None, None], "string", list=True) == [[], []]


def test_maps_are_two_lists() -> None:
    column = pa.array([[("a", 0.5)], None, [("b", 1.0), ("c", 2.0)]], pa.map_(pa.string(), pa.float64()))
    assert convert(column, "string", list=True, part="keys") == [["a", ""], ["", ""], ["b", "c"]]
    weights = convert(column, "float", list=True, part="items", role="number")
    assert [weights[0][0], *weights[2]] == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("values", "kind", "options", "message"),
    [
        (["3", "x"], "int", {}, "column 'x' has 'x' in row 1 .* trained on whole numbers"),
        (["3", "03"], "int", {}, "has '03' in row 1"),
        ([1.0, 2.5], "int", {"role": "number"}, "has 2.5 in row 1"),
        ([["1"], ["2", "x"]], "int", {"list": True}, "has 'x' in row 1 .* lists of whole numbers"),
        ([1.0, 2.5], "string", {}, "2.5 in row 1"),
        (["1", "x"], "float", {"role": "number"}, "'x' in row 1.*expected a number"),
        ([[1]], "int", {}, "one value a row"),
        ([1], "int", {"list": True}, "a list per row"),
        ([{"a": 1}], "int", {}, "type"),
    ],
)
def test_what_does_not_fit_is_refused(values: Any, kind: str, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        convert(values, kind, **options)


def test_a_missing_column_is_named_with_the_nearest() -> None:
    with pytest.raises(
        SchemaError, match=r"lack columns that the model reads: 'x' \(text\)\. Did you mean 'X'\?"
    ):
        to_tensors(pa.table({"X": [1]}), [entry("string")])


def test_lists_that_belong_together_have_equal_lengths() -> None:
    entries = [
        entry("string", list=True),
        entry("float", name="w", column="w", tensor="w", list=True, aligned_with="x"),
    ]
    with pytest.raises(DataError, match="has 1 values in row 1"):
        to_tensors(pa.table({"x": [["a"], ["b", "c"]], "w": [[1.0], [2.0]]}), entries)


def test_padding_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_BLOCK_CELLS", 8)
    table = pa.table({"x": [[0] * 5, [1], [2], [], [4] * 20, [5], [6]]})
    parts = list(blocks(table, [entry("int", list=True)], rows=4))
    assert pa.concat_tables(parts).equals(table)
    assert [len(part) for part in parts] == [1, 1, 2, 1, 2]
    assert [len(part) for part in blocks(table.slice(0, 0), [], rows=4)] == [0]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"a": [1], "b": [1, 2]}, "equally many rows"),
        ({"a": 3}, "single value 3"),
        ({"a": "abc"}, "single value 'abc'"),
        ({"a": [1, "b"]}, "'a' mixes types"),
        ({"a": [2**70]}, "'a' mixes types, or holds what no table can"),
        ([1, 2], "expected a pandas DataFrame"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns are called 'a'"),
        (pa.table([[1], [2]], names=["a", "a"]), "two columns are called 'a'"),
        ({"a": [1], 1: [2], "1": [3]}, "two columns are called '1'"),
    ],
)
def test_what_is_no_table_is_refused(frame: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        as_table(frame)
