"""A store that is left alone for a while after it failed, so that requests do not wait for it one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from serving.stores.base import HISTORY, Record, Store, StoreError

T = TypeVar("T")

RETRY_SECONDS = 1.0


class GuardedStore:
    """Passes calls on to a store; after one failed, others fail at once until it is tried again.

    Args:
        store: The store.
        retry: Seconds after a failure until the next call is passed on.
        clock: Seconds that never run backwards.
    """

    def __init__(
        self, store: Store, retry: float = RETRY_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.store = store
        self._retry = retry
        self._clock = clock
        self._lock = threading.Lock()
        self._closed_until = 0.0
        self._reason = ""

    @property
    def available(self) -> bool:
        """Whether the last call was answered."""
        return not self._reason

    def call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Calls a method of the store.

        Raises:
            StoreError: The call failed, or one did a moment ago.
        """
        with self._lock:
            now = self._clock()
            if self._reason and now < self._closed_until:
                raise StoreError(self._reason)
            if self._reason:  # one call tries; the others go on failing meanwhile
                self._closed_until = now + self._retry
        try:
            result = method(*args, **kwargs)
        except StoreError as error:
            with self._lock:
                self._reason, self._closed_until = str(error), self._clock() + self._retry
            raise
        if self._reason:
            with self._lock:
                self._reason = ""
        return result

    def read(self, user_id: str | None, session_id: str | None, history: int = HISTORY) -> Record:
        """See `Store.read`."""
        return self.call(self.store.read, user_id, session_id, history)

    def known_events(self, event_ids: Sequence[str]) -> set[str]:
        """See `Store.known_events`."""
        return self.call(self.store.known_events, event_ids)
