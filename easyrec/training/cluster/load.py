"""Who does how much: throughput and load of workers and servers, from what their processes say of themselves."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field
from typing import Any

from easyrec.training.cluster.dispatch import Outcome

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STAT = re.compile(r"(?P<pid>\d+) \((?P<name>.*)\) \S (?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True)
class Stat:
    """What Linux says of a process.

    Attributes:
        name: Its name, the role's short name.
        pid: Its number.
        cpu_seconds: CPU time it has used.
        memory_bytes: Resident memory.
    """

    name: str
    pid: int
    cpu_seconds: float
    memory_bytes: int


def parse_stat(line: bytes | str) -> Stat:
    """A line of `/proc/<pid>/stat` (proc(5)); a process without one has an empty name."""
    text = line.decode(errors="replace") if isinstance(line, bytes) else line
    match = _STAT.fullmatch(text.strip())
    if match is None:
        return Stat("", 0, 0.0, 0)
    rest = match["rest"].split()
    # Counted from the state, the third field: user and system time are fields 14 and 15, resident pages field 24.
    return Stat(
        match["name"],
        int(match["pid"]),
        (int(rest[10]) + int(rest[11])) / _TICKS,
        int(rest[20]) * _PAGE,
    )


@dataclass
class _Worker:
    examples: int = 0
    splits: int = 0
    busy: float = 0.0
    stat: Stat | None = None
    first: tuple[float, float] | None = None
    """Time and CPU time when it was first heard of."""


@dataclass
class WorkerLoads:
    """Adds up what workers have done.

    Attributes:
        workers: How many there are.
    """

    workers: int
    _by_name: dict[str, _Worker] = field(default_factory=dict)
    _busy: float = 0.0
    _idle: float = 0.0
    _since: float = field(default_factory=time.monotonic)
    _bytes: float = 0.0

    def resume(self) -> None:
        """The clock runs from now on."""
        self._since, self._busy, self._idle = time.monotonic(), 0.0, 0.0

    def take(self, outcome: Outcome, rows: int) -> float:
        """Counts a split; says how many seconds a worker has been idle, on average, since the last one."""
        values = outcome.values or {}
        stat = parse_stat(values["worker"].item() if hasattr(values["worker"], "item") else values["worker"])
        busy = float(values["seconds"])
        worker = self._by_name.setdefault(stat.name, _Worker())
        worker.examples += rows
        worker.splits += 1
        worker.busy += busy
        if worker.first is None or (worker.stat is not None and worker.stat.pid != stat.pid):
            worker.first = (time.monotonic(), stat.cpu_seconds)
        worker.stat = stat
        self._busy += busy
        self._bytes += float(values["bytes"])
        # A split tells of its work when it is done, so what is idle now may turn out to have been work.
        idle = max(self._idle, time.monotonic() - self._since - self._busy / self.workers)
        before, self._idle = self._idle, idle
        return idle - before

    @property
    def bytes_moved(self) -> int:
        """Bytes between workers and servers so far, counted from what each batch asked for."""
        return int(self._bytes)

    def report(self) -> dict[str, Any]:
        """By worker: examples, splits, examples per second of work, CPU in use, memory."""
        found = {}
        for name, worker in sorted(self._by_name.items()):
            stat, cpus = worker.stat, 0.0
            if stat is not None and worker.first is not None:
                seconds = time.monotonic() - worker.first[0]
                cpus = (stat.cpu_seconds - worker.first[1]) / seconds if seconds > 0 else 0.0
            found[name] = {
                "examples": worker.examples,
                "splits": worker.splits,
                "examples_per_second": worker.examples / worker.busy if worker.busy > 0 else 0.0,
                "cpus": round(cpus, 3),
                "memory_mib": 0.0 if stat is None else stat.memory_bytes / 2**20,
            }
        return found
