"""EncodedBatch against plain Python lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easyrec.errors import DataError
from easyrec.features.batch import EncodedBatch, RaggedColumn

Rows = list[tuple[int, list[tuple[int, float]]]]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 99),
        st.lists(st.tuples(st.integers(0, 9), st.floats(-8, 8, width=32)), max_size=4),
    ),
    max_size=12,
)


def to_batch(rows: Rows) -> EncodedBatch:
    pairs = [pair for _, cell in rows for pair in cell]
    column = RaggedColumn(
        np.array([value for value, _ in pairs], np.int32),
        np.array([len(cell) for _, cell in rows], np.int32),
        np.array([weight for _, weight in pairs], np.float32),
    )
    dense = {
        "ids": np.array([[number, -number] for number, _ in rows], np.int32).reshape(-1, 2),
        "label/y": np.array([number / 2 for number, _ in rows], np.float32),
    }
    plain = RaggedColumn(column.values, column.row_lengths)
    return EncodedBatch(len(rows), dense, {"tags": column, "plain": plain})


def to_rows(batch: EncodedBatch) -> Rows:
    arrays = batch.as_dict()
    starts = np.cumsum(arrays["tags/row_lengths"]) - arrays["tags/row_lengths"]
    pairs = list(zip(arrays["tags/values"].tolist(), arrays["tags/weights"].tolist(), strict=True))
    cells = [
        pairs[start : start + length]
        for start, length in zip(starts.tolist(), arrays["tags/row_lengths"].tolist(), strict=True)
    ]
    assert arrays["plain/values"].tolist() == arrays["tags/values"].tolist()
    assert "plain/weights" not in arrays
    assert (arrays["ids"][:, 0] == -arrays["ids"][:, 1]).all()
    assert (arrays["label/y"] * 2 == arrays["ids"][:, 0]).all()
    assert batch.num_rows == len(batch) == len(arrays["ids"])
    return list(zip(arrays["ids"][:, 0].tolist(), cells, strict=True))


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, data=st.data())
def test_take_gives_the_rows_at_the_indices(rows: Rows, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20)) if rows else []
    taken = to_batch(rows).take(np.array(indices, np.int64))
    assert to_rows(taken) == [rows[index] for index in indices]


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, start=st.integers(0, 14), stop=st.integers(0, 14))
def test_slice_gives_the_rows_of_a_list_slice(rows: Rows, start: int, stop: int) -> None:
    assert to_rows(to_batch(rows).slice(start, stop)) == rows[start:stop]


@settings(max_examples=40, deadline=None)
@given(parts=st.lists(ROWS, min_size=1, max_size=4))
def test_concat_gives_the_rows_of_all(parts: list[Rows]) -> None:
    joined = EncodedBatch.concat([to_batch(rows) for rows in parts])
    assert to_rows(joined) == [row for rows in parts for row in rows]


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, cut=st.integers(0, 12), data=st.data())
def test_operations_compose(rows: Rows, cut: int, data: st.DataObject) -> None:
    batch = to_batch(rows)
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    rejoined = EncodedBatch.concat([batch.slice(cut, len(rows)), batch.slice(0, cut)])
    assert to_rows(rejoined.take(order)) == [(rows[cut:] + rows[:cut])[index] for index in order]


def test_nothing_to_join_is_an_error() -> None:
    with pytest.raises(DataError, match="no batch"):
        EncodedBatch.concat([])


def test_batches_with_different_columns_are_not_joined() -> None:
    batch = to_batch([(1, [])])
    other = EncodedBatch(1, {"ids": batch.dense["ids"]}, batch.ragged)
    with pytest.raises(DataError, match="label/y"):
        EncodedBatch.concat([batch, other])


def test_a_ragged_column_with_weights_does_not_join_one_without() -> None:
    batch = to_batch([(1, [(1, 1.0)])])
    other = EncodedBatch(1, batch.dense, {"tags": batch.ragged["plain"], "plain": batch.ragged["plain"]})
    with pytest.raises(DataError, match="tags/weights"):
        EncodedBatch.concat([batch, other])


def test_nbytes_counts_every_array() -> None:
    batch = to_batch([(1, [(1, 1.0), (2, 0.5)])])
    assert batch.nbytes == 8 + 4 + (8 + 4 + 8) + (8 + 4)
