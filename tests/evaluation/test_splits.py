"""Splits hold out what they say."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation import DataError, EvaluationError, leave_last_out, split_by_time, split_by_user


@given(
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), min_size=1, max_size=30),
    n=st.integers(1, 3),
)
@settings(max_examples=80, deadline=None)
def test_the_last_rows_of_each_user_are_held_out(rows: list[tuple[str, int]], n: int) -> None:
    frame = pd.DataFrame(rows, columns=["user", "time"])
    expected = np.zeros(len(frame), dtype=bool)
    for _, part in frame.groupby("user"):
        if len(part) > n:
            expected[part.sort_values("time", kind="stable").index[-n:]] = True
    np.testing.assert_array_equal(leave_last_out(frame["user"], frame["time"], n), expected)


def test_nothing_held_out_is_earlier_than_training() -> None:
    times = pd.date_range("2024-01-01", periods=100, freq="h").to_numpy()
    mixed = np.random.default_rng(0).permutation(times)
    held_out = split_by_time(mixed, 0.2)
    assert held_out.sum() in (19, 20)
    assert mixed[held_out].min() > mixed[~held_out].max()
    assert split_by_time([1, 1, 1, 2], 0.1).tolist() == [False, False, False, True]


def test_users_are_held_out_whole() -> None:
    user = np.random.default_rng(1).integers(0, 50, 1000)
    held_out = split_by_user(user, 0.2, seed=3)
    assert len(np.unique(user[held_out])) == 10
    assert not set(user[held_out]) & set(user[~held_out])
    np.testing.assert_array_equal(held_out, split_by_user(user, 0.2, seed=3))
    assert (held_out != split_by_user(user, 0.2, seed=4)).any()


def test_wrong_requests_are_explained() -> None:
    with pytest.raises(EvaluationError, match=r"between 0 and 1, got 1\.5"):
        split_by_time([1, 2], 1.5)
    with pytest.raises(DataError, match="All rows are of one time"):
        split_by_time([1, 1])
    with pytest.raises(DataError, match="at least two users, got 1"):
        split_by_user(["a", "a"])
    with pytest.raises(DataError, match="2 rows but 1 times"):
        leave_last_out(["a", "a"], [1])
    with pytest.raises(EvaluationError, match="n must be at least 1"):
        leave_last_out(["a"], [1], 0)
