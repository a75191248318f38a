"""How others follow training: the command line draws a progress bar with it, tests watch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClusterLoad:
    """Who does how much on a cluster.

    Attributes:
        splits: Splits of the epoch that are done.
        of_splits: Splits of an epoch.
        workers: Examples per second of work of each worker.
        servers: CPUs that each parameter server keeps busy.
        bytes_moved: Between workers and servers, since training began or was resumed.
    """

    splits: int
    of_splits: int
    workers: dict[str, float]
    servers: dict[str, float]
    bytes_moved: int


@dataclass(frozen=True)
class StepInfo:
    """A step that has been done.

    Attributes:
        step: Steps done since the start of training, this one included.
        total_steps: Steps of the whole training, or None when the number of rows is not known.
        epoch: The epoch, from 0.
        epochs: How many there are.
        examples: Examples seen since the start of training.
        examples_per_second: Over the last while.
        wait_share: Share of that time spent waiting for input, 0 to 1.
        memory_bytes: Resident memory of the process.
        loss: What was minimised, averaged over the steps since the last log line.
        cluster: Who does how much, on a cluster; else None.
    """

    step: int
    total_steps: int | None
    epoch: int
    epochs: int
    examples: int
    examples_per_second: float
    wait_share: float
    memory_bytes: int
    loss: float
    cluster: ClusterLoad | None = None


class Callback:
    """Called as training goes on; all methods do nothing unless overridden, none may change the run."""

    def on_train_start(self, total_steps: int | None, step: int) -> None:
        """Training begins, `step` steps being done already."""

    def on_first_step(self, examples: int) -> None:
        """The first step of this process is done, in which the model was compiled; it had `examples` examples."""

    def on_step(self, info: StepInfo) -> None:
        """Some steps have been done; called a few times a second at most."""

    def on_epoch_end(self, epoch: int, examples: int) -> None:
        """All rows of an epoch have been trained on, `examples` in all; its evaluation and checkpoint follow."""

    def on_evaluation_start(self, step: int) -> None:
        """An evaluation begins."""

    def on_evaluation(self, step: int, metrics: dict[str, float], improved: bool) -> None:
        """An evaluation has ended; `improved` says whether the monitored metric is the best so far."""

    def on_checkpoint(self, step: int, path: Path) -> None:
        """A checkpoint has been written."""

    def on_note(self, text: str) -> None:
        """Something happened that a person should know: a worker was lost, a shard was left out."""

    def on_train_end(self, reason: str) -> None:
        """Training has ended: `completed`, `max_steps`, `early_stopping` or `interrupted`."""
