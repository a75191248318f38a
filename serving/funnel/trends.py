"""What is taken right now: counts of events that fade with time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

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
        ignored_types: Types of events that are no takings, such as `dislike`.
    """

    def __init__(
        self,
        half_life: float = HALF_LIFE_SECONDS,
        items: int = ITEMS,
        clock: Callable[[], float] = time.monotonic,
        ignored_types: Collection[str] = (),
    ) -> None:
        self._rate = np.log(2.0) / half_life
        self._limit = items
        self._clock = clock
        self._ignored = frozenset(ignored_types)
        self._lock = threading.Lock()
        self._start = clock()
        self._counts: dict[str, float] = {}
        self._last: dict[str, str] = {}
        self._others: Mapping[str, float] = {}
        self._heard = self._start
        self._best: tuple[float, list[str], list[float]] | None = None
        self.number = 0
        """Takings counted so far."""

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
                if item_id is None or entry.behaviour.type in self._ignored:
                    continue
                person = owner(entry.user_id, entry.session_id)
                if self._last.get(item_id) != person:
                    self._last[item_id] = person
                    self.number += 1
                    self._counts[item_id] = self._counts.get(item_id, 0.0) + weight
            if len(self._counts) > 2 * self._limit:
                kept = sorted(self._counts, key=self._counts.__getitem__, reverse=True)[: self._limit]
                self._counts = {item_id: self._counts[item_id] for item_id in kept}
                self._last = {item_id: self._last[item_id] for item_id in kept}

    def counted(self, n: int) -> dict[str, float]:
        """Faded counts of the `n` items taken most in this process, for others."""
        with self._lock:
            best = sorted(self._counts.items(), key=lambda pair: -pair[1])[:n]
            scale = self._scale(self._start)
        return {item_id: count * scale for item_id, count in best}

    def hear(self, others: Mapping[str, float]) -> None:
        """What other processes have counted by now, in place of what they had before."""
        with self._lock:
            self._others, self._heard = others, self._clock()

    def faded(self, seconds: float) -> float:
        """What is left of a count after some time."""
        return float(np.exp(-max(0.0, seconds) * self._rate))

    def top(self, n: int) -> tuple[list[str], list[float]]:
        """Keys and faded counts of the `n` items taken most, here and elsewhere, best first; at most a second old."""
        now = self._clock()
        with self._lock:
            if self._best is None or not self._best[1] or now - self._best[0] >= _RENEW_SECONDS:
                here, elsewhere = self._scale(self._start), self._scale(self._heard)
                counts = {item_id: count * here for item_id, count in self._counts.items()}
                for item_id, count in self._others.items():
                    counts[item_id] = counts.get(item_id, 0.0) + count * elsewhere
                ordered = sorted(counts.items(), key=lambda pair: -pair[1])[:10_000]
                self._best = (now, [key for key, _ in ordered], [count for _, count in ordered])
            _, keys, values = self._best
        return keys[:n], values[:n]

    def _scale(self, since: float) -> float:
        return self.faded(self._clock() - since)
