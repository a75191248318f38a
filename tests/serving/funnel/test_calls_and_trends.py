"""Calls that hang are bounded and left alone; trends fade on a clock that cannot jump."""

from __future__ import annotations

import threading

import pytest

from serving.funnel.calls import IsolatedCalls, RefusedError
from serving.funnel.trends import Trends
from serving.shared_trends import SHARE_SECONDS, SharedTrends
from serving.stores.base import Behaviour, Entry, Takings
from serving.stores.guard import GuardedStore
from serving.stores.memory import MemoryStore


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


def test_what_is_no_behaviour_makes_no_trend():
    trends = Trends(clock=lambda: 0.0, ignored_types=["dislike"])
    trends.add(
        [Entry(Behaviour("a", "dislike", "hated", 0.0), "u"), Entry(Behaviour("b", "click", "i", 0.0), "u")]
    )
    assert trends.top(5) == (["i"], [1.0])


def test_processes_hear_what_others_have_counted_and_what_those_had_that_are_gone():
    now = [0.0]
    store = GuardedStore(MemoryStore())

    def process() -> tuple[Trends, SharedTrends]:
        trends = Trends(half_life=10.0, clock=lambda: now[0])
        return trends, SharedTrends(trends, store, lambda: 5000.0 + now[0], lambda: now[0])

    (one, told), (other, heard) = process(), process()
    one.add(clicks("i", "i", "j"))
    other.add(clicks("i"))
    told.follow()
    heard.follow()
    assert other.top(5) == (["i", "j"], [3.0, 1.0])
    now[0] = 10.0
    assert other.top(5)[1] == pytest.approx([1.5, 0.5]), "they fade without a word"
    told.follow()
    assert one.top(5)[1] == pytest.approx([1.5, 0.5]), "each hears the other, and nobody counts twice"
    later, sharing = process()
    sharing.follow()
    assert later.top(5)[1] == pytest.approx([1.5, 0.5]), (
        "a process that starts goes on where others have ended"
    )


def test_a_process_with_a_wrong_clock_is_not_heard():
    store = GuardedStore(MemoryStore())
    store.store._takings["wrong"] = Takings({"i": 100.0}, 1e9)
    trends = Trends(clock=lambda: 0.0)
    SharedTrends(trends, store, lambda: 5000.0, lambda: 0.0).follow()
    assert trends.top(5) == ([], [])


def test_counts_are_told_now_and_then_and_only_new_ones():
    now, store = [0.0], MemoryStore()
    trends = Trends(clock=lambda: now[0])
    shared = SharedTrends(trends, GuardedStore(store), lambda: now[0], lambda: now[0])
    shared.follow()
    assert store.takings() == {}
    trends.add(clicks("i"))
    shared.follow()
    assert store.takings() == {}, "it is not due yet"
    now[0] = SHARE_SECONDS
    shared.follow()
    (told,) = store.takings().values()
    now[0] = 2 * SHARE_SECONDS
    shared.follow()
    assert list(store.takings().values()) == [told], "nothing new, nothing told"
