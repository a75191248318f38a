"""How fast training goes, how long it waits, how much memory it takes."""

from __future__ import annotations

import ctypes
import resource
import time
from dataclasses import dataclass

import psutil


@dataclass
class Meter:
    """Adds up examples, time and waiting, since the start and since the last `lap`.

    Time is that of the step loop: evaluations and checkpoints are outside, between `pause` and `resume`.
    """

    examples: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._process = psutil.Process()
        self._started: float | None = None
        self._lap = (0, 0.0, 0.0)

    def resume(self) -> None:
        """The clock runs."""
        self._started = time.perf_counter()

    def pause(self) -> None:
        """The clock stands."""
        if self._started is not None:
            self.seconds += time.perf_counter() - self._started
            self._started = None

    def tick(self, examples: int, wait_seconds: float) -> None:
        """A step has been done: its examples, and how long it waited for them."""
        now = time.perf_counter()
        if self._started is not None:
            self.seconds += now - self._started
        self._started = now
        self.examples += examples
        self.wait_seconds += wait_seconds

    def lap(self) -> tuple[float, float]:
        """Examples per second and share of time spent waiting since the last lap, and begins another."""
        speed = self.peek()
        self._lap = (self.examples, self.seconds, self.wait_seconds)
        return speed

    def peek(self) -> tuple[float, float]:
        """As `lap`, without beginning another."""
        examples, seconds, wait = self._lap
        return rates(self.examples - examples, self.seconds - seconds, self.wait_seconds - wait)

    @property
    def memory_bytes(self) -> int:
        """Resident memory now."""
        return int(self._process.memory_info().rss)


def rates(examples: int, seconds: float, wait_seconds: float) -> tuple[float, float]:
    """Examples per second, and the share of the time that was spent waiting."""
    if seconds <= 0:
        return 0.0, 0.0
    return examples / seconds, min(1.0, wait_seconds / seconds)


def release_freed_memory() -> None:
    """Hands memory that has been freed back to the system; compiling a model leaves some 100 MB of it behind.

    Does nothing where the C library has no such function (it is glibc's).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_memory_bytes() -> int:
    """The most resident memory this process has had; Linux counts in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
