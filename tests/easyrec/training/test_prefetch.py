from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from easyrec.training.prefetch import Prefetcher


def alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "easyrec-prefetch"]


def test_items_come_in_order_and_the_thread_ends():
    with Prefetcher(range(20), lambda item: item * 2, depth=2) as items:
        assert list(items) == [item * 2 for item in range(20)]
    assert not alive()


def test_it_works_ahead_but_only_so_far():
    begun = []
    with Prefetcher(range(100), begun.append, depth=3) as items:
        next(iter(items))
        time.sleep(0.2)
        assert 3 <= len(begun) <= 6


@pytest.mark.parametrize("where", ["source", "function"])
def test_an_error_is_raised_where_the_item_would_have_come(where):
    def source():
        yield 1
        if where == "source":
            raise KeyError("broken")
        yield 2

    def function(item):
        if where == "function" and item == 2:
            raise KeyError("broken")
        return item

    with Prefetcher(source(), function) as items:
        iterator = iter(items)
        assert next(iterator) == 1
        with pytest.raises(KeyError, match="broken"):
            next(iterator)
    assert not alive()


def test_leaving_early_closes_the_source_and_ends_the_thread():
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield 0
        finally:
            closed.set()

    with Prefetcher(endless(), lambda item: item) as items:
        next(iter(items))
    assert closed.is_set()
    assert not alive()


def test_waiting_is_counted():
    def slow():
        time.sleep(0.1)
        yield 1

    with Prefetcher(slow(), lambda item: item) as items:
        list(items)
    assert items.wait_seconds >= 0.09


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux")
def test_the_input_yields_to_the_step_and_the_step_keeps_its_priority():
    def niceness(_):
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = niceness(None)
    with Prefetcher(range(1), niceness) as items:
        assert list(items) == [min(before + 5, 19)]
    assert niceness(None) == before
