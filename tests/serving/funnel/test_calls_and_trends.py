"""Calls that hang are bounded and left alone; trends fade on a clock that cannot jump."""

from __future__ import annotations

import threading

import pytest

from serving.funnel.calls import IsolatedCalls, RefusedError
from serving.funnel.trends import Trends
from serving.stores.base import Behaviour, Entry


def test_a_call_gives_its_result_or_its_error():
    calls: IsolatedCalls[int] = IsolatedCalls()
    assert calls.start(lambda: 3).result(5) == 3
    with pytest.raises(ZeroDivisionError):
        calls.start(lambda: 1 // 0).result(5)


def test_only_so_many_may_hang():
    calls: IsolatedCalls[bool] = IsolatedCalls(in_flight=2)
    go = threading.Event()
    hanging = [calls.start(lambda: go.wait(10)) for _ in range(2)]
    with pytest.raises(RefusedError, match="2 calls have not come back"):
        calls.start(lambda: True)
    go.set()
    assert all(future.result(5) for future in hanging)
    for _ in range(100):  # the count falls a moment after the result is there
        try:
            assert calls.start(lambda: True).result(5)
            break
        except RefusedError:
            threading.Event().wait(0.01)
    else:
        pytest.fail("calls that came back still count")


def test_after_failures_in_a_row_it_rests_and_is_tried_again():
    now = [0.0]
    calls: IsolatedCalls[int] = IsolatedCalls(failures=3, rest=5.0, clock=lambda: now[0])
    for outcome in (calls.failed, calls.failed, calls.succeeded, calls.failed, calls.failed):
        outcome()
    assert calls.start(lambda: 1).result(5) == 1, "a success in between counts"
    calls.failed()
    with pytest.raises(RefusedError, match="left alone"):
        calls.start(lambda: 1)
    now[0] = 5.1
    assert calls.start(lambda: 1).result(5) == 1


def clicks(*items: str | None) -> list[Entry]:
    return [Entry(Behaviour(f"{item}", "click", item, 0.0), f"u{n}") for n, item in enumerate(items)]


def test_each_event_fades_by_half_every_half_life():
    now = [100.0]
    trends = Trends(half_life=10.0, clock=lambda: now[0])
    trends.add(clicks("old", "old", "old", None))
    now[0] += 20.0
    trends.add(clicks("new"))
    keys, counts = trends.top(5)
    assert keys == ["new", "old"]
    assert counts == pytest.approx([1.0, 0.75])
    now[0] += 10.0
    assert trends.top(5)[1] == pytest.approx([0.5, 0.375])
    assert trends.top(1)[0] == ["new"]


def test_what_one_person_does_with_an_item_in_a_row_counts_once():
    trends = Trends(clock=lambda: 0.0)
    for person in ("one", "one", "other", "one"):
        trends.add([Entry(Behaviour("e", "click", "i", 0.0), person)])
    assert trends.top(1) == (["i"], [3.0])


def test_years_without_an_event_overflow_nothing():
    now = [0.0]
    trends = Trends(half_life=10.0, clock=lambda: now[0])
    for step in range(5):
        trends.add(clicks(f"i{step}"))
        now[0] += 100_000.0
    trends.add(clicks("last"))
    assert trends.top(10) == (["last"], [1.0])


def test_only_so_many_items_are_counted():
    trends = Trends(items=10, clock=lambda: 0.0)
    trends.add(clicks(*[f"i{number % 50}" for number in range(50)], *["often"] * 3))
    keys, counts = trends.top(100)
    assert keys[0] == "often"
    assert len(keys) == len(counts) <= 20
