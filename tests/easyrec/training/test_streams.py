"""Calls beside each other: all of them run, at the same time, and share an iterator without losing an item."""

import threading

import pytest
import tensorflow as tf

from easyrec.training.cluster.streams import beside_each_other


@pytest.mark.parametrize("count", [1, 3])
def test_calls_share_variables_and_an_iterator(count):
    total = tf.Variable(0, dtype=tf.int64)

    def add_all(numbers, step):
        def body(number, taken):
            total.assign_add(number * step)
            return next(numbers), taken + 1

        _, taken = tf.while_loop(
            lambda number, _: number < 100, body, (next(numbers), tf.constant(0)), parallel_iterations=1
        )
        return taken

    @tf.function(autograph=False)
    def run():
        numbers = iter(tf.data.Dataset.range(100 + count))
        return beside_each_other(add_all, (numbers, tf.constant(2, tf.int64)), count)

    taken = [value.numpy() for value in run()]
    assert len(taken) == count
    assert sum(taken) == 100
    assert total.numpy() == 2 * sum(range(100))


def test_calls_that_change_the_same_variable_run_at_the_same_time():
    met = threading.Barrier(2, timeout=20)
    total = tf.Variable(0)

    def meet():
        total.assign_add(1)
        with tf.control_dependencies([tf.py_function(lambda: met.wait(), [], tf.int64)]):
            return total.assign_add(1)

    @tf.function(autograph=False)
    def run():
        return beside_each_other(meet, (), 2)

    run()  # one after the other would wait for each other in vain
    assert total.numpy() == 4
