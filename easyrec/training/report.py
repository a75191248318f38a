"""What came of a run, in numbers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TrainingResult:
    """What a training did.

    Attributes:
        reason: Why it ended: `completed`, `max_steps`, `early_stopping` or `interrupted`.
        steps: Steps done since the first, earlier parts of a resumed run included.
        epochs: Epochs completed.
        examples: Examples seen, earlier parts included.
        seconds: Time of the step loop in this process, evaluations and checkpoints left out.
        examples_per_second: In this process, the first step left out, in which the model is compiled.
        wait_share: Share of that time spent waiting for input, 0 to 1.
        peak_memory_bytes: The most resident memory.
        best_step: Step of the best checkpoint, or None if nothing was evaluated.
        monitor: Metric that `best` means.
        evaluations: Every evaluation of this process: its step and metrics.
    """

    reason: str
    steps: int
    epochs: int
    examples: int
    seconds: float
    examples_per_second: float
    wait_share: float
    peak_memory_bytes: int
    best_step: int | None = None
    monitor: str | None = None
    evaluations: list[dict[str, Any]] = field(default_factory=list)


def run_report(
    result: TrainingResult, data: Mapping[str, Any], coverage: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """The report of a run: what training did, what was read and dropped and why, what features saw.

    Args:
        result: Of the trainer.
        data: Rows read, rows dropped by reason (`DataReport`).
        coverage: Share of missing and unseen values by feature (`Encoder.coverage`).
        more: Further sections.
    """
    return {"training": asdict(result), "data": dict(data), "features": dict(coverage), **more}


def write_report(path: str | os.PathLike[str], report: Mapping[str, Any]) -> None:
    """Writes a report as JSON, whole or not at all; numbers that are not finite become null."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.writing")
    temporary.write_text(json.dumps(_finite(report), indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
