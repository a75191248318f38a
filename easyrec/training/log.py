"""The log of a run: JSON lines, and TensorBoard scalars if asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import tensorflow as tf


class RunLog:
    """Writes one JSON object a line, and its numbers as TensorBoard scalars.

    Lines have `event` (`train`, `evaluation`, `checkpoint`, `start`, `end`), `step` and `time` (seconds since the
    epoch); a `train` line also `epoch`, `loss` and its parts, `examples`, `examples_per_second`, `wait_share`,
    `memory_mib` and the two learning rates. A number that is not finite is written as null.

    Args:
        path: The file; lines are appended.
        tensorboard: Folder of TensorBoard events, or None.
    """

    def __init__(self, path: Path, tensorboard: Path | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_half_a_line(path)
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._writer = tf.summary.create_file_writer(str(tensorboard)) if tensorboard else None

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if self._writer is not None:
            self._writer.close()

    def write(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        """Writes a line."""
        line = {"event": event, "step": step, **{key: _plain(value) for key, value in values.items()}}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        if self._writer is not None:
            with self._writer.as_default(step):
                for key, value in values.items():
                    if isinstance(value, int | float) and key != "time":
                        tf.summary.scalar(f"{event}/{key}", value)


def _cut_half_a_line(path: Path) -> None:
    """Removes what a killed process left behind the last whole line."""
    if path.exists():
        with path.open("rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 8) if math.isfinite(value) else None
    return value
