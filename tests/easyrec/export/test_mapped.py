"""A mapped table finds the rows that the table in memory finds."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easyrec.errors import BundleError
from easyrec.export.mapped import MappedTable
from easyrec.export.tables import KeyedTable

# "plumless" and "buckeroo" have one CRC-32.
COLLIDING = ["buckeroo", "plumless"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(max_size=5), unique=True, max_size=30)
    | st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=30),
    st.lists(st.text(max_size=5) | st.integers() | st.none() | st.floats(), max_size=20),
)
def test_finds_what_the_table_in_memory_finds(tmp_path: Path, keys: list[Any], others: list[Any]) -> None:
    kind = pa.int64() if keys and isinstance(keys[0], int) else pa.string()
    table = KeyedTable(pa.table({"k": pa.array(keys, kind), "n": np.arange(len(keys))}), "k")
    MappedTable.write_files(table, tmp_path / "items")
    mapped = MappedTable.open_files(tmp_path / "items", "k")
    assert len(mapped) == len(table)
    assert mapped.table.equals(table.table)
    assert mapped.positions(keys).tolist() == list(range(len(keys)))
    wanted = [*others, *keys[:3], *map(str, keys[3:6])]
    assert mapped.positions(wanted).tolist() == table.positions(wanted).tolist()
    text = pa.array([str(value) for value in wanted])
    assert mapped.positions(text).tolist() == table.positions(text).tolist()


def test_texts_with_one_hash_are_told_apart(tmp_path: Path) -> None:
    assert len({zlib.crc32(text.encode()) for text in COLLIDING}) == 1
    table = KeyedTable(pa.table({"k": ["a", *COLLIDING, "z"]}), "k")
    MappedTable.write_files(table, tmp_path / "items")
    mapped = MappedTable.open_files(tmp_path / "items", "k")
    assert mapped.positions(["z", *COLLIDING[::-1], None, "b", "\ud800"]).tolist() == [3, 2, 1, -1, -1, -1]
    only = KeyedTable(pa.table({"k": COLLIDING[:1]}), "k")
    MappedTable.write_files(only, tmp_path / "one")
    assert MappedTable.open_files(tmp_path / "one", "k").positions(COLLIDING).tolist() == [0, -1]


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    MappedTable.write_files(KeyedTable(pa.table({"k": [1, 2, 3]}), "k"), tmp_path / "items")
    with pytest.raises(BundleError, match=r"items\.arrow does not fit .* column 'other'"):
        MappedTable.open_files(tmp_path / "items", "other")
    np.save(tmp_path / "items_rows.npy", np.arange(2, dtype=np.int32))
    with pytest.raises(BundleError, match="does not fit its index"):
        MappedTable.open_files(tmp_path / "items", "k")
    (tmp_path / "items.arrow").write_bytes(b"no table")
    with pytest.raises(BundleError, match="cannot be read"):
        MappedTable.open_files(tmp_path / "items", "k")
