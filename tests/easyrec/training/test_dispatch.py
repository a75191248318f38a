"""Splits handed out and collected, with a coordinator that does as it is told."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf

from easyrec.training.cluster.dispatch import Dispatcher, Task


class Remote:
    """A split under way, until it is told to end."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error: Exception | None = None

    def fetch(self):
        assert self.ended.wait(5)
        if self.error is not None:
            raise self.error
        return {"losses": 1.0}


class Coordinator:
    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.remotes: list[Remote] = []

    def __call__(self, arguments):
        self.calls.append(arguments)
        self.remotes.append(Remote())
        return self.remotes[-1]

    def end(self, index, error=None):
        self.remotes[index].error = error
        self.remotes[index].ended.set()


@pytest.fixture
def coordinator():
    made = Coordinator()
    yield made
    for remote in made.remotes:
        remote.ended.set()


def task(place: int) -> Task:
    return Task(place, 10 + place, (place,))


def test_no_more_splits_are_under_way_than_allowed(coordinator):
    dispatcher = Dispatcher(coordinator, capacity=2)
    for place in range(2):
        assert dispatcher.may_submit(place)
        dispatcher.submit(task(place))
    assert not dispatcher.may_submit(2)
    coordinator.end(1)
    [outcome] = dispatcher.collect(5)
    assert (outcome.task.split, outcome.values, outcome.error) == (11, {"losses": 1.0}, None)
    assert dispatcher.may_submit(2)
    assert dispatcher.running == 1


def test_no_split_runs_ahead_of_an_unfinished_one_by_more_than_the_bound(coordinator):
    dispatcher = Dispatcher(coordinator, capacity=10, staleness=2)
    dispatcher.submit(task(0))
    assert dispatcher.may_submit(1)
    dispatcher.submit(task(1))
    assert not dispatcher.may_submit(2)
    coordinator.end(1)
    dispatcher.collect(5)
    assert not dispatcher.may_submit(2)
    coordinator.end(0)
    dispatcher.collect(5)
    assert dispatcher.may_submit(2)


def test_an_error_comes_back_with_its_split(coordinator):
    dispatcher = Dispatcher(coordinator, capacity=2)
    dispatcher.submit(task(0))
    coordinator.end(0, tf.errors.DataLossError(None, None, "corrupted record at 0"))
    [outcome] = dispatcher.collect(5)
    assert outcome.values is None
    assert isinstance(outcome.error, tf.errors.DataLossError)
    assert dispatcher.running == 0


def test_a_split_that_hangs_is_told_once_and_then_given_out_again_and_counted_once(coordinator, monkeypatch):
    dispatcher = Dispatcher(coordinator, capacity=1, timeout=10)
    now = 1000.0
    monkeypatch.setattr("easyrec.training.cluster.dispatch.time.monotonic", lambda: now)
    for place in range(2):  # the first ones compile, and have more time
        dispatcher.submit(task(place))
        coordinator.end(place)
        dispatcher.collect(5)
    dispatcher.submit(task(2))
    now += 9
    assert dispatcher.hanging() == []
    now += 2
    assert [one.place for one in dispatcher.hanging()] == [2]
    assert dispatcher.hanging() == []
    now += 10
    dispatcher.hanging()
    assert coordinator.calls == [(0,), (1,), (2,), (2,)]
    coordinator.end(3)
    assert len(dispatcher.collect(5)) == 1
    coordinator.end(2)
    assert dispatcher.collect(0.5) == []
    assert dispatcher.repeated == 1
