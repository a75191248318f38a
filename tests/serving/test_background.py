"""What runs beside the requests: forgetting what is old, unless the clock has jumped."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from serving import background
from serving.background import Upkeep
from serving.stores.guard import GuardedStore
from serving.stores.memory import MemoryStore

START = 1_800_000_000.0
DAY = 86_400.0


class Items:
    """Follows nothing."""

    def follow(self) -> None:
        pass


@pytest.fixture
def pruned(monkeypatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(MemoryStore, "prune", lambda self, before: found.append(before))
    return found


def upkeep(times: dict[str, float]) -> Upkeep:
    items: Any = Items()
    return Upkeep([items], GuardedStore(MemoryStore()), 90, lambda: times["wall"], lambda: times["steady"])


def test_old_events_are_forgotten_every_hour(pruned):
    times = {"wall": START, "steady": 50.0}
    one = upkeep(times)
    for hours in (0.5, 1.1, 1.2, 2.2):
        times.update(wall=START + hours * 3600, steady=50 + hours * 3600)
        one.turn()
    assert pruned == [START + 1.1 * 3600 - 90 * DAY, START + 2.2 * 3600 - 90 * DAY]


def test_whatever_fails_the_next_turn_comes(monkeypatch):
    monkeypatch.setattr(background, "_FOLLOW_SECONDS", 0.001)
    turns: list[int] = []
    done = threading.Event()

    def follow(self: Items) -> None:
        turns.append(1)
        if len(turns) == 3:
            done.set()
        raise ZeroDivisionError("a fault that nobody expects")

    monkeypatch.setattr(Items, "follow", follow)
    one = upkeep({"wall": START, "steady": 50.0})
    one.start()
    assert done.wait(10)
    one.stop()


@pytest.mark.parametrize("jump", [-365 * DAY, -600.0, 600.0, 365 * DAY])
def test_a_clock_that_jumps_makes_nothing_forgotten(pruned, jump):
    times = {"wall": START, "steady": 50.0}
    one = upkeep(times)
    times.update(wall=START + 7200 + jump, steady=50 + 7200)
    one.turn()
    assert pruned == []
