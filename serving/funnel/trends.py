"""What is taken right now: counts of events that fade with time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from serving.stores.base import Entry, owner

HALF_LIFE_SECONDS = 3600.0
ITEMS = 50_000
"""Items counted at most; of more, the least taken are forgotten."""
_RENEW_SECONDS = 1.0
_LARGEST_EXPONENT = 200.0


class Trends:
    """Counts items, each event at half its weight after every half-life.

    What one person does with an item several times in a row counts once: a view, a click and a purchase are one taking.
    Times are those of arrival, on a clock that never runs backwards: a jump of the wall clock changes nothing.

    Args:
        half_life: In seconds.
        items: How many items are counted at most.
        clock: Seconds that never run backwards.
    """

    def __init__(
        self,
        half_life: float = HALF_LIFE_SECONDS,
        items: int = ITEMS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = np.log(2.0) / half_life
        self._limit = items
        self._clock = clock
        self._lock = threading.Lock()
        self._start = clock()
        self._counts: dict[str, float] = {}
        self._last: dict[str, str] = {}
        self._best: tuple[float, list[str], list[float]] | None = None

    def add(self, entries: Sequence[Entry]) -> None:
        """Counts events."""
        with self._lock:
            exponent = (self._clock() - self._start) * self._rate
            if exponent > _LARGEST_EXPONENT:  # what came before counts less than rounding
                self._counts.clear()
                self._last.clear()
                self._start, exponent = self._clock(), 0.0
            # A later event weighs more, instead of all others less: one addition an event, and the order is the same.
            weight = float(np.exp(exponent))
            for entry in entries:
                item_id = entry.behaviour.item_id
                person = owner(entry.user_id, entry.session_id)
                if item_id is not None and self._last.get(item_id) != person:
                    self._last[item_id] = person
                    self._counts[item_id] = self._counts.get(item_id, 0.0) + weight
            if len(self._counts) > 2 * self._limit:
                kept = sorted(self._counts, key=self._counts.__getitem__, reverse=True)[: self._limit]
                self._counts = {item_id: self._counts[item_id] for item_id in kept}
                self._last = {item_id: self._last[item_id] for item_id in kept}

    def top(self, n: int) -> tuple[list[str], list[float]]:
        """Keys and faded counts of the `n` items taken most, best first; at most a second old."""
        now = self._clock()
        with self._lock:
            if self._best is None or not self._best[1] or now - self._best[0] >= _RENEW_SECONDS:
                scale = float(np.exp(-(now - self._start) * self._rate))
                ordered = sorted(self._counts.items(), key=lambda pair: -pair[1])[:10_000]
                self._best = (now, [key for key, _ in ordered], [count * scale for _, count in ordered])
            _, keys, counts = self._best
        return keys[:n], counts[:n]
