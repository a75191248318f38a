"""The one thread that writes: many requests' events in one commit, each event once, before anybody is told.

For each batch, in this order: pass over events that are known; append the others to the log and force it to disk;
add them to the store, so that the next request of the user sees them; tell listeners; answer those who wait. What
breaks off in between is repaired at the next start by replaying the log into the store.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time as clocks
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from easyrec.errors import EasyRecError
from serving.events.event import Event, entry_of
from serving.events.log import EventLog, LogError, line, read_segment
from serving.stores.base import Entry, Served, StoreError, digest
from serving.stores.guard import GuardedStore

logger = logging.getLogger(__name__)

BATCH_RECORDS = 2000
PENDING_JOBS = 10_000
RECENT_IDS = 100_000
BACKLOG = 100_000
_IDLE_SECONDS = 0.1
_REPLAY_BATCH = 500

Listener = Callable[[Sequence[Entry]], None]


class Sink(Protocol):
    """Follows the log; it must be quick."""

    def begin(self, segment: Path) -> None:
        """Hears of a new segment, before anything is in it."""

    def __call__(self, segment: Path, end: int) -> None:
        """Hears how far a segment is accepted, in bytes; must not raise."""


class OverloadedError(EasyRecError):
    """More is waiting to be written than can be written soon."""


@dataclass(frozen=True)
class Written:
    """What became of a list of events.

    Attributes:
        accepted: How many are new, and durable now.
        duplicates: How many were known already.
    """

    accepted: int
    duplicates: int


@dataclass
class _Job:
    done: Future[Written]
    events: Sequence[Event] = ()
    notes: Sequence[bytes] = ()
    served: Served | None = None
    erase: str | None = None
    received: float = 0.0


@dataclass
class WriterState:
    """What the writer has done so far.

    Attributes:
        accepted: Events written.
        duplicates: Events passed over.
        failed: Events that could not be written; their senders were told.
        notes_lost: Impressions that could not be written.
        backlog: Events that are in the log but not yet in the store.
        backlog_lost: Events that will not come to the store, because too many waited for it.
        error: Why the log cannot be written, or None.
        counters: Told of what is added to a number, by its name; they must be quick and not raise.
    """

    accepted: int = 0
    duplicates: int = 0
    failed: int = 0
    notes_lost: int = 0
    backlog: int = 0
    backlog_lost: int = 0
    error: str | None = None
    counters: list[Callable[[str, int], None]] = field(default_factory=list)

    def add(self, name: str, number: int) -> None:
        """Adds to one of the numbers."""
        if number:
            setattr(self, name, getattr(self, name) + number)
            for count in self.counters:
                count(name, number)


@dataclass
class _Batch:
    events: list[bytes] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    results: list[tuple[_Job, Written]] = field(default_factory=list)
    durable: bool = False


class EventWriter:
    """See the module.

    Args:
        log: The event log.
        store: Where histories are.
        clock: Seconds since 1970.
    """

    def __init__(self, log: EventLog, store: GuardedStore, clock: Callable[[], float] = clocks.time) -> None:
        self.state = WriterState()
        self.listeners: list[Listener] = []
        """Told of accepted events, as the store has them; they must be quick and not raise."""
        self._sinks: list[Sink] = []
        self._log = log
        self._store = store
        self._clock = clock
        self._jobs: queue.Queue[_Job | None] = queue.Queue(PENDING_JOBS)
        self._notes: deque[bytes] = deque()
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._backlog: deque[Entry] = deque(maxlen=BACKLOG)
        self._thread: threading.Thread | None = None
        self._ending = threading.Lock()
        self._stopped = False

    def add_sink(self, sink: Sink) -> None:
        """Lets something follow the log, from the next segment on."""
        self._sinks.append(sink)
        self._log.begun.append(sink.begin)

    def start(self) -> None:
        """Brings the store up to date with the log, then begins to write.

        Raises:
            LogError: Segments of a process that died cannot be read.
        """
        self._log.take_over(self._replay)
        self._thread = threading.Thread(target=self._run, name="event-writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Writes all that waits, then ends."""
        if self._thread is not None:
            with self._ending:
                self._stopped = True
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def write(self, events: Sequence[Event]) -> Future[Written]:
        """Events, to be written durably; the future ends when they are, or with a LogError.

        Raises:
            OverloadedError: Too much is waiting.
        """
        return self._put(_Job(Future(), events=events, received=self._clock()))

    def note(self, lines: Sequence[bytes], served: Served | None = None) -> bool:
        """Lines of impressions, written with the next batch; whether there was room for them.

        Those with which nothing else comes do not wake the thread: it looks for them every tenth of a second.
        """
        if served is not None:
            try:
                self._put(_Job(Future(), notes=lines, served=served))
            except OverloadedError:
                self.state.add("notes_lost", len(lines))
                return False
            return True
        with self._ending:
            if self._stopped or self._jobs.full() or len(self._notes) >= PENDING_JOBS:
                self.state.add("notes_lost", len(lines))
                return False
            self._notes.extend(lines)
        return True

    def erase(self, user_id: str) -> Future[Written]:
        """Forgets a user, in the order of the events around it.

        Raises:
            OverloadedError: Too much is waiting.
        """
        return self._put(_Job(Future(), erase=user_id, received=self._clock()))

    def _replay(self, segment: Path) -> None:
        """Brings the events of a segment to the store, which passes over those that it has; none of erased users."""
        erased: dict[str, float] = {}
        with contextlib.suppress(StoreError):
            erased = self._store.call(self._store.store.erased_since, 0.0)
        users = _users_of_sessions(segment) if erased else {}
        batch: list[Entry] = []
        for record, _ in read_segment(segment):
            if record.get("kind") == "event":
                with contextlib.suppress(
                    KeyError, TypeError
                ):  # a damaged line must not keep the service from starting
                    user = record.get("user_id") or users.get(record.get("session_id"))
                    if not erased or record["received"] > erased.get(digest(str(user)), -1.0):
                        batch.append(entry_of(record))
            if len(batch) >= _REPLAY_BATCH:
                self._apply(batch)
                batch = []
        self._apply(batch)

    def _put(self, job: _Job) -> Future[Written]:
        job.done.set_running_or_notify_cancel()  # who stops waiting for it does not stop it
        with self._ending:
            if self._stopped:
                raise OverloadedError("the service is ending; send it again to the next one")
            try:
                self._jobs.put_nowait(job)
            except queue.Full:
                raise OverloadedError(
                    "too many events are waiting to be written; send them again later"
                ) from None
        return job.done

    def _run(self) -> None:
        while True:
            jobs = self._next_jobs()
            if not jobs:
                self._idle()
                continue
            ends = None in jobs
            for group in _groups([job for job in jobs if job is not None]):
                try:
                    self._write(group)
                except Exception as error:  # the thread must outlive any fault, and nobody may wait for ever
                    logger.exception("a batch of events failed")
                    _fail(group, error)
            if ends:
                # What the store has missed is replayed from the open segment at the next start.
                self._log.close() if self._backlog else self._log.roll()
                return

    def _next_jobs(self) -> list[_Job | None]:
        jobs: list[_Job | None] = []
        records, patience = 0, _IDLE_SECONDS
        with contextlib.suppress(queue.Empty):
            while records < BATCH_RECORDS and (not jobs or jobs[-1] is not None):
                job = self._jobs.get(timeout=patience) if patience else self._jobs.get_nowait()
                patience = 0.0
                jobs.append(job)
                records += 0 if job is None else len(job.events) + len(job.notes)
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        return [_Job(Future(), notes=notes), *jobs] if notes else jobs

    def _idle(self) -> None:
        self._log.roll_if_due(self._clock())
        if self._backlog:
            self._apply([])

    def _write(self, jobs: Sequence[_Job]) -> None:
        now = self._clock()
        batch = self._batch(jobs, now)
        try:
            lines = [*batch.events, *batch.lines]
            if lines:
                self._log.append(lines, now, sync=batch.durable)
            self.state.error = None
        except LogError as error:
            if self.state.error is None:
                logger.error("%s", error)
            self.state.error = str(error)
            self.state.add("failed", sum(len(job.events) for job in jobs))
            self.state.add("notes_lost", sum(len(job.notes) for job in jobs))
            _fail(jobs, error)
            return
        for entry in batch.entries:
            self._recent[entry.behaviour.event_id] = None
        while len(self._recent) > RECENT_IDS:
            self._recent.popitem(last=False)
        self._apply(batch.entries)
        self._apply_others(jobs, now)
        for listener in self.listeners:
            listener(batch.entries)
        if batch.events and self._log.place is not None:
            for sink in self._sinks:
                sink(*self._log.place)
        for job, written in batch.results:
            self.state.add("accepted", written.accepted)
            self.state.add("duplicates", written.duplicates)
            if not job.done.done():
                job.done.set_result(written)

    def _batch(self, jobs: Sequence[_Job], now: float) -> _Batch:
        """What is new in the jobs, as lines of the log and as entries of the store."""
        batch = _Batch()
        known = self._known([event.event_id for job in jobs for event in job.events])
        for job in jobs:
            new = 0
            for event in job.events:
                if event.event_id not in known:
                    known.add(event.event_id)
                    record = event.record(job.received)
                    batch.events.append(line(record))
                    batch.entries.append(entry_of(record))
                    new += 1
            batch.lines += job.notes
            if job.erase is not None:
                batch.lines.append(line({"kind": "erase", "user_id": job.erase, "received": now}))
            batch.durable = batch.durable or bool(job.events) or job.erase is not None
            batch.results.append((job, Written(new, len(job.events) - new)))
        return batch

    def _known(self, event_ids: Sequence[str]) -> set[str]:
        known = {event_id for event_id in event_ids if event_id in self._recent}
        others = [event_id for event_id in event_ids if event_id not in known]
        if others:
            # While the store is away, this process's memory must do; compaction keeps the first of two.
            with contextlib.suppress(StoreError):
                known |= self._store.known_events(others)
        return known

    def _apply(self, entries: Sequence[Entry]) -> None:
        """Adds events to the store, after those it has missed."""
        waiting = [*self._backlog, *entries]
        if not waiting:
            return
        try:
            self._store.call(self._store.store.append, waiting)
            self._backlog.clear()
        except StoreError:
            lost = len(self._backlog) + len(entries) - BACKLOG
            self.state.add("backlog_lost", max(0, lost))
            self._backlog.extend(entries)
        self.state.backlog = len(self._backlog)
        self._log.held = bool(self._backlog)

    def _apply_others(self, jobs: Sequence[_Job], now: float) -> None:
        served = [job.served for job in jobs if job.served is not None]
        try:
            if served:
                self._store.call(self._store.store.add_served, served)
        except StoreError:
            logger.warning("items served were not kept: the store cannot be used")
        for job in jobs:
            if job.erase is not None:
                kept = (entry for entry in self._backlog if entry.user_id != job.erase)
                self._backlog = deque(kept, maxlen=BACKLOG)
                try:
                    self._store.call(self._store.store.erase, job.erase, now)
                except StoreError as error:
                    job.done.set_exception(error)


def _users_of_sessions(segment: Path) -> dict[str | None, str]:
    """Whose the sessions of a segment turned out to be."""
    return {
        record["session_id"]: record["user_id"]
        for record, _ in read_segment(segment)
        if record.get("session_id") and record.get("user_id")
    }


def _groups(jobs: Sequence[_Job]) -> Iterator[Sequence[_Job]]:
    """Jobs that may be written together: erasing a user must come neither before nor after its turn."""
    for erases, group in itertools.groupby(jobs, key=lambda job: job.erase is not None):
        together = list(group)
        yield from ([job] for job in together) if erases else (together,)


def _fail(jobs: Sequence[_Job], error: Exception) -> None:
    for job in jobs:
        if not job.done.done():
            job.done.set_exception(error)
