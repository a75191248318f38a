"""Popularity and neighbours agree with counting by hand."""

from __future__ import annotations

import datetime
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from easyrec.errors import BundleError
from easyrec.export import statistics
from easyrec.export.candidates import Candidates
from easyrec.export.statistics import item_statistics
from easyrec.export.tables import KeyedTable

ITEMS = KeyedTable(
    pa.table({"item": [f"i{n}" for n in range(30)], "title": [f"t{n}" for n in range(30)]}), "item"
)


def interactions(seed: int, rows: int = 400) -> pa.Table:
    random = np.random.default_rng(seed)
    items = np.minimum(random.geometric(0.1, rows) - 1, 31)  # two of them are not in the catalogue
    return pa.table(
        {
            "user": random.integers(0, 40, rows),
            "item": [f"i{n}" for n in items],
            "time": random.integers(1_600_000_000, 1_700_000_000, rows),
        }
    )


def chunks(table: pa.Table) -> list[pa.Table]:
    return [table.slice(start, 150) for start in range(0, len(table), 150)]


def test_counts_and_neighbours_agree_with_counting_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_BLOCK_ITEMS", 7)
    table = interactions(0)
    found = item_statistics(chunks(table), ITEMS, user="user", time="time")
    count: Counter[int] = Counter()
    recent = np.zeros(30)
    taken: dict[int, set[int]] = {}
    rows = [row | {"item": int(row["item"][1:])} for row in table.to_pylist()]
    rows = [row for row in rows if row["item"] < 30]
    first, last = min(row["time"] for row in rows), max(row["time"] for row in rows)
    for row in rows:
        count[row["item"]] += 1
        recent[row["item"]] += 0.5 ** ((last - row["time"]) / (last - first) / 0.1)
        taken.setdefault(row["user"], set()).add(row["item"])
    assert found.count.tolist() == [count[item] for item in range(30)]
    np.testing.assert_allclose(found.recent, recent)

    users = Counter(item for items in taken.values() for item in items)
    both = Counter(pair for items in taken.values() for pair in combinations(sorted(items), 2))
    for item in range(30):
        scores = {}
        for other in range(30):
            together = both[min(item, other), max(item, other)] if other != item else 0
            if together:
                scores[other] = together / ((users[item] * users[other]) ** 0.5 + 10)
        row = found.neighbors[item][found.neighbors[item] >= 0]
        assert sorted(row) == sorted(scores)
        values = found.neighbor_scores[item][: len(row)]
        np.testing.assert_allclose(values, [scores[other] for other in row], rtol=1e-5)
        assert np.all(np.diff(values) <= 0)


def test_only_the_latest_items_of_a_user_make_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "USER_HISTORY", 2)
    table = pa.table({"user": ["u"] * 3, "item": ["i0", "i1", "i2"], "time": [3, 1, 2]})
    found = item_statistics([table], ITEMS, user="user", time="time")
    assert found.neighbors[:3, 0].tolist() == [2, -1, 0]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("s", tz="UTC"), pa.date32(), pa.string()])
def test_time_may_be_a_timestamp_a_date_or_nothing(kind: pa.DataType) -> None:
    days = [datetime.datetime(2026, 1, day) for day in (1, 11)]
    if kind == pa.string():
        table, time = pa.table({"item": ["i0", "i1"]}), None
    else:
        table, time = pa.table({"item": ["i0", "i1"], "time": pa.array(days).cast(kind)}), "time"
    found = item_statistics([table], ITEMS, time=time)
    np.testing.assert_allclose(found.recent[:2], [1, 1] if time is None else [0.5**10, 1])
    assert (found.neighbors == -1).all()


def test_no_interactions_at_all() -> None:
    found = item_statistics([], ITEMS, user="user", time="time")
    assert not found.count.any()
    assert not found.recent.any()
    assert (found.neighbors == -1).all()


def candidates() -> Candidates:
    found = item_statistics([interactions(1)], ITEMS, user="user", time="time")
    vectors = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    return Candidates(ITEMS, found.count, found.recent, found.neighbors, found.neighbor_scores, vectors)


def test_written_and_read(tmp_path: Path) -> None:
    written = candidates()
    written.write(tmp_path / "candidates")
    read = Candidates.read(tmp_path / "candidates", "item")
    assert read.items.table == written.items.table
    for name in ("count", "recent", "neighbors", "neighbor_scores", "vectors"):
        np.testing.assert_array_equal(getattr(read, name), getattr(written, name))
    assert read.popular(5).tolist() == np.argsort(-written.recent)[:5].tolist()
    allowed = np.arange(30) >= 28
    assert set(read.popular(5, allowed)) == {28, 29}
    rows, scores = read.similar(0, 3)
    assert rows.tolist() == written.neighbors[0, :3].tolist()
    assert scores.tolist() == written.neighbor_scores[0, :3].tolist()


@pytest.mark.parametrize("name", ["vectors.npy", "neighbors.npy"])
def test_an_array_of_another_length_is_refused(tmp_path: Path, name: str) -> None:
    candidates().write(tmp_path)
    np.save(tmp_path / name, np.zeros((3, 2)))
    with pytest.raises(BundleError, match=rf"{name} has 3 rows, but items\.parquet has 30"):
        Candidates.read(tmp_path, "item")
    (tmp_path / name).write_bytes(b"\x93NUMPY")
    with pytest.raises(BundleError, match=f"{name} cannot be read"):
        Candidates.read(tmp_path, "item")
