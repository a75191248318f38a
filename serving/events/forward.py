"""Passes every accepted event on to a Redis stream, from the log: none is lost while the stream cannot be reached.

    forward/<segment>.jsonl    a second name of a segment, which keeps it whatever compaction does to the first
    forward/<segment>.at       how many of its bytes were passed on; who passes it on holds a lock on it

What a process that died has left is passed on by the next that starts. An event comes twice only if a process is killed
after it was passed on and before that was noted; who reads the stream counts each `event_id` once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

from easyrec.errors import ConfigError
from serving.events.log import read_segment
from serving.events.streams import open_stream

logger = logging.getLogger(__name__)

FOLDER = "forward"
_BATCH = 500
_RETRY_SECONDS = 1.0
_DIGITS = 20


@dataclass
class _Segment:
    """One to be passed on.

    Attributes:
        path: Its second name.
        at: The open file that says how far it was passed on.
        position: How far, in bytes.
        end: How far it may be; what lies behind is not accepted yet. None for all that is complete.
        finished: Nothing more will be written to it.
    """

    path: Path
    at: int
    position: int = 0
    end: int | None = 0
    finished: bool = False


class StreamForward:
    """See the module.

    Args:
        url: See `open_stream`.
        folder: The folder of the event log.

    Raises:
        ConfigError: The URL is wrong, or the folder's disk cannot give a file a second name.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._redis, self._stream = open_stream(url)
        self._folder = folder / FOLDER
        _check_links(self._folder)
        self._lock = threading.Lock()
        self._segments: list[_Segment] = []
        self._more = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stream-forward", daemon=True)

    def start(self) -> None:
        """Begins, with what processes that died have left."""
        for path in sorted(self._folder.glob("*.jsonl")):
            segment = _locked(path)
            if segment is not None:
                segment.end, segment.finished = None, True
                self._segments.insert(0, segment)
        self._segments.sort(key=lambda one: one.path.name)
        self._more.set()
        self._thread.start()

    def stop(self) -> None:
        """Ends after a last try to pass on what waits; the rest is passed on after the next start."""
        with self._lock:
            for segment in self._segments:
                segment.finished = True
        self._stopping.set()
        self._more.set()
        if self._thread.is_alive():
            self._thread.join()
        for segment in self._segments:
            os.close(segment.at)
        self._segments.clear()
        self._redis.close()

    def begin(self, segment: Path) -> None:
        """Follows a new segment of the log; nothing more comes to the one before.

        Raises:
            OSError: The disk cannot give it a second name.
        """
        path = self._folder / segment.name
        os.link(segment, path)
        new = _locked(path)
        with self._lock:
            for one in self._segments:
                one.finished = True
            if new is not None:
                self._segments.append(new)

    def __call__(self, segment: Path, end: int) -> None:
        """Says how far a segment is accepted."""
        with self._lock:
            for one in reversed(self._segments):
                if one.path.name == segment.name:
                    one.end = end
                    break
        self._more.set()

    def _run(self) -> None:
        failing = False
        while True:
            self._more.wait()
            self._more.clear()
            try:
                self._pass_on()
                failing = False
            except (redis.RedisError, OSError) as error:
                if not failing:
                    logger.warning("events cannot be passed on to the stream %s: %s", self._stream, error)
                failing = True
                if not self._stopping.wait(_RETRY_SECONDS):
                    self._more.set()
            if self._stopping.is_set():
                return

    def _pass_on(self) -> None:
        with self._lock:
            waiting = [(one, one.end, one.finished) for one in self._segments]
        for segment, end, finished in waiting:
            self._send(segment, end)
            if finished:
                segment.path.unlink(missing_ok=True)
                segment.path.with_suffix(".at").unlink(missing_ok=True)
                os.close(segment.at)
                with self._lock:
                    self._segments.remove(segment)

    def _send(self, segment: _Segment, end: int | None) -> None:
        events: list[str] = []
        position = segment.position
        for record, after in read_segment(segment.path, position):
            if end is not None and after > end:
                break
            position = after
            if record.get("kind") == "event":
                events.append(json.dumps(record, ensure_ascii=False, separators=(",", ":")))
            if len(events) == _BATCH:
                self._add(events)
                _note(segment, position)
                events = []
        self._add(events)
        _note(segment, position)

    def _add(self, events: Sequence[str]) -> None:
        if not events:
            return
        pipe = self._redis.pipeline(transaction=True)
        for event in events:
            pipe.xadd(self._stream, {"event": event})
        pipe.execute()


def _locked(path: Path) -> _Segment | None:
    """A segment of which no other process takes care."""
    at = os.open(path.with_suffix(".at"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(at, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(at)
        return None
    position = 0
    with contextlib.suppress(ValueError):
        position = int(os.pread(at, _DIGITS, 0) or b"0")
    return _Segment(path, at, position)


def _note(segment: _Segment, position: int) -> None:
    if position != segment.position:
        os.pwrite(segment.at, f"{position:0{_DIGITS}d}".encode(), 0)
        segment.position = position


def _check_links(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    one, other = (folder / f"{os.getpid()}-{number}.try" for number in (1, 2))
    try:
        one.touch()
        os.link(one, other)
    except OSError as error:
        raise ConfigError(
            f"events.forward: files in {folder} cannot have a second name, which passing on needs ({error.strerror}); "
            "keep `data` on a disk of this machine"
        ) from error
    finally:
        for path in (one, other):
            path.unlink(missing_ok=True)
