"""Arrow columns of every type in canonical form, and errors that name feature, column, row and value."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest

from easyrec.errors import DataError, SchemaError
from easyrec.features.columns import Column, check_aligned, read
from easyrec.features.inputs import InputSpec
from easyrec.features.tensors import column_tensor, values_tensor

DAY = 86_400


def spec(role: str = "category", *, many: bool = False, part: str = "values") -> InputSpec:
    return InputSpec("c", "c", "int", "context", many, role, part, feature="f")  # type: ignore[arg-type]


def values(array: Any, role: str = "category") -> list[Any]:
    column = read(pa.table({"c": array}), spec(role))
    assert column.splits is None
    return column.decoded.to_pylist()


def rows(array: Any, role: str = "category", part: str = "values") -> list[list[Any]]:
    column = read(pa.table({"c": array}), spec(role, many=True, part=part))
    assert column.splits is not None
    flat = column.decoded.to_pylist()
    return [flat[a:b] for a, b in zip(column.splits[:-1], column.splits[1:], strict=True)]


SCALARS = {
    "int8": (pa.array([1, None, -1], pa.int8()), [1, None, -1], [1, None, -1]),
    "uint32": (pa.array([1, None, 2**32 - 1], pa.uint32()), [1, None, 2**32 - 1], [1, None, 2**32 - 1]),
    "bool": (pa.array([True, None, False]), [1, None, 0], [1, None, 0]),
    "float64": (pa.array([1.0, None, -2.0]), [1, None, -2], [1.0, None, -2.0]),
    "float16": (pa.array([1.0, None, -2.0], pa.float16()), [1, None, -2], [1.0, None, -2.0]),
    "decimal": (pa.array([decimal.Decimal("3.00"), None]), [3, None], [3.0, None]),
    "date32": (pa.array([dt.date(1970, 1, 3), None]), [2 * DAY, None], [2 * DAY, None]),
    "date64": (pa.array([dt.date(1970, 1, 3), None], pa.date64()), [2 * DAY, None], [2 * DAY, None]),
    "timestamp": (pa.array([dt.datetime(1969, 12, 31, 23, 59, 58, 500_000), None]), [-2, None], [-2, None]),
    "zoned": (
        pa.array([dt.datetime(1970, 1, 1, 1)]).cast(pa.timestamp("ns", "Europe/Rome")), [3600], [3600]
    ),
    "text": (pa.array(["a", None, ""]), ["a", None, ""], None),
    "large text": (pa.array(["1", None, " 2.5 ", ""], pa.large_string()), ["1", None, " 2.5 ", ""],
                   [1.0, None, 2.5, None]),
    "text view": (pa.array(["1", None], pa.string_view()), ["1", None], [1.0, None]),
    "binary": (pa.array([b"\xff", None], pa.binary()), [b"\xff", None], None),
    "fixed binary": (pa.array([b"ab", None], pa.binary(2)), [b"ab", None], None),
    "dictionary": (pa.array(["7", None, "7"]).dictionary_encode(), ["7", None, "7"], [7.0, None, 7.0]),
    "dictionary of integers": (pa.array([7, None, 7]).dictionary_encode(), [7, None, 7], [7, None, 7]),
    "null": (pa.nulls(2), [None, None], [None, None]),
    "run-end": (pa.RunEndEncodedArray.from_arrays([2, 3], [5, 6]), [5, 5, 6], [5, 5, 6]),
}  # fmt: skip


@pytest.mark.parametrize(("array", "category", "number"), SCALARS.values(), ids=SCALARS)
def test_single_values(array: pa.Array, category: list[Any], number: list[Any] | None) -> None:
    assert values(array) == category
    if number is not None:
        assert values(array, "number") == number
        assert values(pa.chunked_array([array, array]), "number") == number + number


def test_an_integer_that_numpy_made_a_float_is_itself_again() -> None:
    assert values([2.0**53, float("nan"), -0.0]) == [2**53, None, 0]


LISTS = {
    "list": pa.array([[1, 2], None, [], [3]], pa.list_(pa.int64())),
    "large list": pa.array([[1, 2], None, [], [3]], pa.large_list(pa.int32())),
    "list view": pa.array([[1, 2], None, [], [3]], pa.list_view(pa.int64())),
    "floats": pa.array([[1.0, 2.0], None, [], [3.0]], pa.list_(pa.float64())),
    "dictionary": pa.array([["1", "2"], None, [], ["3"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
}


@pytest.mark.parametrize("array", LISTS.values(), ids=LISTS)
def test_lists(array: pa.Array) -> None:
    expected = [["1", "2"], [], [], ["3"]]
    for form, wanted in (
        (array, expected),
        (array.slice(1), expected[1:]),
        (array.slice(1, 2), expected[1:3]),
        (pa.chunked_array([array, array.slice(3), array.slice(0, 0)]), [*expected, ["3"]]),
    ):
        assert [[str(value) for value in row] for row in rows(form)] == wanted


def test_fixed_size_lists() -> None:
    array = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    assert rows(array) == [[1, 2], [], [3, 4]]
    assert rows(array.slice(1)) == [[], [3, 4]]


def test_a_null_list_that_spans_values_is_empty() -> None:
    array = pa.ListArray.from_arrays(
        pa.array([0, 2, 3, 5]), pa.array([1, 2, 3, 4, 5]), mask=pa.array([True, False, False])
    )
    assert rows(array) == [[], [3], [4, 5]]
    assert rows(array.slice(1)) == [[3], [4, 5]]


def test_maps_have_keys_and_items() -> None:
    array = pa.array([[("a", 1.5)], None, [], [("b", None), ("c", 2.0)]], pa.map_(pa.string(), pa.float64()))
    assert rows(array, part="keys") == [["a"], [], [], ["b", "c"]]
    assert rows(array.slice(3), "number", "items") == [[None, 2.0]]


def test_a_column_without_a_type_is_missing_throughout() -> None:
    assert rows(pa.nulls(3)) == [[], [], []]


ERRORS: dict[str, tuple[Any, InputSpec, str]] = {
    "fraction as a category": (
        [1.0, 2.5], spec(), "feature 'f': column 'c' has 2.5 in row 1 .*expected a whole number or text"
    ),
    "infinity as a category": ([1.0, float("inf")], spec(), "has inf in row 1"),
    "integer beyond int64": (pa.array([1, 2**63], pa.uint64()), spec(), f"has {2**63} in row 1"),
    "text as a number": (["1", None, "many"], spec("number"), "has 'many' in row 2 .*expected a number"),
    "text in lists of numbers": (
        [["1"], [], ["2", "x"]], spec("number", many=True), "has 'x' in row 2 .*chunk of 3"
    ),
    "list for a single value": ([[1]], spec(), "holds list<.*takes one value a row.*tags"),
    "single value for a list": (["a|b"], spec(many=True), "holds string.*takes a list per row.*separator"),
    "list for a map": ([["a"]], spec(many=True, part="keys"), "map was there"),
    "struct": ([{"a": 1}], spec(), "struct.*which no feature can use"),
    "time of day": ([dt.time(12)], spec("number"), "time64.*which no feature can use"),
}  # fmt: skip


@pytest.mark.parametrize(("array", "wanted", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_name_feature_column_row_and_value(array: Any, wanted: InputSpec, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(pa.table({"c": array}), wanted)


def test_a_missing_column_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(SchemaError, match=r"feature 'f': column 'c' is not in the data\. Did you mean 'C'\?"):
        read(pa.table({"C": [1], "other": [2]}), spec())


def test_lists_of_different_lengths_are_an_error_that_names_the_row() -> None:
    left = read(pa.table({"c": pa.array([[1], [2, 3], [4]])}), spec(many=True))
    right = read(pa.table({"c": pa.array([[1], [2], []], pa.list_(pa.int64()))}), spec(many=True))
    aligned = InputSpec("w", "w", "float", "context", True, "number", aligned_with="c", feature="f")
    with pytest.raises(DataError, match=r"column 'w' has 1 values in row 1 .*'c' has 2.* 2 rows differ"):
        check_aligned(right, left, aligned)


TEXTS = ["a", "", None, "ü", "日本", "x\ny", "a\x1eb", "\x1e", " ", "0"]


@pytest.mark.parametrize("repeats", [1, 100], ids=["few", "many"])
@pytest.mark.parametrize("odd", [True, False])
def test_text_arrives_unchanged_in_tensors(repeats: int, odd: bool) -> None:
    texts = [text for text in TEXTS if odd or "\x1e" not in (text or "")] * repeats
    expected = [(text or "").encode() for text in texts]
    for kind in (pa.string(), pa.large_string()):
        assert values_tensor(pa.array(texts, kind)).numpy().tolist() == expected
        assert values_tensor(pa.array(texts, kind).slice(3)).numpy().tolist() == expected[3:]


def test_bytes_arrive_unchanged_in_tensors() -> None:
    raw = [b"\xff\x00\xfe", None, b"a"] * 200
    assert values_tensor(pa.array(raw, pa.large_binary())).numpy().tolist() == [item or b"" for item in raw]


def test_many_empty_texts_stay_as_many() -> None:
    assert values_tensor(pa.array([""] * 1000)).numpy().tolist() == [b""] * 1000


def test_missing_values_in_tensors() -> None:
    assert values_tensor(pa.array([1, None])).numpy().tolist() == [1, -(2**63)]
    numbers = values_tensor(pa.array([1.5, None], pa.float32())).numpy()
    assert numbers[0] == 1.5
    assert numbers[1] != numbers[1]
    ragged = column_tensor(
        Column(pa.array([1, None, 3]), read(pa.table({"c": [[1], [2, 3]]}), spec(many=True)).splits)
    )
    assert ragged.to_list() == [[1], [-(2**63), 3]]
