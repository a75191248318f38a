"""Behaviour histories against a slow oracle that follows the definition word by word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easyrec.data.history import BuiltHistory, HistoryColumn, apply_history, build

NAMES = {"value": "value_0", "keep": "keep_0"}

Row = tuple[str | None, int | None, int | None, bool]
row = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.one_of(st.none(), st.integers(0, 5)),
    st.one_of(st.none(), st.integers(1, 9)),
    st.booleans(),
)


def write_log(path: Path, rows: list[Row], text: bool) -> None:
    values = [None if value is None else f"v{value}" if text else value for _, _, value, _ in rows]
    table = pa.table(
        {
            "row": pa.array(range(len(rows)), pa.int64()),
            "user": pa.array([user for user, *_ in rows], pa.string()),
            "time": pa.array([time for _, time, *_ in rows], pa.int64()),
            "value_0": pa.array(values, pa.string() if text else pa.int64()),
            "keep_0": pa.array([keep and value is not None for *_, value, keep in rows]),
        }
    )
    pq.write_table(table, path)


def oracle(logs: list[list[Row]], last: int, text: bool) -> list[list[Any]]:
    """Histories of the rows of the last log, by looking at every row for every row."""
    everything = [(log, index, *one) for log, rows in enumerate(logs) for index, one in enumerate(rows)]
    result = []
    for user, time, _, _ in logs[-1]:
        earlier = sorted(
            (other_time, log, index, value)
            for log, index, other, other_time, value, keep in everything
            if user is not None and other == user and time is not None and other_time is not None
            and other_time < time and keep and value is not None
        )  # fmt: skip
        values = [value for *_, value in earlier][-last:]
        result.append([f"v{value}" for value in values] if text else values)
    return result


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    logs=st.lists(st.lists(row, min_size=1, max_size=40), min_size=1, max_size=2),
    last=st.integers(1, 4),
    text=st.booleans(),
)
def test_histories_hold_what_happened_strictly_before(
    tmp_path_factory: pytest.TempPathFactory, logs: list[list[Row]], last: int, text: bool
) -> None:
    folder = tmp_path_factory.mktemp("history")
    paths = []
    for index, rows in enumerate(logs):
        paths.append(folder / f"log_{index}.parquet")
        write_log(paths[-1], rows, text)
    target = logs[-1]
    build(folder, paths, len(logs) - 1, len(target), last, NAMES)
    built = BuiltHistory(folder)
    expected = oracle(logs, last, text)
    assert built.gather(np.arange(len(target))).to_pylist() == expected
    backwards = np.arange(len(target))[::-1].copy()
    assert built.gather(backwards).to_pylist() == expected[::-1]


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 5)), st.one_of(st.none(), st.integers(1, 9)), st.integers(1, 5)
        ),
        min_size=1,
        max_size=20,
    ),
    now=st.integers(0, 6),
    last=st.integers(1, 4),
)  # fmt: skip
def test_one_user_at_one_moment_has_the_same_history(
    rows: list[tuple[int | None, int | None, int]], now: int, last: int
) -> None:
    events = pa.table(
        {
            "time": pa.array([time for time, _, _ in rows], pa.int64()),
            "item": pa.array([item for _, item, _ in rows], pa.int64()),
            "rating": pa.array([rating for *_, rating in rows], pa.int64()),
        }
    )
    definition = HistoryColumn("recent", "item", "rating >= 3", last)
    logged: list[Row] = [("a", time, item, rating >= 3) for time, item, rating in rows]
    expected = oracle([logged, [("a", now, None, False)]], last, text=False)[0]
    assert apply_history(events, definition, "time", now).to_pylist() == expected


def test_a_user_with_ten_thousand_events_takes_no_longer_per_row(tmp_path: Path) -> None:
    count = 10_000
    rows: list[Row] = [("a", index // 2, index % 50, True) for index in range(count)]
    write_log(tmp_path / "log.parquet", rows, text=False)
    build(tmp_path, [tmp_path / "log.parquet"], 0, count, 3, NAMES)
    built = BuiltHistory(tmp_path)
    assert built.gather(np.array([0, 1, 2, 7, count - 1])).to_pylist() == [
        [],
        [],
        [0, 1],
        [3, 4, 5],
        [(count - 5) % 50, (count - 4) % 50, (count - 3) % 50],
    ]
    assert built.values.nbytes == count * 8  # each value is stored once, not once for every later row


def test_rows_without_user_or_time_have_an_empty_history(tmp_path: Path) -> None:
    write_log(
        tmp_path / "log.parquet", [("a", 1, 1, True), (None, 2, 2, True), ("a", None, 3, True)], text=False
    )
    build(tmp_path, [tmp_path / "log.parquet"], 0, 5, 3, NAMES)
    assert BuiltHistory(tmp_path).gather(np.arange(5)).to_pylist() == [[], [], [], [], []]
