"""Merging sources keeps every item once, with all who found it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serving.funnel.candidates import Candidates, Found, merge

parts = st.lists(
    st.tuples(st.lists(st.integers(-1, 12), unique=True, max_size=8), st.integers(1, 8), st.floats(0.1, 3)),
    max_size=4,
)


def found(rows: list[int]) -> Found:
    return Found(np.array(rows, np.int64), -np.arange(len(rows), dtype=np.float32))


@given(parts)
def test_each_item_is_there_once_with_the_sources_and_scores_that_found_it(drawn):
    merged = merge(
        [(at, found(rows), quota, weight) for at, (rows, quota, weight) in enumerate(drawn)], len(drawn)
    )
    kept = [[row for row in rows if row >= 0][:quota] for rows, quota, _ in drawn]
    assert sorted(merged.rows.tolist()) == sorted({row for rows in kept for row in rows})
    for place, row in enumerate(merged.rows.tolist()):
        for source, rows in enumerate(kept):
            assert merged.from_source(source)[place] == (row in rows)
            score = merged.found[source, place]
            assert np.isnan(score) if row not in rows else score == -drawn[source][0].index(row)
        expected = sum(
            weight / (60 + rows.index(row))
            for rows, (_, _, weight) in zip(kept, drawn, strict=True)
            if row in rows
        )
        np.testing.assert_allclose(merged.scores[place], expected, rtol=1e-5)
    assert (np.diff(merged.scores) <= 1e-9).all()


def test_priority_and_round_robin():
    drawn = [(0, found([1, 2, 3]), 9, 1.0), (1, found([3, 4, 1, 5]), 9, 1.0)]
    assert merge(drawn, 2, "priority").rows.tolist() == [1, 2, 3, 4, 5]
    assert merge(drawn, 2, "round_robin").rows.tolist() == [1, 3, 2, 4, 5]
    assert merge(drawn, 2, "priority", limit=2).rows.tolist() == [1, 2]
    assert len(merge([], 3)) == 0


def test_scores_that_are_no_numbers_come_last():
    candidates = Candidates.of_rows(np.arange(4)).with_scores(np.array([np.nan, 1, -np.inf, 2], np.float32))
    assert candidates.ordered().rows.tolist() == [3, 1, 0, 2]
