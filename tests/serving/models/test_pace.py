"""A thread that works beside requests rests in proportion to its work."""

from __future__ import annotations

import sys
import time

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


def test_a_paced_thread_leaves_time_and_everything_as_it_was():
    before = sys.getprofile(), sys.getswitchinterval()
    with paced(0.2):
        begun, worked = time.perf_counter(), time.thread_time()
        while time.thread_time() - worked < 0.05:
            sum(range(100))
        share = (time.thread_time() - worked) / (time.perf_counter() - begun)
        assert sys.getswitchinterval() < before[1]
    assert share < 0.4
    assert (sys.getprofile(), sys.getswitchinterval()) == before
    with pytest.raises(ZeroDivisionError), paced():
        _ = 1 / 0
    assert (sys.getprofile(), sys.getswitchinterval()) == before
