from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from easyrec.embedding.huge_pages import ask_for_huge_pages
from easyrec.embedding.table import ShardedTable


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
def test_rows_read_back_in_order_of_ids_however_they_are_sharded(shards):
    table = ShardedTable("t", 11, 2, shards=shards)
    values = np.arange(22, dtype=np.float32).reshape(11, 2)
    table.write(0, values)
    np.testing.assert_array_equal(table.read(), values)
    for start in range(11):
        for stop in range(start, 12):
            np.testing.assert_array_equal(table.read(start, stop), values[start:stop])
    table.write(4, -values[:3])
    np.testing.assert_array_equal(table.read(3, 8), [values[3], *-values[:3], values[7]])
    np.testing.assert_array_equal(np.concatenate(list(table.slices(1, 9))), table.read(1, 9))


@pytest.mark.parametrize("shards", [1, 3])
def test_gather_and_scatter_reach_the_row_of_each_id(shards):
    table = ShardedTable("t", 10, 2, shards=shards, fill=0.5)
    ids = tf.constant([7, 0, 4])
    table.scatter(ids, tf.constant([[7.0, 7], [1, 1], [4, 4]]))
    np.testing.assert_array_equal(
        table.gather(tf.constant([4, 7, 0, 1])), [[4, 4], [7, 7], [1, 1], [0.5, 0.5]]
    )
    assert table.gather(tf.constant([], tf.int32)).shape == (0, 2)


def test_a_shard_is_one_variable_with_every_nth_row():
    table = ShardedTable("t", 5, 1, shards=2)
    table.write(0, np.arange(5, dtype=np.float32)[:, None])
    assert [shard.numpy()[:, 0].tolist() for shard in table.shards] == [[0, 2, 4], [1, 3]]


def test_filling_reaches_every_cell():
    table = ShardedTable("t", 7, 2, shards=2)
    table.fill(3.0)
    assert (table.read() == 3).all()


def test_large_pages_leave_the_values_alone():
    large = ShardedTable("t", 70_000, 16, fill=0.5)  # some pages of 2 MiB
    ask_for_huge_pages(large.shards[0])
    assert (large.read() == 0.5).all()
    table = tf.Variable(tf.zeros([3, 2]))
    ask_for_huge_pages(table)
    assert not table.numpy().any()


@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
def test_short_rows_are_float32_outside_and_take_half_the_memory(storage):
    table = ShardedTable("t", 6, 2, shards=2, storage=storage)
    values = np.arange(12, dtype=np.float32).reshape(6, 2) / 8
    table.write(0, values)
    assert all(shard.dtype == storage for shard in table.shards)
    assert table.gather(tf.constant([1, 4])).dtype == tf.float32
    np.testing.assert_array_equal(table.read(), values)  # eighths fit
    table.write(0, table.read())
    np.testing.assert_array_equal(table.read(), values)


def test_small_updates_of_short_rows_add_up():
    # One two-thousandth of the value is below what bfloat16 can tell: rounding to the nearest would lose every step.
    table = ShardedTable("t", 1, 4096, fill=1.0, storage="bfloat16")
    ids = tf.constant([0])
    for _ in range(64):
        table.scatter(ids, table.gather(ids) + 1 / 2048)
    assert table.read().mean() == pytest.approx(1 + 64 / 2048, abs=2e-3)
