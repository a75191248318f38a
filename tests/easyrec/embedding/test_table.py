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
