"""A thread that works beside requests rests in proportion to its work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType

import pytest

from serving.models.pace import paced, pacer


class Time:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = self.worked = 0.0
        self.rests: list[float] = []

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.worked += seconds

    def rest(self, seconds: float) -> None:
        self.now += seconds
        self.rests.append(seconds)


def test_rests_are_as_long_as_the_share_asks():
    at = Time()
    look = pacer(0.25, at.rest, lambda: at.worked, lambda: at.now)
    for _ in range(1000):
        at.work(0.0001)
        look(None, None, None)
    at.work(0.03)  # one call that could not be asked
    look(None, None, None)
    assert at.worked == pytest.approx(0.13)
    assert 0.2 < at.worked / at.now < 0.26
    assert max(at.rests) == pytest.approx(0.09, rel=0.05)


def test_waiting_is_no_work():
    at = Time()
    look = pacer(0.25, at.rest, lambda: at.worked, lambda: at.now)
    for _ in range(100):
        at.now += 0.01
        look(None, None, None)
    assert at.rests == []


def test_a_long_call_is_not_paid_for_without_end():
    at = Time()
    look = pacer(0.25, at.rest, lambda: at.worked, lambda: at.now)
    at.work(60.0)
    look(None, None, None)
    assert at.rests == [0.25]


def busy(share: float) -> float:
    """Which share of the time a thread works that is paced."""
    with paced(share):
        begun, worked = time.perf_counter(), time.thread_time()
        while time.thread_time() - worked < 0.05:
            sum(range(100))
        return (time.thread_time() - worked) / (time.perf_counter() - begun)


def test_a_paced_thread_leaves_time_and_everything_as_it_was():
    before = sys.getprofile(), sys.getswitchinterval()
    with paced(0.2):
        assert sys.getswitchinterval() < before[1]
    assert busy(0.2) < 0.4
    assert (sys.getprofile(), sys.getswitchinterval()) == before
    with pytest.raises(ZeroDivisionError), paced():
        _ = 1 / 0
    assert (sys.getprofile(), sys.getswitchinterval()) == before


def test_a_thread_of_a_pool_rests_too():
    """It was begun by modules that have locks."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(busy, 0.2).result() < 0.4


def test_within_modules_that_have_locks_it_does_not_rest():
    at = Time()
    look = pacer(0.25, at.rest, lambda: at.worked, lambda: at.now)

    def used() -> None:
        at.work(0.01)
        look(sys._getframe(), None, None)

    def use(what: Callable[[], None]) -> None:
        what()

    FunctionType(use.__code__, {"__name__": "threading"})(used)
    assert at.rests == []
    used()
    assert len(at.rests) == 1
