"""Shows training as it goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from easyrec.training.callbacks import Callback, ClusterLoad, StepInfo

SECONDS_BETWEEN_LINES = 10.0
_SHOWN_METRICS = 4
_SHOWN_PROCESSES = 4


class TrainingProgress(Callback):
    """Follows a training on a console.

    Args:
        console: Where to show it; a bar when it is a terminal, else a line every ten seconds.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._line_time = 0.0

    def on_train_start(self, total_steps: int | None, step: int) -> None:
        """Draws an empty bar, in place of one from before what was trained was lost."""
        self.close()
        self._line_time = time.monotonic()
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[numbers]}"),
            )
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task("starting", total=total_steps, completed=step, numbers="")
            self._bar.start()

    def on_step(self, info: StepInfo) -> None:
        """Moves the bar, or writes a line when the last one is long ago."""
        wait = "input wait" if info.cluster is None else "workers idle"
        numbers = (
            f"loss {info.loss:.4f}  {info.examples_per_second:,.0f} examples/s  {wait} {info.wait_share:.0%}"
        )
        if info.cluster is None:
            numbers += f"  {info.memory_bytes / 2**20:,.0f} MiB"
        else:
            numbers += ("\n" if self._bar is not None else "  ") + _load(info.cluster)
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=info.step,
                total=info.total_steps,
                description=f"epoch {info.epoch + 1}/{info.epochs}",
                numbers=numbers,
            )
        elif time.monotonic() - self._line_time > SECONDS_BETWEEN_LINES:
            self._line_time = time.monotonic()
            of = "" if info.total_steps is None else f"/{info.total_steps}"
            self._console.print(f"epoch {info.epoch + 1}/{info.epochs}  step {info.step}{of}  {numbers}")

    def on_evaluation(self, step: int, metrics: dict[str, float], improved: bool) -> None:
        """Writes the first metrics on a line."""
        shown = "  ".join(f"{name} {value:.4f}" for name, value in list(metrics.items())[:_SHOWN_METRICS])
        self._console.print(f"step {step}  {shown}{'  (best so far)' if improved else ''}", highlight=False)

    def on_checkpoint(self, step: int, path: Path) -> None:
        """Nothing: checkpoints are in the log."""

    def on_train_end(self, reason: str) -> None:
        """Removes the bar."""
        self.close()

    def close(self) -> None:
        """Removes the bar, also when training has failed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _load(load: ClusterLoad) -> str:
    """Who does how much: `splits 3/19  workers 5,100 | 4,900 examples/s  servers 0.3 CPUs  12.5 MiB moved`."""
    parts = [f"splits {load.splits}/{load.of_splits}"]
    if load.workers:
        parts.append(f"workers {_each(load.workers.values(), ',.0f')} examples/s")
    if load.servers:
        parts.append(f"servers {_each(load.servers.values(), '.1f')} CPUs")
    return "  ".join([*parts, f"{load.bytes_moved / 2**20:,.1f} MiB moved"])


def _each(values: Collection[float], form: str) -> str:
    """All of a few numbers, the range of many."""
    if len(values) <= _SHOWN_PROCESSES:
        return " | ".join(format(value, form) for value in values)
    return f"{min(values):{form}} to {max(values):{form}}"
