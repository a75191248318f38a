"""Rows are found by key, whatever the type the key comes in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from easyrec.errors import BundleError
from easyrec.export.tables import KeyedTable

NUMBERS = KeyedTable(pa.table({"id": pa.array([7, None, 3], pa.int32()), "x": ["a", "-", "b"]}), "id")
TEXTS = KeyedTable(pa.table({"id": ["7", "é", "3.5"]}), "id")


def test_rows_without_a_key_are_left_out() -> None:
    assert len(NUMBERS) == 2


@pytest.mark.parametrize(
    "keys",
    [
        [3, 7, 4],
        ["3", " 7", "x"],
        [3.0, 7.0, 3.5],
        [np.int64(3), np.float32(7), None],
        [3, 7, 1 << 40],
        ["3", "7", "9" * 30],
        pa.array([3, 7, None]),
        pa.array(["3", "7", "x"]),
        pa.array(["3", "7", "4"]).dictionary_encode(),
        pa.chunked_array([[3.0], [7.0, 4.0]]),
    ],
)
def test_integer_keys_are_found(keys: object) -> None:
    assert NUMBERS.positions(keys).tolist() == [1, 0, -1]  # type: ignore[arg-type]


@pytest.mark.parametrize("keys", [["é", 7, True], ["é", 7.0, None], pa.array(["é", "7", None])])
def test_text_keys_are_found(keys: object) -> None:
    assert TEXTS.positions(keys).tolist() == [1, 0, -1]  # type: ignore[arg-type]


def test_keys_may_be_stored_as_a_dictionary() -> None:
    table = KeyedTable(pa.table({"id": pa.array(["b", "a", None]).dictionary_encode(), "x": [1, 2, 3]}), "id")
    assert table.positions(["a", "b", "c"]).tolist() == [1, 0, -1]
    assert table.positions(pa.array(["a", "c"]).dictionary_encode()).tolist() == [1, -1]


def test_no_keys() -> None:
    assert NUMBERS.positions([]).tolist() == []
    empty = KeyedTable(pa.table({"id": pa.array([], pa.string())}), "id")
    assert empty.positions(["a"]).tolist() == [-1]


def test_rows_of_unknown_keys_are_null() -> None:
    rows = NUMBERS.rows(NUMBERS.positions([3, 99]))
    assert rows.to_pylist() == [{"id": 3, "x": "b"}, {"id": None, "x": None}]


def test_a_key_in_two_rows_is_refused() -> None:
    with pytest.raises(BundleError, match="id = 'a' is in more than one row"):
        KeyedTable(pa.table({"id": ["a", "b", "a"]}), "id")


def test_written_and_read(tmp_path: Path) -> None:
    NUMBERS.write(tmp_path / "t.parquet")
    assert KeyedTable.read(tmp_path / "t.parquet", "id").table == NUMBERS.table
    with pytest.raises(BundleError, match="no column 'key'; it has id, x"):
        KeyedTable.read(tmp_path / "t.parquet", "key")
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(BundleError, match=r"t\.parquet cannot be read"):
        KeyedTable.read(tmp_path / "t.parquet", "id")
