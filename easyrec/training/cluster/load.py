"""Who does how much: throughput and load of workers and servers, from what their processes say of themselves."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from easyrec.training.cluster.dispatch import Outcome
from easyrec.training.cluster.roles import PS, Cluster, Role

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ASK_SECONDS = 5.0
_LATEST_SPLITS = 8
_PROCESS = "/proc/self/stat"
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


def worker_stat() -> tf.Tensor:
    """The line in which Linux describes the process that runs this: its name, CPU time and memory."""
    lines = tf.data.TextLineDataset(_PROCESS).take(1)
    return lines.reduce(tf.constant(""), lambda _, line: line)


class ServerLoads:
    """Asks the parameter servers every few seconds how busy they are, on a thread of its own.

    Args:
        cluster: Whose servers; it is connected.

    Attributes:
        latest: By server, CPUs in use and memory in MiB.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.latest: dict[str, dict[str, float]] = {}
        self._asks = {role: _asks(role) for role in cluster.roles(PS)}
        threading.Thread(target=self._run, name="easyrec-servers", daemon=True).start()

    def _run(self) -> None:
        before: dict[Role, tuple[float, Stat]] = {}
        while True:
            for role, ask in self._asks.items():
                try:
                    stat = parse_stat(ask().numpy())
                except tf.errors.OpError:
                    continue  # lost; the trainer notices
                now = time.monotonic()
                then, earlier = before.get(role, (now - _ASK_SECONDS, stat))
                load = {
                    "cpus": round((stat.cpu_seconds - earlier.cpu_seconds) / max(now - then, 1e-3), 3),
                    "memory_mib": stat.memory_bytes / 2**20,
                }
                self.latest, before[role] = {**self.latest, role.short: load}, (now, stat)
            time.sleep(_ASK_SECONDS)


def _asks(role: Role) -> Any:
    """A function that asks the process that has a role what Linux says of it.

    It is traced here: a new function is told to every process of the cluster, and would wait for one that hangs.
    """

    def ask() -> tf.Tensor:
        with tf.device(f"/job:{role.job}/replica:0/task:{role.index}/device:CPU:0"):
            return worker_stat()

    return tf.function(ask, autograph=False).get_concrete_function()


@dataclass
class _Worker:
    examples: int = 0
    splits: int = 0
    latest: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_LATEST_SPLITS))
    """Rows of the latest splits, and seconds of work."""
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
        worker.latest.append((rows, busy))
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
        """By worker: examples and splits so far, examples per second of work lately, CPU in use, memory."""
        found = {}
        for name, worker in sorted(self._by_name.items()):
            stat, cpus = worker.stat, 0.0
            latest, busy = (sum(values) for values in zip(*worker.latest, strict=True))
            if stat is not None and worker.first is not None:
                seconds = time.monotonic() - worker.first[0]
                cpus = (stat.cpu_seconds - worker.first[1]) / seconds if seconds > 0 else 0.0
            found[name] = {
                "examples": worker.examples,
                "splits": worker.splits,
                "examples_per_second": latest / busy if busy > 0 else 0.0,
                "cpus": round(cpus, 3),
                "memory_mib": 0.0 if stat is None else stat.memory_bytes / 2**20,
            }
        return found
