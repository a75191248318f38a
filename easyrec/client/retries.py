"""When a failed request is sent again, and after how long.

A request that was certainly not carried out (no connection, 429, 503) may always be sent again. One that may have
been carried out (the connection broke, no answer in time, 500, 502, 504) is sent again only if doing it twice is the
same as doing it once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from easyrec.errors import EasyRecError

NOT_CARRIED_OUT = frozenset({429, 503})
PERHAPS_CARRIED_OUT = frozenset({500, 502, 504})
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True)
class Retries:
    """How often a request is tried, and how long to wait in between.

    The wait before attempt k + 1 is drawn evenly from 0 to min(longest, first · 2^(k-1)) seconds ("full jitter"), so
    that clients that failed together do not come back together. What the service asks for in Retry-After comes before
    it; if that is longer than `longest`, the request fails at once instead.

    Attributes:
        attempts: At most so many, the first one included; 1 never tries again.
        first: Longest wait before the second attempt, in seconds.
        longest: Longest wait before any attempt, in seconds.
    """

    attempts: int = 3
    first: float = 0.1
    longest: float = 5.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.first < 0 or self.longest < 0:
            raise EasyRecError(f"attempts must be at least 1 and waits at least 0 seconds, got {self}")

    def wait(
        self, attempt: int, retry_after: float | None, chance: Callable[[], float] = random.random
    ) -> float | None:
        """Seconds to wait after failed attempt number `attempt`, counted from 1; None to give up."""
        if attempt >= self.attempts:
            return None
        drawn = chance() * min(self.longest, self.first * 2.0 ** (attempt - 1))
        if retry_after is None:
            return drawn
        return None if retry_after > self.longest else retry_after + drawn


def was_reached(error: httpx.RequestError) -> bool:
    """Whether the service may have received a request that failed so."""
    return not isinstance(error, _NEVER_SENT)


def may_repeat(status: int, repeatable: bool) -> bool:
    """Whether a request that got this status may be sent again."""
    return status in NOT_CARRIED_OUT or (repeatable and status in PERHAPS_CARRIED_OUT)


def retry_after(value: str | None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float | None:
    """Seconds that a Retry-After header asks for; None where there is none, or it cannot be read."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
    return max(0.0, (date - now()).total_seconds())
