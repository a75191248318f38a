"""A version that scores a share of the traffic and whose scores are logged, never returned.

Both versions score the same user and items after the answer has gone out, on a thread of its own. What cannot be
scored in time is dropped and counted: a shadow must not slow what it follows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from easyrec.errors import EasyRecError
from serving.models.served import ServedModel

_LOG = logging.getLogger(__name__)
_BUCKETS = 10_000
_WAITING = 64


@dataclass(frozen=True)
class ShadowRecord:
    """What two versions gave the same items of one request.

    Attributes:
        request_id: Of the request.
        model: Name of the model.
        active: Version that serves.
        shadow: Version that is tried.
        items: Keys of the items that both know.
        scores: Scores of the active version, by task.
        shadow_scores: Scores of the shadow.
    """

    request_id: str
    model: str
    active: str
    shadow: str
    items: list[Any]
    scores: dict[str, list[Any]]
    shadow_scores: dict[str, list[Any]]


@dataclass
class ShadowCounts:
    """What became of the requests.

    Attributes:
        scored: Scored and logged.
        dropped: Sampled, but too many were waiting.
        failed: Could not be scored.
        largest_difference: Largest distance of two scores of one item, by task.
    """

    scored: int = 0
    dropped: int = 0
    failed: int = 0
    largest_difference: dict[str, float] = field(default_factory=dict)


class ShadowTraffic:
    """Scores a share of the requests with a second version.

    Args:
        active: Gives the version that serves.
        shadow: The version that is tried.
        percent: Share of the requests, from 0 to 100. Which ones depends on the request id alone.
        write: Takes the records, on the shadow's thread.
    """

    def __init__(
        self,
        active: Callable[[], ServedModel],
        shadow: ServedModel,
        percent: float,
        write: Callable[[ShadowRecord], None],
    ) -> None:
        self.model = shadow
        self.percent = percent
        self.counts = ShadowCounts()
        self._active = active
        self._write = write
        self._waiting = threading.BoundedSemaphore(_WAITING)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shadow")

    def sampled(self, request_id: str) -> bool:
        """Whether a request is one of the share."""
        digest = hashlib.sha256(f"shadow:{self.model.version}:{request_id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % _BUCKETS < self.percent * _BUCKETS / 100

    def offer(self, request_id: str, columns: Mapping[str, Any], items: Sequence[Any]) -> bool:
        """Takes a request that has been answered; returns at once.

        Args:
            request_id: Of the request.
            columns: Raw columns of the user and of the request, as `ServedModel.user` takes them.
            items: Keys of the items that were scored.

        Returns:
            Whether it will be scored.
        """
        if not self.sampled(request_id):
            return False
        if not self._waiting.acquire(blocking=False):
            self.counts.dropped += 1
            return False
        try:
            self._thread.submit(self._score, request_id, dict(columns), list(items))
        except RuntimeError:  # closed meanwhile
            self._waiting.release()
            return False
        return True

    def close(self) -> None:
        """Scores what is waiting, and takes no more."""
        self._thread.shutdown()

    def _score(self, request_id: str, columns: dict[str, Any], items: list[Any]) -> None:
        try:
            self._write(self._record(request_id, columns, items))
            self.counts.scored += 1
        except (EasyRecError, OSError) as error:
            self.counts.failed += 1
            _LOG.warning("request %s could not be scored by the shadow: %s", request_id, error)
        finally:
            self._waiting.release()

    def _record(self, request_id: str, columns: dict[str, Any], items: list[Any]) -> ShadowRecord:
        active, shadow = self._active(), self.model
        ours, theirs = active.catalogue.rows(items), shadow.catalogue.rows(items)
        both = (ours >= 0) & (theirs >= 0)
        scores = active.score(active.user(columns), ours[both])
        shadows = shadow.score(shadow.user(columns), theirs[both])
        for task in scores.keys() & shadows.keys():
            if scores[task].size and scores[task].shape == shadows[task].shape:
                largest = float(np.abs(scores[task] - shadows[task]).max())
                known = self.counts.largest_difference.get(task, 0.0)
                self.counts.largest_difference[task] = max(known, largest)
        return ShadowRecord(
            request_id,
            shadow.name,
            active.version,
            shadow.version,
            [item for item, known in zip(items, both, strict=True) if known],
            {task: values.tolist() for task, values in scores.items()},
            {task: values.tolist() for task, values in shadows.items()},
        )


class ShadowLog:
    """Writes records as JSON lines to a file.

    Args:
        path: The file; appended to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __call__(self, record: ShadowRecord) -> None:
        """Writes one record."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
        self._file.write(json.dumps(asdict(record), ensure_ascii=False, default=str) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
