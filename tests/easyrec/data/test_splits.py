from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easyrec.data.bound import BoundDataset
from easyrec.data.hashing import below, hash_keys, mix
from easyrec.errors import ConfigError, DataError

Bind = Callable[..., BoundDataset]
FEATURES = {"x": {"type": "number"}}


def bound(bind: Bind, path: str, split: dict[str, Any]) -> tuple[list[int], list[int]]:
    """`x`, the row's place, of the training and of the evaluation rows."""
    data = bind(
        {"train": path, "keys": {"user": "user", "time": "time"}, "split": split},
        FEATURES,
        tasks={"y": {"type": "regression"}},
    )
    parts: list[list[int]] = []
    for part in (data.train, data.eval):
        parts.append([])
        with suppress(DataError):  # where nothing is left on one side
            parts[-1] += [x for chunk in part.chunks(columns=["x"]) for x in chunk.column("x").to_pylist()]
    return parts[0], parts[1]


@pytest.mark.parametrize("kind", ["random", "user", "time", "user_latest"])
def test_every_row_is_on_one_side_and_stays_there(write: Callable[..., str], bind: Bind, kind: str) -> None:
    random = np.random.default_rng(0)
    rows = 3000
    table = {
        "x": np.arange(rows),
        "user": random.integers(0, 300, rows),
        "time": random.integers(0, 1000, rows),
        "y": random.random(rows),
    }
    path = write(table, row_group_size=700)
    train, evaluation = bound(bind, path, {"type": kind, "fraction": 0.2})
    assert sorted(train + evaluation) == list(range(rows))
    assert 0.14 < len(evaluation) / rows < 0.26
    assert bound(bind, path, {"type": kind, "fraction": 0.2}) == (train, evaluation)
    users, times = table["user"], table["time"]
    if kind == "user":
        assert not set(users[train]) & set(users[evaluation])
    if kind == "time":
        assert times[train].max() < times[evaluation].min()
    if kind == "user_latest":
        for user in range(300):
            mine = [row for row in train if users[row] == user]
            theirs = [row for row in evaluation if users[row] == user]
            assert mine
            assert all(times[row] > times[mine].max() for row in theirs)
    if kind in ("random", "user"):
        assert bound(bind, path, {"type": kind, "fraction": 0.2, "seed": 1})[1] != evaluation


@pytest.mark.parametrize(
    "kind",
    [
        pa.date32(),
        pa.timestamp("s"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns", "Europe/Oslo"),
        pa.float64(),
    ],
    ids=str,
)
def test_times_of_every_type_are_split(write: Callable[..., str], bind: Bind, kind: pa.DataType) -> None:
    days = pa.array(np.arange(40)[::-1].astype("int32"), pa.int32())
    times = days.cast(pa.float64()) if kind == pa.float64() else days.cast(pa.date32()).cast(kind)
    table = {"x": np.arange(40), "user": np.zeros(40, int), "time": times, "y": np.arange(40) % 2}
    train, evaluation = bound(bind, write(table), {"type": "time", "fraction": 0.25})
    assert evaluation == list(range(10))
    assert train == list(range(10, 40))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 6))), min_size=1, max_size=30
    ),
    fraction=st.sampled_from([0.1, 0.34, 0.5, 0.9]),
)
def test_each_users_latest_rows_are_held_out_but_no_tie_with_training(
    write: Callable[..., str], bind: Bind, rows: list[tuple[str, int | None]], fraction: float
) -> None:
    table = {
        "x": list(range(len(rows))),
        "user": [user for user, _ in rows],
        "time": pa.array([time for _, time in rows], pa.int64()),
        "y": [0.5] * len(rows),
    }
    _, evaluation = bound(bind, write(table), {"type": "user_latest", "fraction": fraction})
    expected = []
    for user, count in Counter(user for user, time in rows if time is not None).items():
        times = sorted(time for other, time in rows if other == user and time is not None)
        held_out = max(int(count * fraction + 0.5), 1)
        cut = times[max(count - held_out, 1) - 1]
        expected += [
            row for row, (other, time) in enumerate(rows) if other == user and time is not None and time > cut
        ]
    assert sorted(evaluation) == sorted(expected)


def test_rows_at_the_cutting_time_or_without_a_time_stay_in_training(
    write: Callable[..., str], bind: Bind
) -> None:
    table = {"x": range(6), "user": [1] * 6, "time": [1, 5, 5, 5, None, 6], "y": [1.0] * 6}
    assert bound(bind, write(table), {"type": "time", "fraction": 0.5}) == ([0, 1, 2, 3, 4], [5])


def test_a_split_says_which_key_it_needs(write: Callable[..., str], bind: Bind) -> None:
    path = write({"x": [1, 2], "y": [0.0, 1.0], "time": pa.nulls(2, pa.int64())})
    tasks = {"y": {"type": "regression"}}
    for kind, key in (("user", "user"), ("time", "time"), ("user_latest", "user")):
        with pytest.raises(ConfigError, match=rf"data\.keys\.{key}|`{key}`|names? .*{key}|{key}"):
            bind({"train": path, "split": {"type": kind}}, FEATURES, tasks=tasks)
    with pytest.raises(DataError, match=r"data\.split by time: no row has a value in column 'time'"):
        bind({"train": path, "keys": {"time": "time"}, "split": {"type": "time"}}, FEATURES, tasks=tasks)


def test_hashes_are_the_same_everywhere_and_evenly_spread() -> None:
    # SplitMix64 of 1 and 2 with state 0 as published with its reference code, then values pinned for this seed.
    assert mix(np.array([0]), 0).tolist() == [0xE220A8397B1DCDAF]
    assert hash_keys(pa.array([7, 8]), 3).tolist() == hash_keys(pa.array(["7", "8"]), 3).tolist()
    assert (
        hash_keys(pa.array(["7", "8"]).dictionary_encode(), 3).tolist()
        == hash_keys(pa.array([7, 8]), 3).tolist()
    )
    assert abs(below(mix(np.arange(100_000), 5), 0.1).mean() - 0.1) < 0.005
    assert abs(below(hash_keys(pa.array(range(20_000)), 5), 0.1).mean() - 0.1) < 0.01
