"""One row laid out directly is what a table of one row gives, errors included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easyrec.errors import EasyRecError
from easyrec.export.inputs import to_tensors
from easyrec.export.manifest import InputEntry
from easyrec.export.row import row_tensors


def entry(
    name: str, kind: Any, *, many: bool = False, role: Any = "category", aligned: str | None = None
) -> InputEntry:
    return InputEntry(
        name=name,
        column=name,
        tensor=f"t_{name}",
        kind=kind,
        side="user",
        list=many,
        role=role,
        aligned_with=aligned,
    )


ENTRIES = [
    entry("text", "string"),
    entry("number", "float", role="number"),
    entry("count", "int", role="number"),
    entry("key", "int"),
    entry("texts", "string", many=True),
    entry("keys", "int", many=True),
    entry("weights", "float", many=True, role="number", aligned="texts"),
]

SCALAR = (
    st.none()
    | st.text(max_size=4)
    | st.integers(-(2**65), 2**65)
    | st.floats(width=32)
    | st.booleans()
    | st.sampled_from(["12", " 3 ", "x", np.int64(5), np.float32(2.5), b"ab"])
)
MANY = (
    st.none()
    | st.lists(st.none() | st.text(max_size=3), max_size=4)
    | st.lists(st.none() | st.integers(-(2**64), 2**64), max_size=4)
    | SCALAR
)
ROW = st.fixed_dictionaries(
    {},
    optional={
        "text": SCALAR, "number": SCALAR, "count": SCALAR, "key": SCALAR, "texts": MANY, "keys": MANY,
        "weights": st.none() | st.lists(st.none() | st.floats(width=32), max_size=4),
    },
)  # fmt: skip


def through_a_table(row: dict[str, Any]) -> dict[str, Any]:
    columns = {one.column: pa.array([row.get(one.column)], from_pandas=True) for one in ENTRIES}
    return to_tensors(pa.table(columns), ENTRIES)


@settings(max_examples=300, deadline=None)
@given(ROW)
def test_equals_a_table_of_one_row(row: dict[str, Any]) -> None:
    try:
        expected = through_a_table(row)
    except (EasyRecError, pa.ArrowException, OverflowError):
        with pytest.raises(EasyRecError):
            row_tensors(row, ENTRIES)
        return
    found = row_tensors(row, ENTRIES)
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_what_cannot_be_used_is_named() -> None:
    with pytest.raises(EasyRecError, match="column 'key' has 'x' in row 0"):
        row_tensors({"key": "x"}, ENTRIES)
    with pytest.raises(EasyRecError, match=r"'weights'.* has 1 values in row 0 .*'texts' has 2"):
        row_tensors({"texts": ["a", "b"], "weights": [1.0]}, ENTRIES)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**65])
@pytest.mark.parametrize("column", ["number", "count", "key"])
def test_a_whole_number_beyond_64_bits_is_refused(column: str, value: int) -> None:
    with pytest.raises(EasyRecError, match="cannot be used"):
        row_tensors({column: value}, ENTRIES)


def test_half_a_surrogate_pair_is_refused() -> None:
    for row in ({"text": "\ud800"}, {"texts": ["a", "\udfff"]}):
        with pytest.raises(EasyRecError, match="cannot be used"):
            row_tensors(row, ENTRIES)
