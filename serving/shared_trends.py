"""What is trending on all processes and machines that share a store.

Each process counts the events that it takes itself, keeps its counts in the store every few seconds, and adds up those
of the others. Nothing is counted together, so nothing has to be locked, and the path of events has no part in it. What
a process has counted outlives it, so that trends do not begin anew with each release.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable

from serving.funnel.trends import Trends
from serving.stores.base import TAKINGS_SECONDS, Takings
from serving.stores.guard import GuardedStore

SHARE_SECONDS = 2.0
ITEMS = 1000
"""Items that a process tells others of."""


class SharedTrends:
    """See the module.

    Args:
        trends: What this process counts.
        store: Where counts are shared.
        clock: Seconds since 1970.
        steady: Seconds that never jump.
    """

    def __init__(
        self,
        trends: Trends,
        store: GuardedStore,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trends = trends
        self._store = store
        self._clock = clock
        self._steady = steady
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._told = 0
        self._due = -float("inf")

    def follow(self) -> None:
        """Tells what was counted here since the last time, and hears what was counted elsewhere, when it is due.

        Raises:
            StoreError: The store cannot be used.
        """
        if self._steady() < self._due:
            return
        self._due = self._steady() + SHARE_SECONDS
        now, number = self._clock(), self._trends.number
        if number != self._told:
            takings = Takings(self._trends.counted(ITEMS), now)
            self._store.call(self._store.store.put_takings, self._name, takings)
            self._told = number
        others: Counter[str] = Counter()
        for name, takings in self._store.call(self._store.store.takings).items():
            age = now - takings.time
            if name != self._name and abs(age) <= TAKINGS_SECONDS:  # one whose clock is wrong is left out
                faded = self._trends.faded(age)
                others.update({item_id: count * faded for item_id, count in takings.counts.items()})
        self._trends.hear(others)
