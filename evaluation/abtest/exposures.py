"""The log of exposures: who was shown what, one row a request and layer. Standard library only.

Rows go through a bounded queue to a thread that appends JSON lines to a segment of its own process. A full queue or a
failing disk costs rows, never a request; what is lost is counted by variant, and the count is written to the log
itself, so that an analysis knows. Segments end in `.jsonl.open` while they grow and in `.jsonl` when they are whole.
"""

import atexit
import json
import os
import socket
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from evaluation.abtest.assignment import Assignment
from evaluation.errors import EvaluationError

OPEN = ".jsonl.open"
SEALED = ".jsonl"
EXPOSURE = "exposure"
DROPPED = "dropped"

Row = Mapping[str, Any]
_LOGS: "weakref.WeakSet[ExposureLog]" = weakref.WeakSet()


def exposure_row(
    assignment: Assignment, *, request_id: str, timestamp: float, config_hash: str, **more: Any
) -> dict[str, Any]:
    """The row of one assignment.

    Args:
        assignment: One that chose a variant.
        request_id: Joins the row to what the user did with the answer.
        timestamp: Seconds since 1970.
        config_hash: Of the configuration that assigned.
        more: Further columns of `evaluation.abtest.exposure_files.COLUMNS`: could_differ, fallback, model, ...
    """
    return {
        "kind": EXPOSURE,
        "timestamp": timestamp,
        "request_id": request_id,
        "unit_type": assignment.unit_type,
        "unit_id": assignment.unit,
        "layer": assignment.layer,
        "experiment": assignment.experiment,
        "phase": assignment.phase,
        "variant": assignment.variant,
        "bucket": assignment.bucket,
        "forced": assignment.forced,
        "config_hash": config_hash,
        **more,
    }


class ExposureLog:
    """Writes exposure rows to a folder.

    Safe for threads. After a fork the child writes a segment of its own and the parent's waiting rows stay the
    parent's.

    Args:
        directory: Created if missing.
        capacity: Rows that may wait; more are dropped and counted.
        rotate_bytes: A segment is sealed beyond this size.
        rotate_seconds: Or beyond this age.

    Raises:
        EvaluationError: The folder cannot be created or written to.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        capacity: int = 10_000,
        rotate_bytes: int = 64 << 20,
        rotate_seconds: float = 3600.0,
    ) -> None:
        self.directory = Path(directory)
        self._capacity = capacity
        self._rotate_bytes = rotate_bytes
        self._rotate_seconds = rotate_seconds
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            seal_abandoned(self.directory)
        except OSError as error:
            raise EvaluationError(f"The exposure log cannot be written to {directory}: {error}") from error
        self._reset()
        _LOGS.add(self)

    def _reset(self) -> None:
        """As new, in this process: also what a forked child does with what it inherited."""
        self._wake = threading.Condition()
        self._rows: deque[Row] = deque()
        self._lost: Counter[tuple[str, str]] = Counter()
        self._thread: threading.Thread | None = None
        self._segment: _Segment | None = None
        self._busy = False
        self._closed = False
        self.written = 0
        self.dropped = 0
        self.last_error = ""

    def write(self, rows: Iterable[Row]) -> bool:
        """Hand over rows, which must not change any more; returns at once.

        Returns:
            Whether all were taken; the others are counted in `dropped`.
        """
        rows = list(rows)
        with self._wake:
            room = 0 if self._closed else max(self._capacity - len(self._rows), 0)
            self._rows.extend(rows[:room])
            self._lose(rows[room:])
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="exposure-log", daemon=True)
                self._thread.start()
            self._wake.notify_all()
        return room >= len(rows)

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until what was handed over is with the operating system.

        Returns:
            False if the time was not enough.
        """
        with self._wake:
            return self._wake.wait_for(lambda: not (self._rows or self._busy), timeout)

    def close(self, timeout: float = 10.0) -> None:
        """Write what waits, seal the segment, and take no more rows."""
        self.flush(timeout)
        with self._wake:
            self._closed = True
            self._wake.notify_all()
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join(timeout)

    def _lose(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.dropped += 1
            self._lost[str(row.get("experiment") or ""), str(row.get("variant") or "")] += 1

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: bool(self._rows) or self._closed, self._rotate_seconds)
                batch, lost = list(self._rows), self._lost
                self._rows.clear()
                self._lost = Counter()
                self._busy, closing = True, self._closed
            try:
                self._append([*batch, *_loss_rows(lost)])
            except (OSError, TypeError, ValueError) as error:  # a full disk, or a row that is no JSON
                self.last_error = f"{type(error).__name__}: {error}"
                self._give_up()
                with self._wake:
                    self._lost.update(lost)
                    self._lose(batch)
            else:
                self.written += len(batch)
            with self._wake:
                self._busy = False
                self._wake.notify_all()
            if closing:
                self._give_up()
                return

    def _append(self, rows: list[Row]) -> None:
        if rows:
            text = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
            if self._segment is None:
                self._segment = _Segment(self.directory)
            self._segment.append(text.encode("utf-8", "surrogatepass"))
        segment = self._segment
        if segment and (segment.size >= self._rotate_bytes or segment.age >= self._rotate_seconds):
            self._segment = None
            segment.seal()

    def _give_up(self) -> None:
        """Seal the segment; after an error it may end in half a line, which is cut off."""
        segment, self._segment = self._segment, None
        if segment is not None:
            with suppress(OSError):
                segment.seal()


class _Segment:
    """A file that grows, without a buffer in this process: what was appended survives its crash."""

    def __init__(self, directory: Path) -> None:
        name = (
            f"exposures-{int(time.time() * 1000)}-{socket.gethostname()}-{os.getpid()}-{token_hex(3)}{OPEN}"
        )
        self.path = directory / name
        self._file = self.path.open("xb", buffering=0)
        self._start = time.monotonic()
        self.size = 0

    @property
    def age(self) -> float:
        return time.monotonic() - self._start

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            done = self._file.write(view) or 0
            view = view[done:]
            if not view:
                self.size += len(data)

    def seal(self) -> None:
        with self._file:
            if os.fstat(self._file.fileno()).st_size != self.size:
                self._file.truncate(self.size)
            os.fsync(self._file.fileno())
        _rename_sealed(self.path)


def _rename_sealed(path: Path) -> None:
    path.rename(path.with_name(path.name.removesuffix(OPEN) + SEALED))


def _loss_rows(lost: Counter[tuple[str, str]]) -> list[Row]:
    now = time.time()
    return [
        {"kind": DROPPED, "timestamp": now, "experiment": experiment, "variant": variant, "rows": count}
        for (experiment, variant), count in lost.items()
    ]


def seal_abandoned(directory: str | os.PathLike[str]) -> list[Path]:
    """Seal the segments of processes of this machine that are gone; half a last line is cut off.

    Returns:
        The segments, under their old names.
    """
    found = []
    for path in Path(directory).glob(f"*{OPEN}"):
        *_, host, pid, _ = path.name.removesuffix(OPEN).rsplit("-", 3)
        if not host.endswith(socket.gethostname()) or not pid.isdigit() or _is_alive(int(pid)):
            continue
        with suppress(FileNotFoundError):  # another process was faster
            data = path.read_bytes()
            whole = data.rfind(b"\n") + 1
            if whole != len(data):
                os.truncate(path, whole)
            _rename_sealed(path)
            found.append(path)
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _after_fork() -> None:
    for log in list(_LOGS):
        log._reset()


def _at_exit() -> None:
    for log in list(_LOGS):
        log.close(timeout=5.0)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
