"""Calls that may hang: each in a thread of its own, a limited number of them, and none for a while after failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from easyrec.errors import EasyRecError

T = TypeVar("T")

IN_FLIGHT = 8
FAILURES = 5
REST_SECONDS = 5.0


class RefusedError(EasyRecError):
    """The call was not made: too many hang already, or the last ones failed."""


class IsolatedCalls(Generic[T]):
    """Calls one thing that may be slow or broken.

    A thread that hangs is a daemon: it holds up neither the request that gave up on it nor the end of the process.

    Args:
        in_flight: Calls that may be under way at once.
        failures: After so many in a row, calls are refused for a while.
        rest: For how long, in seconds.
        clock: Seconds that never run backwards.
    """

    def __init__(
        self,
        in_flight: int = IN_FLIGHT,
        failures: int = FAILURES,
        rest: float = REST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = in_flight
        self._tolerated = failures
        self._rest = rest
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way = 0
        self._failed = 0
        self._closed_until = -float("inf")

    def start(self, function: Callable[[], T]) -> Future[T]:
        """Begins a call.

        Raises:
            RefusedError: See the class.
        """
        with self._lock:
            if self._clock() < self._closed_until:
                raise RefusedError("it failed too often and is left alone for a moment")
            if self._under_way >= self._limit:
                raise RefusedError(f"{self._under_way} calls have not come back")
            self._under_way += 1
        future: Future[T] = Future()
        threading.Thread(target=self._run, args=(function, future), daemon=True).start()
        return future

    def failed(self) -> None:
        """Says that a call failed or came too late."""
        with self._lock:
            self._failed += 1
            if self._failed >= self._tolerated:
                self._failed = 0
                self._closed_until = self._clock() + self._rest

    def succeeded(self) -> None:
        """Says that a call came in time."""
        with self._lock:
            self._failed = 0

    def _run(self, function: Callable[[], T], future: Future[T]) -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 the request that waits must hear of it, whatever it is
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            with self._lock:
                self._under_way -= 1
