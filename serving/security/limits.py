"""How much a caller may send: a rate for each, and a shape for every body."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MAX_CALLERS = 10_000
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1


@dataclass
class _Bucket:
    tokens: float
    time: float


class RateLimiter:
    """Token buckets: each caller may send `burst` requests at once, and `rate` a second in the long run.

    Args:
        rate: Requests a second, or None for no limit.
        burst: Size of a bucket.
        clock: Seconds that never run backwards.
    """

    def __init__(self, rate: float | None, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait(self, caller: str, rate: float | None = None) -> float:
        """Takes one request into account.

        Args:
            caller: Who sends it.
            rate: The caller's own rate, in place of the common one.

        Returns:
            0 if it may pass, else seconds until one may.
        """
        rate = self._rate if rate is None else rate
        if rate is None:
            return 0.0
        burst = float(self._burst)
        with self._lock:
            now = self._clock()
            bucket = self._buckets.pop(caller, None) or _Bucket(burst, now)
            bucket.tokens = min(burst, bucket.tokens + (now - bucket.time) * rate)
            bucket.time = now
            self._buckets[caller] = bucket  # the latest caller last
            if len(self._buckets) > MAX_CALLERS:  # one who was not seen for long has a full bucket again
                self._buckets.popitem(last=False)
            if bucket.tokens < 1.0:
                return (1.0 - bucket.tokens) / rate
            bucket.tokens -= 1.0
            return 0.0


def shape(body: bytes) -> tuple[int, int]:
    """How deep a JSON body is nested and how many values it has at most, without parsing it.

    Args:
        body: JSON, perhaps malformed; then the result bounds what a parser meets before it notices.
    """
    signs = _TEXT.sub(b"", body)
    steps = _STEPS[np.frombuffer(signs, np.uint8)]
    depth = int(np.cumsum(steps, dtype=np.int64).max(initial=0))
    return depth, signs.count(b",") + int(np.count_nonzero(steps == 1)) + 1
