"""Shards: what goes in comes out, once, in NumPy and in TensorFlow, however often preparing is interrupted."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import easyrec.data.prepared.shards
import easyrec.data.prepared.write
from easyrec.data.prepared.local import Finished, ShardStream
from easyrec.data.prepared.records import RecordLayout
from easyrec.data.prepared.shards import MANIFEST, ShardRows, open_shards, reason_of
from easyrec.data.prepared.write import ShardPlan, batches_per_split, write_shards
from easyrec.data.stream import EncodedStream
from easyrec.errors import DataError
from easyrec.features.batch import EncodedBatch, RaggedColumn
from easyrec.features.coverage import Coverage


def batch(first: int, rows: int) -> EncodedBatch:
    """Rows that tell where they come from; tags with weights, a sequence without, some of both empty."""
    number = np.arange(first, first + rows)
    tags, recent = (number % 3).astype(np.int32), (number % 2).astype(np.int32)
    values = np.repeat(number, tags).astype(np.int32)
    return EncodedBatch(
        rows,
        {
            "ids": np.stack([number, -number], 1).astype(np.int32),
            "numbers": np.stack([number / 7], 1).astype(np.float32),
            "label/clicked": (number % 2).astype(np.float32),
        },
        {
            "tags": RaggedColumn(values, tags, values.astype(np.float32) / 3),
            "recent": RaggedColumn(np.repeat(number, recent).astype(np.int32), recent),
        },
    )


class Chunks:
    """Consecutive rows, with a fault if wanted; counts how often it is read."""

    def __init__(self, first: int, rows: int, fail: bool = False) -> None:
        self.first, self.rows, self.fail, self.read = first, rows, fail, 0

    def chunks(self, seed: int | None = None) -> Iterator[pa.Table]:
        self.read += 1
        for start in range(self.first, self.first + self.rows, 25):
            if self.fail and start > self.first:
                raise OSError("the disk is on fire")
            yield pa.table({"x": np.arange(start, min(start + 25, self.first + self.rows))})


def encode(table: pa.Table, coverage: Coverage) -> EncodedBatch:
    first = table.column("x")[0].as_py()
    coverage.add(
        table.num_rows, {("tags", "missing"): sum(x % 3 == 0 for x in range(first, first + table.num_rows))}
    )
    return batch(first, table.num_rows)


def encode_only(table: pa.Table) -> EncodedBatch:
    return encode(table, Coverage())


def assert_equal(left: EncodedBatch, right: EncodedBatch) -> None:
    left, right = left.as_dict(), right.as_dict()
    assert left.keys() == right.keys()
    for key in left:
        np.testing.assert_array_equal(left[key], right[key], err_msg=key)
        assert left[key].dtype == right[key].dtype


PLAN = ShardPlan(batch_size=8, split_batches=2, shuffle_buffer=0, seed=0, facts={"data": "a"})


def write(folder, parts=None, plan=PLAN, **options):
    return write_shards(str(folder), parts or [Chunks(0, 60), Chunks(60, 43)], encode, plan, **options)


@settings(max_examples=25, deadline=None)
@given(first=st.integers(0, 100), rows=st.integers(1, 40))
def test_a_record_holds_a_batch(first, rows):
    whole = batch(first, rows)
    layout = RecordLayout.of(whole)
    assert RecordLayout.from_dict(layout.as_dict()) == layout
    assert_equal(layout.unpack(layout.pack(whole)), whole)


def test_tensorflow_reads_what_numpy_wrote():
    whole = batch(3, 17)
    layout = RecordLayout.of(whole)
    tensors, coded = layout.parse(tf.constant(layout.pack(whole)))
    assert coded is None
    for key, value in whole.as_dict().items():
        np.testing.assert_array_equal(tensors[key].numpy(), value, err_msg=key)


def test_the_empty_record_is_a_batch_without_rows():
    layout = RecordLayout.of(batch(3, 17))
    assert layout.unpack(layout.empty).num_rows == 0
    for key, tensor in layout.parse(tf.constant(layout.empty))[0].items():
        assert tf.size(tensor) == 0, key


@pytest.mark.parametrize("damage", [lambda r: r[:-4], lambda r: r + b"1234", lambda r: r[:3], lambda r: b""])
def test_a_record_of_the_wrong_length_is_refused(damage):
    whole = batch(0, 9)
    layout = RecordLayout.of(whole)
    with pytest.raises(DataError, match="a record of"):
        layout.unpack(damage(layout.pack(whole)))


def test_shards_hold_each_row_once_and_know_what_they_hold(tmp_path):
    shards = write(tmp_path)
    assert shards.coverage["tags"]["rows"] == 103
    assert shards.coverage["tags"]["missing"] == 35
    assert (shards.rows, shards.batches, len(shards.splits)) == (103, 14, 7)
    assert [split.batches for split in shards.splits] == [2, 2, 2, 2, 2, 2, 2]
    assert_equal(
        EncodedBatch.concat([one for split in shards.splits for one in shards.read(split)]), batch(0, 103)
    )
    assert open_shards(str(tmp_path)) == shards
    assert open_shards(str(tmp_path / "nothing")) is None


def test_what_is_there_is_not_made_again(tmp_path):
    write(tmp_path)
    parts = [Chunks(0, 60), Chunks(60, 43)]
    write(tmp_path, parts)
    assert [part.read for part in parts] == [0, 0]


def test_preparing_goes_on_where_it_was_interrupted(tmp_path):
    with pytest.raises(OSError, match="on fire"):
        write(tmp_path, [Chunks(0, 60), Chunks(60, 43, fail=True)], threads=1)
    assert open_shards(str(tmp_path)) is None
    parts = [Chunks(0, 60), Chunks(60, 43)]
    shards = write(tmp_path, parts)
    assert [part.read for part in parts] == [0, 1]
    assert shards.coverage["tags"]["rows"] == 103  # of the part that was kept, too
    assert shards.coverage["tags"]["missing"] == 35
    assert_equal(
        EncodedBatch.concat([one for split in shards.splits for one in shards.read(split)]), batch(0, 103)
    )


def test_shards_of_something_else_are_refused_and_the_difference_is_named(tmp_path):
    write(tmp_path)
    other = ShardPlan(batch_size=8, split_batches=2, shuffle_buffer=0, seed=1, facts={"data": "b"})
    with pytest.raises(DataError, match=r"prepared from something else; different: data, seed.*--overwrite"):
        write(tmp_path, plan=other)
    assert (
        write(tmp_path, plan=other, replace=True).fingerprint
        != write(tmp_path, plan=PLAN, replace=True).fingerprint
    )


def test_shards_made_from_something_equivalent_are_taken_and_not_the_other_way_round(tmp_path):
    made = write(tmp_path)
    other, parts = (
        replace(PLAN, facts={"data": "b"}, equivalents=[{"data": "a"}]),
        [Chunks(0, 60), Chunks(60, 43)],
    )
    assert write(tmp_path, parts, other) == made
    assert [part.read for part in parts] == [0, 0]
    with pytest.raises(DataError, match="prepared from something else; different: data, shuffle_buffer"):
        write(tmp_path, plan=replace(other, shuffle_buffer=8))
    (tmp_path / made.splits[0].file).unlink()
    assert write(tmp_path, plan=other).splits == made.splits
    with pytest.raises(DataError, match="different: data"):
        write(tmp_path)


def test_files_that_are_gone_or_cut_off_are_made_again(tmp_path):
    shards = write(tmp_path)
    (tmp_path / shards.splits[0].file).unlink()
    os.truncate(tmp_path / shards.splits[1].file, 10)
    parts = [Chunks(0, 60), Chunks(60, 43)]
    assert write(tmp_path, parts) == shards
    assert [part.read for part in parts] == [1, 0]
    assert sum(len(shards.read(split)) for split in shards.splits) == shards.batches


def test_a_manifest_or_a_record_of_a_part_that_is_damaged_is_made_again_where_that_is_allowed(tmp_path):
    shards = write(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        write(tmp_path)
    (tmp_path / "part-00001.json").write_text("")
    parts = [Chunks(0, 60), Chunks(60, 43)]
    assert write(tmp_path, parts, replace=True) == shards
    assert [part.read for part in parts] == [0, 1]


def test_shards_of_an_earlier_version_are_made_anew_all_of_them(tmp_path, monkeypatch):
    with monkeypatch.context() as earlier:
        for module in (easyrec.data.prepared.shards, easyrec.data.prepared.write):
            earlier.setattr(module, "FORMAT", 1)
        write(tmp_path)
    with pytest.raises(DataError, match=r"have format 1, this version reads 2.*--overwrite"):
        write(tmp_path)
    parts = [Chunks(0, 60), Chunks(60, 43)]
    write(tmp_path, parts, replace=True)
    assert [part.read for part in parts] == [1, 1]
    (tmp_path / MANIFEST).unlink()  # and where it had been interrupted
    with monkeypatch.context() as earlier:
        for module in (easyrec.data.prepared.shards, easyrec.data.prepared.write):
            earlier.setattr(module, "FORMAT", 1)
        with pytest.raises(DataError, match="preparing shards of something else was interrupted there"):
            write(tmp_path)


def test_what_was_begun_for_something_else_is_not_thrown_away_unasked(tmp_path):
    with pytest.raises(OSError, match="on fire"):
        write(tmp_path, [Chunks(0, 60), Chunks(60, 43, fail=True)], threads=1)
    other = replace(PLAN, facts={"data": "b"})
    with pytest.raises(DataError, match=r"something else was interrupted there.*--overwrite"):
        write(tmp_path, plan=other)
    assert (tmp_path / "part-00000.json").exists()
    assert write(tmp_path, plan=other, replace=True).rows == 103


def test_of_two_that_want_the_same_shards_one_makes_them_and_the_other_waits(tmp_path):
    """Locks belong to open files, so that two threads meet as two processes do."""
    begun, go_on, waits = threading.Event(), threading.Event(), threading.Event()

    class Slow(Chunks):
        def chunks(self, seed=None):
            for chunk in super().chunks(seed):
                begun.set()
                assert go_on.wait(60)
                yield chunk

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(write, tmp_path / "train", [Slow(0, 60), Slow(60, 43)])
        assert begun.wait(60)
        parts, told = [Chunks(0, 60), Chunks(60, 43)], []

        def tell(text):
            told.append(text)
            waits.set()

        second = pool.submit(write, tmp_path / "train", parts, tell=tell)
        assert waits.wait(60)
        go_on.set()
        assert first.result(60) == second.result(60)
    assert [part.read for part in parts] == [0, 0]
    assert told == [f"waiting for another process, which prepares {tmp_path / 'train'}"]


def test_shards_lie_wherever_tensorflow_writes(tmp_path):
    folder = f"ram://{tmp_path}/train"
    shards = write(folder)
    assert_equal(
        EncodedBatch.concat([one for split in shards.splits for one in shards.read(split)]), batch(0, 103)
    )
    parts = [Chunks(0, 60), Chunks(60, 43)]
    assert write(folder, parts) == shards
    assert [part.read for part in parts] == [0, 0]


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match="holds something that is not shards"):
        write(tmp_path, replace=True)
    assert (tmp_path / "thesis.tex").exists()


def test_a_damaged_shard_is_named_and_left_out_only_if_asked(tmp_path):
    shards = write(tmp_path)
    path = tmp_path / shards.splits[3].file
    content = bytearray(path.read_bytes())
    content[40] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path.name}: the shard is damaged"):
        list(ShardRows(shards, shuffle=False, chunk_rows=20).chunks())
    rows = ShardRows(shards, shuffle=False, chunk_rows=20, skip_damaged=True)
    assert sum(chunk.num_rows for chunk in rows.chunks()) == 103 - shards.splits[3].rows
    assert len(rows.skipped) == 1
    path.unlink()
    with pytest.raises(DataError, match="damaged or missing"):
        shards.read(shards.splits[3])


def test_unshuffled_shards_give_the_batches_of_the_files(tmp_path):
    shards = write(tmp_path, [Chunks(0, 103)])
    files = EncodedStream(Chunks(0, 103), encode_only, 8, 0, 0)
    ours = ShardStream(shards, 0, 0, Finished())
    for left, right in zip(ours.batches(0), files.batches(0), strict=True):
        assert_equal(left, right)
    for left, right in zip(ours.batches(1, skip=5), files.batches(1, skip=5), strict=True):
        assert_equal(left, right)


def test_shuffled_epochs_differ_and_hold_each_row_once(tmp_path):
    shards = write(tmp_path)
    stream = ShardStream(shards, 40, 7, Finished())

    def ids(epoch, skip=0):
        return np.concatenate([one.dense["ids"][:, 0] for one in stream.batches(epoch, skip)])

    assert sorted(ids(0)) == sorted(ids(1)) == list(range(103))
    assert ids(0).tolist() == ids(0).tolist() != ids(1).tolist()
    np.testing.assert_array_equal(ids(1, skip=3), ids(1)[24:])


def test_splits_that_a_cluster_has_trained_are_left_out_of_their_epoch(tmp_path):
    shards = write(tmp_path)
    stream = ShardStream(shards, 0, 0, Finished(1, (0, 2)))
    rest = np.concatenate([one.dense["ids"][:, 0] for one in stream.batches(1, skip=4)])
    assert rest.tolist() == [*range(16, 32), *range(48, 103)]
    assert sum(one.num_rows for one in stream.batches(2)) == 103


@pytest.mark.parametrize(
    ("rows", "batch_size", "wanted", "expected"),
    [
        (10, 4096, None, 1),
        (80_570, 1024, None, 8),
        (640_000, 1000, None, 25),
        (10**9, 4096, None, 32),
        (10**9, 4096, 7, 7),
    ],
)
def test_how_many_batches_a_split_has(rows, batch_size, wanted, expected):
    assert batches_per_split(rows, batch_size, wanted) == expected


def test_what_is_wrong_is_said_and_not_how_many_errors_tensorflow_found():
    text = "Graph execution error:\n\n2 root error(s) found.\n  (0) DATA_LOSS:  corrupted record at 12\n\t [[{{node}}]]"
    assert reason_of(tf.errors.DataLossError(None, None, text)) == "(0) DATA_LOSS:  corrupted record at 12"
