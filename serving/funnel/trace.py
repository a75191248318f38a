"""What happened in one request, stage by stage: for `debug`, for metrics and for the page alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from serving.funnel.candidates import Rows


@dataclass
class Stage:
    """One stage that ran.

    Attributes:
        kind: `people`, `source`, `merge`, `filter`, `ranking`, `reranking` or `fallback`.
        name: Its name in the scene.
        milliseconds: How long it took.
        ended: When it ended, on the clock of `time.perf_counter`.
        received: Candidates before it.
        returned: Candidates after it.
        dropped: Rows it dropped.
        problem: Why it was skipped or broke off, or None. May hold internals: for the log and for `debug` only.
        notes: What else is worth knowing.
    """

    kind: str
    name: str
    milliseconds: float = 0.0
    ended: float = 0.0
    received: int = 0
    returned: int = 0
    dropped: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    problem: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Trace:
    """All stages of a request.

    Attributes:
        request_id: Of the request.
        scene: Name of the scene.
        stages: In the order in which they ended.
        degraded: Names of what was skipped or broke off.
        fallback: Which link of the chain answered when the list was short or the person unknown, or None.
        notes: What is worth knowing of the request as a whole.
    """

    request_id: str
    scene: str
    stages: list[Stage] = field(default_factory=list)
    degraded: list[str] = field(default_factory=list)
    fallback: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def stage(self, kind: str, name: str, received: int = 0) -> Iterator[Stage]:
        """Times a stage and adds it."""
        stage = Stage(kind, name, received=received)
        start = time.perf_counter()
        try:
            yield stage
        finally:
            stage.ended = time.perf_counter()
            stage.milliseconds = (stage.ended - start) * 1000
            self.stages.append(stage)

    def degrade(self, part: str) -> None:
        """Says that a part of the answer is missing or replaced."""
        if part not in self.degraded:
            self.degraded.append(part)
