"""Splits under way: given to whichever worker is free, and collected as they are done."""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

_SHORTEST_TIMEOUT = 60.0
_USUAL_TIMES = 10


@dataclass(frozen=True)
class Task:
    """A split to be trained.

    Attributes:
        place: Its number in the order in which splits are handed out.
        split: Its index in the shards.
        arguments: Of the function that trains it.
    """

    place: int
    split: int
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """A split that is done, or has failed.

    Attributes:
        task: Which one.
        values: What the function returned, as NumPy values.
        error: What it raised instead.
        seconds: From handing it out to its end.
    """

    task: Task
    values: dict[str, Any] | None
    error: Exception | None
    seconds: float


class Dispatcher:
    """Hands splits to a coordinator and waits for each on a thread of its own.

    The coordinator gives a split to the next free worker, so slow workers get fewer, and again to another worker when
    the one that had it is lost. At most `capacity` are under way, so that little is lost of an order when training
    pauses, and one is always ready for a worker that becomes free.

    Args:
        schedule: Hands a function call to the coordinator; gives something with `fetch`.
        capacity: Splits under way at most.
        staleness: Places that a split may be ahead of the earliest one that is not done, or None.
        timeout: Seconds after which a split is taken to hang, or None for ten times the usual.
    """

    def __init__(
        self,
        schedule: Callable[..., Any],
        capacity: int,
        staleness: int | None = None,
        timeout: float | None = None,
    ) -> None:
        self._schedule = schedule
        self._capacity = capacity
        self._staleness = staleness
        self._timeout = timeout
        self._done: queue.Queue[Outcome] = queue.Queue()
        self._running: dict[int, tuple[Task, float]] = {}
        self._warned: set[int] = set()
        self._again: set[int] = set()
        self._seconds: list[float] = []
        self.repeated = 0

    @property
    def running(self) -> int:
        """Splits under way."""
        return len(self._running)

    def may_submit(self, place: int) -> bool:
        """Whether the split at a place may be handed out now."""
        if len(self._running) >= self._capacity:
            return False
        if self._staleness is None or not self._running:
            return True
        return place < min(self._running) + self._staleness

    def submit(self, task: Task) -> None:
        """Hands out a split."""
        self._running[task.place] = (task, time.monotonic())
        self._start(task)

    def collect(self, timeout: float) -> list[Outcome]:
        """Splits that have ended; waits for the first, `timeout` seconds at most.

        A split that was handed out twice is reported once.
        """
        found: list[Outcome] = []
        try:
            found.append(self._done.get(timeout=timeout))
            while True:
                found.append(self._done.get_nowait())
        except queue.Empty:
            pass
        first = []
        for outcome in found:
            if self._running.pop(outcome.task.place, None) is None:
                self.repeated += outcome.error is None
                continue
            if outcome.error is None:
                self._seconds.append(outcome.seconds)
            first.append(outcome)
        return first

    def hanging(self) -> list[Task]:
        """Splits that have just been under way for too long, each told once.

        One that is still under way after twice that time is handed out again, so that a worker that cannot be reached
        and does not fail holds nothing up; whichever ends first counts.
        """
        limit = self.limit
        found = []
        now = time.monotonic()
        for place, (task, started) in list(self._running.items()):
            if now - started > limit and place not in self._warned:
                self._warned.add(place)
                found.append(task)
            if now - started > 2 * limit and place not in self._again:
                self._again.add(place)
                self._start(task)
        return found

    @property
    def limit(self) -> float:
        """Seconds after which a split is taken to hang."""
        if len(self._seconds) < 2 * self._capacity:
            return max(5 * _SHORTEST_TIMEOUT, self._timeout or 0.0)  # each worker compiles the model first
        if self._timeout is not None:
            return self._timeout
        return max(_SHORTEST_TIMEOUT, _USUAL_TIMES * statistics.median(self._seconds[-100:]))

    def _start(self, task: Task) -> None:
        try:
            result = self._call(task)  # here, so that one worker gets the splits in order
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer decides what it means
            self._done.put(Outcome(task, None, error, 0.0))
            return
        threading.Thread(target=self._wait, args=(task, result), name="easyrec-split", daemon=True).start()

    def _wait(self, task: Task, result: Any) -> None:
        started = time.monotonic()
        values, error = None, None
        try:
            values = dict(result.fetch())
        except Exception as raised:  # noqa: BLE001 - whatever it is, the trainer decides what it means
            error = raised
        self._done.put(Outcome(task, values, error, time.monotonic() - started))

    def _call(self, task: Task) -> Any:
        try:
            return self._schedule(task.arguments)
        except tf.errors.OpError:
            # The coordinator reports the failure of an earlier split here once more; it has been told already.
            return self._schedule(task.arguments)
