"""The event log: append-only segments of JSON lines, on disk before an event is acknowledged.

    open/<hour>-<process>-<number>.jsonl      being written
    closed/<hour>-<process>-<number>.jsonl    complete; compaction turns them into Parquet

A line is complete when it ends in a line feed; what a crash left behind it is cut off when the segment is taken over.
Each process writes segments of its own and holds a lock on the open one, so that those of a dead process are told
from those in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from easyrec.errors import EasyRecError

OPEN, CLOSED = "open", "closed"
SEGMENT_BYTES = 64 << 20


class LogError(EasyRecError):
    """Events cannot be written: nothing of what was tried counts as accepted."""


@dataclass
class _Segment:
    path: Path
    hour: str
    file: int
    size: int = 0


class EventLog:
    """Writes segments; used by one thread at a time.

    Args:
        folder: Where segments are.
        segment_bytes: A segment that is larger is closed.
        sync: Force each batch to disk. Without, a power cut may cost acknowledged events; a crash of the process
            does not.
    """

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES, sync: bool = True) -> None:
        self.folder = folder
        self.begun: list[Callable[[Path], None]] = []
        """Called with each new segment, before anything is in it; what they raise keeps it from being begun."""
        self.held = False
        """Keeps the segment open, whatever its hour: a store misses some of it, and is brought it should we die."""
        self._limit = segment_bytes
        self._sync = sync
        self._segment: _Segment | None = None
        self._process = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._number = 0
        for name in (OPEN, CLOSED):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def append(self, lines: Sequence[bytes], now: float, sync: bool = True) -> None:
        """Writes lines, all or none, and waits until they are on disk.

        Args:
            lines: Records as `line` makes them.
            now: Seconds since 1970; names the segment.
            sync: Wait for the disk; False for lines whose loss harms nobody.

        Raises:
            LogError: They cannot be written.
        """
        data = b"".join(lines)
        try:
            segment = self._current(now)
            try:
                _write_all(segment.file, data)
                if self._sync and sync:
                    os.fdatasync(segment.file)
            except OSError:
                self._take_back(segment)
                raise
        except OSError as error:
            raise LogError(f"events cannot be written to {self.folder}: {error.strerror or error}") from error
        segment.size += len(data)

    @property
    def place(self) -> tuple[Path, int] | None:
        """The open segment and how far it is written, in bytes."""
        return None if self._segment is None else (self._segment.path, self._segment.size)

    def roll(self) -> None:
        """Closes the open segment, so that it can be compacted."""
        segment, self._segment = self._segment, None
        if segment is None:
            return
        with contextlib.suppress(OSError):  # it stays among the open ones and is taken over at the next start
            if segment.size:
                os.replace(segment.path, self.folder / CLOSED / segment.path.name)
            else:
                segment.path.unlink()
        os.close(segment.file)

    def close(self) -> None:
        """Ends writing; the open segment stays where the next start takes it over."""
        segment, self._segment = self._segment, None
        if segment is not None:
            os.close(segment.file)

    def roll_if_due(self, now: float) -> None:
        """Closes the open segment if its hour is over."""
        if self._is_due(now, self._segment):
            self.roll()

    def _is_due(self, now: float, segment: _Segment | None) -> bool:
        if segment is None or self.held:
            return False
        return segment.size >= self._limit or segment.hour != hour_name(now)

    def take_over(self, replay: Callable[[Path], None]) -> int:
        """Closes segments that processes left open when they died.

        Args:
            replay: Called with each segment before it is closed: a store may have missed its end. If this process
                dies meanwhile, too, the next one begins again.

        Returns:
            How many there were.

        Raises:
            LogError: One cannot be read.
        """
        taken = 0
        for path in sorted((self.folder / OPEN).glob("*.jsonl")):
            if self._segment is not None and path == self._segment.path:
                continue
            try:
                taken += _take_over(path, self.folder / CLOSED / path.name, replay)
            except OSError as error:
                raise LogError(f"the segment {path} cannot be taken over: {error.strerror}") from error
        return taken

    def _current(self, now: float) -> _Segment:
        if self._is_due(now, self._segment):
            self.roll()
        if self._segment is None:
            hour = hour_name(now)
            self._number += 1
            path = self.folder / OPEN / f"{hour}-{self._process}-{self._number:06d}.jsonl"
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                _sync_folder(path.parent)
                for hear in self.begun:
                    hear(path)
            except OSError:
                os.close(file)
                path.unlink(missing_ok=True)
                raise
            self._segment = _Segment(path, hour, file)
        return self._segment

    def _take_back(self, segment: _Segment) -> None:
        """Cuts off what was written of a batch that failed; if that fails too, the segment is given up."""
        try:
            os.ftruncate(segment.file, segment.size)
            if self._sync:
                os.fdatasync(segment.file)
        except OSError:
            self.roll()


def line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of the log."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def hour_name(now: float) -> str:
    """The hour of a time, in UTC, as it stands in names: 2026-11-30T12."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H")


def read_segment(path: Path, start: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """The records of a segment and where each ends; lines that are incomplete or damaged are passed over.

    Args:
        path: The segment.
        start: Where to begin, an end given before.
    """
    with path.open("rb") as file:
        file.seek(start)
        end = start
        for text in file:
            end += len(text)
            if not text.endswith(b"\n"):
                return
            with contextlib.suppress(ValueError):
                record = json.loads(text)
                if isinstance(record, dict):
                    yield record, end


def _take_over(path: Path, closed: Path, replay: Callable[[Path], None]) -> int:
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # its process lives
        end = _complete_bytes(path)
        if end == 0:
            path.unlink()
            return 0
        file.truncate(end)
        os.fsync(file.fileno())
        replay(path)
        os.replace(path, closed)
        return 1
    return 0


def _complete_bytes(path: Path) -> int:
    """Bytes up to the last line feed."""
    end = path.stat().st_size
    with path.open("rb") as file:
        while end > 0:
            start = max(0, end - 65_536)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_folder(folder: Path) -> None:
    """Forces the entry of a new file to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
