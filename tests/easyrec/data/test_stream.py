from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from easyrec.data.bound import BoundDataset
from easyrec.data.stream import EncodedStream
from easyrec.features.batch import EncodedBatch, RaggedColumn


class Numbered:
    """Chunks of consecutive numbers; remembers its seeds and whether it was closed."""

    def __init__(self, rows: int, chunk: int = 10, fail_after: int | None = None) -> None:
        self.rows, self.chunk, self.fail_after = rows, chunk, fail_after
        self.seeds: list[int | None] = []
        self.closed = False
        self.given = 0

    def chunks(self, seed: int | None = None) -> Iterator[pa.Table]:
        self.seeds.append(seed)
        try:
            for start in range(0, self.rows, self.chunk):
                if self.fail_after is not None and start >= self.fail_after:
                    raise ValueError("the disk is on fire")
                self.given += 1
                yield pa.table({"x": np.arange(start, min(start + self.chunk, self.rows))})
        finally:
            self.closed = True


def encode(table: pa.Table) -> EncodedBatch:
    x = table.column("x").to_numpy()
    lengths = (x % 3).astype(np.int32)
    ragged = RaggedColumn(np.repeat(x, lengths).astype(np.int32), lengths)
    return EncodedBatch(table.num_rows, {"ids": x.astype(np.int32)[:, None]}, {"tags": ragged})


def stream(
    source: Any, batch_size: int = 7, shuffle_buffer: int = 40, seed: int = 0, **options: Any
) -> EncodedStream:
    return EncodedStream(source, encode, batch_size, shuffle_buffer, seed, **options)


def ids(batches: Iterator[EncodedBatch]) -> list[list[int]]:
    return [batch.dense["ids"][:, 0].tolist() for batch in batches]


@pytest.mark.parametrize("rows", [1, 7, 39, 40, 47, 500])
@pytest.mark.parametrize("shuffle_buffer", [0, 1, 40, 10_000])
def test_each_row_comes_once_in_batches_of_equal_size(rows: int, shuffle_buffer: int) -> None:
    batches = ids(stream(Numbered(rows), shuffle_buffer=shuffle_buffer).batches(0))
    assert sorted(x for batch in batches for x in batch) == list(range(rows))
    assert all(len(batch) == 7 for batch in batches[:-1])
    assert 1 <= len(batches[-1]) <= 7
    if shuffle_buffer == 0:
        assert [x for batch in batches for x in batch] == list(range(rows))


def test_lists_stay_with_their_rows() -> None:
    for batch in stream(Numbered(100)).batches(0):
        for row, x in enumerate(batch.dense["ids"][:, 0]):
            column = batch.ragged["tags"]
            assert column.values[column.splits[row] : column.splits[row + 1]].tolist() == [x] * (x % 3)


def test_the_same_seed_and_epoch_give_the_same_batches_with_any_number_of_threads() -> None:
    def run(epoch: int, **options: Any) -> list[list[int]]:
        return ids(stream(Numbered(500), **options).batches(epoch))

    assert run(3) == run(3) == run(3, threads=3)
    assert run(3) != run(4)
    assert run(3) != run(3, seed=1)
    source = Numbered(10)
    list(stream(source).batches(0))
    list(stream(source).batches(1))
    assert len(set(source.seeds)) == 2
    assert None not in source.seeds


def test_skipped_batches_are_passed_over() -> None:
    whole = ids(stream(Numbered(200)).batches(2))
    assert ids(stream(Numbered(200)).batches(2, skip=9)) == whole[9:]
    assert ids(stream(Numbered(200)).batches(2, skip=len(whole) + 5)) == []


def test_a_smaller_last_batch_can_be_dropped() -> None:
    for shuffle_buffer in (0, 40):
        batches = ids(stream(Numbered(100), shuffle_buffer=shuffle_buffer, drop=True).batches(0))
        assert [len(batch) for batch in batches] == [7] * 14


def test_sorted_rows_are_mixed_within_the_buffer() -> None:
    batches = ids(stream(Numbered(2000), batch_size=50, shuffle_buffer=500).batches(0))
    spread = np.mean([np.std(batch) for batch in batches])
    assert spread > 100  # a batch of neighbours has 14, one from everywhere 577


def test_exceptions_come_where_the_batch_would_have_come() -> None:
    with pytest.raises(ValueError, match="the disk is on fire"):
        list(stream(Numbered(500, fail_after=100)).batches(0))

    def broken(table: pa.Table) -> EncodedBatch:
        raise KeyError("no such feature")

    with pytest.raises(KeyError, match="no such feature"):
        list(EncodedStream(Numbered(500), broken, 7, 40, 0).batches(0))


def test_closing_ends_the_threads_and_reads_no_further() -> None:
    source = Numbered(1_000_000)
    before = threading.active_count()
    batches = stream(source).batches(0)
    next(batches)
    batches.close()
    assert source.closed
    assert source.given < 100
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_memory_is_bounded_while_the_consumer_waits() -> None:
    source = Numbered(1_000_000)
    batches = stream(source).batches(0)
    next(batches)
    time.sleep(0.3)
    assert source.given < 60
    batches.close()


def test_the_wait_for_input_is_counted() -> None:
    def slow(table: pa.Table) -> EncodedBatch:
        time.sleep(0.02)
        return encode(table)

    counted = EncodedStream(Numbered(50), slow, 10, 0, 0)
    list(counted.batches(0))
    assert counted.wait_seconds > 0.05


def test_labels_of_a_file_sorted_by_label_are_mixed(
    write: Callable[..., str], bind: Callable[..., BoundDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("easyrec.data.order.SEGMENT_ROWS", 512)
    monkeypatch.setattr("easyrec.data.order.BATCH_ROWS", 512)
    rows = 8192
    path = write(
        {"x": np.arange(rows), "label": (np.arange(rows) >= rows // 2).astype(int)}, row_group_size=4096
    )
    data = bind({"train": path}, {"x": {"type": "number"}})

    def labels(table: pa.Table) -> EncodedBatch:
        return EncodedBatch(table.num_rows, {"label": table.column("label/label").to_numpy()})

    batches = list(EncodedStream(data.train, labels, 128, 1024, 0).batches(0))
    shares = [batch.dense["label"].mean() for batch in batches]
    assert sum(batch.num_rows for batch in batches) == rows
    assert np.quantile(shares, 0.1) > 0.15
    assert np.quantile(shares, 0.9) < 0.85
