"""Popularity within groups of users agrees with counting by hand, and tells nothing of single people."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easyrec.errors import BundleError
from easyrec.export.segments import MIN_USERS, read_segments, segment_key, segment_popularity, write_segments
from easyrec.export.tables import KeyedTable

ITEMS = KeyedTable(pa.table({"item": [f"i{n}" for n in range(20)]}), "item")


def users(size: int = 60, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "user": list(range(size)),
            "city": pa.array([random.choice(["Oslo", "Lima", None]) for _ in range(size)], pa.string()),
            "vip": [bool(random.random() < 0.5) for _ in range(size)],
            "age": random.integers(0, 3, size),
            "score": random.random(size),
            "nobody else": [str(n) for n in range(size)],
            "tags": [["a"]] * size,
            "seen": [
                [f"i{item}" for item in random.choice(25, random.integers(0, 9), replace=False)]
                for _ in range(size)
            ],
        }
    )


def test_each_group_counts_its_users(tmp_path):
    table, weights = users(), np.linspace(0.5, 1, 20)
    segments = segment_popularity(table, ITEMS, ["city", "vip", "age", "absent"], weights)
    write_segments(tmp_path, segments)
    found = read_segments(tmp_path, 20)
    rows = table.to_pylist()
    expected_keys = set()
    for column in ("city", "vip", "age"):
        for value in {row[column] for row in rows} - {None}:
            members = [row for row in rows if row[column] == value]
            if len(members) < MIN_USERS:
                continue
            expected_keys.add((column, segment_key(value)))
            counts = Counter(item for row in members for item in row["seen"])
            expected = {n: counts[f"i{n}"] * weights[n] for n in range(20) if counts[f"i{n}"]}
            items, scores = found[column, segment_key(value)]
            assert dict(zip(items.tolist(), scores.tolist(), strict=True)) == pytest.approx(expected)
            assert (np.diff(scores) <= 0).all()
    assert set(found) == expected_keys


def test_few_users_and_columns_with_many_values_make_no_group():
    segments = segment_popularity(users(200), ITEMS, ["nobody else", "score", "tags"], np.ones(20))
    assert len(segments) == 0
    small = users(MIN_USERS - 1)
    assert len(segment_popularity(small, ITEMS, ["vip"], np.ones(20))) == 0


def test_users_without_seen_items_make_no_group(tmp_path):
    segments = segment_popularity(users().drop_columns("seen"), ITEMS, ["city"], np.ones(20))
    write_segments(tmp_path, segments)
    assert read_segments(tmp_path, 20) == {}


def test_values_are_the_same_as_text():
    assert [segment_key(value) for value in (True, 3, 3.0, "3", "Oslo")] == ["true", "3", "3", "3", "Oslo"]


def test_a_damaged_table_is_named(tmp_path):
    write_segments(tmp_path, segment_popularity(users(), ITEMS, ["city"], np.ones(20)))
    with pytest.raises(BundleError, match="names items beyond the 3"):
        read_segments(tmp_path, 3)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "segments.parquet")
    with pytest.raises(BundleError, match="cannot be read"):
        read_segments(tmp_path, 20)
