"""The outer loop: epochs, evaluations, checkpoints, stopping. START HERE to understand training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from easyrec.config.training import TrainingConfig
from easyrec.errors import CheckpointError, TrainingError
from easyrec.features.outputs import FeatureSchema
from easyrec.training.callbacks import Callback, ClusterLoad, StepInfo
from easyrec.training.checkpoints import Checkpoint, CheckpointStore, Progress, restore
from easyrec.training.diagnosis import Suspects
from easyrec.training.interrupts import GracefulInterrupt
from easyrec.training.log import RunLog
from easyrec.training.meter import Meter, peak_memory_bytes, rates, release_freed_memory
from easyrec.training.prefetch import BatchStream, Prefetcher, PreparedBatch, prepare
from easyrec.training.report import TrainingResult
from easyrec.training.schedules import schedule_factor
from easyrec.training.state import training_state
from easyrec.training.step import TrainableNetwork, TrainStep
from easyrec.training.stopping import EarlyStopping, Monitor

Evaluate = Callable[[], dict[str, float]]
_SECONDS_BETWEEN_CALLBACKS = 0.25


class Trainer:
    """Trains a network on one machine, with a log, evaluations and checkpoints in a run's directory.

    Args:
        network: The network; its weights are changed.
        config: How it is trained.
        directory: The run's directory: `log.jsonl`, `checkpoints/` and `tensorboard/` are written there.
        rows: Rows of an epoch, or None when not known; for progress and for schedules that end with training.
        evaluate: Measures the network as it is: `task/metric` -> value. The first metric is monitored unless the
            configuration names one.
        schema: Names the numbers in error messages.
        callbacks: Follow the training.
    """

    def __init__(
        self,
        network: TrainableNetwork,
        config: TrainingConfig,
        directory: Path,
        *,
        rows: int | None = None,
        evaluate: Evaluate | None = None,
        schema: FeatureSchema | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.network = network
        self.config = config
        self.directory = Path(directory)
        self.checkpoints = CheckpointStore(self.directory / "checkpoints", config.checkpoints.keep)
        self.progress = Progress(seed=config.seed)
        self.total_steps = _total_steps(config, rows)
        self.step = self._make_step(network, config)
        self._evaluate = evaluate
        self._suspects = Suspects(schema)
        self._callbacks = tuple(callbacks)
        self._factor = schedule_factor(config.optimizer.schedule, self.total_steps)
        self._stopping = EarlyStopping(config.early_stopping)
        early = config.early_stopping.metric if config.early_stopping else None
        self._monitor = Monitor(config.checkpoints.metric or early)
        self._evaluations: list[dict[str, Any]] = []
        self._evaluated_step = -1
        self._improved = False
        self._sums: dict[str, float] = {}
        self._summed = 0

    def fit(self, stream: BatchStream, *, resume: bool = False) -> TrainingResult:
        """Trains to the end, or to a signal.

        Args:
            stream: The training data; the same epoch must give the same batches for a resumed run to equal an
                uninterrupted one.
            resume: Go on from the latest whole checkpoint, if there is one.

        Raises:
            TrainingError: There are no rows, or the loss is no longer a finite number.
            CheckpointError: The checkpoint to resume is of another model, or none can be written.
        """
        if resume:
            self._resume()
        tensorboard = self.directory / "tensorboard" if self.config.tensorboard else None
        with GracefulInterrupt() as interrupt, RunLog(self.directory / "log.jsonl", tensorboard) as log:
            self._log, self._interrupt, self._meter = log, interrupt, Meter()
            self._first: tuple[int, float, float] | None = None
            self._write("start", {"epoch": self.progress.epoch, "batches": self.progress.batches})
            self._call("on_train_start", self.total_steps, self.progress.step)
            reason = self._epochs(stream)
            result = self._result(reason)
            self._write("end", {"reason": reason, "examples_per_second": result.examples_per_second})
            self._call("on_train_end", reason)
        return result

    # What other ways of training do differently.

    def _make_step(self, network: TrainableNetwork, config: TrainingConfig) -> TrainStep:
        return TrainStep(network, config)

    def _prepare_batch(self, batch: Any) -> PreparedBatch:
        return prepare(self.network.embeddings, batch)

    @property
    def _interrupted(self) -> bool:
        return self._interrupt.requested is not None

    # The loop.

    def _epochs(self, stream: BatchStream) -> str:
        while self.progress.epoch < self.config.epochs:
            if self._stopping.stop:
                return "early_stopping"
            if self._reached_max():
                return "max_steps"
            reason = self._epoch(stream)
            if reason is None and self._interrupted:
                reason = "interrupted"  # while the epoch was measured; its checkpoint has been written
            if reason is not None:
                return reason
        return "completed"

    def _epoch(self, stream: BatchStream) -> str | None:
        """Trains on the rest of an epoch; why training must end, or None."""
        before = self.progress.batches
        batches = stream.batches(self.progress.epoch, skip=before)
        with Prefetcher(batches, self._prepare_batch) as prefetcher:
            self._meter.resume()
            waited = 0.0
            for batch in prefetcher:
                self._train(batch, prefetcher.wait_seconds - waited)
                waited = prefetcher.wait_seconds
                reason = self._after_step()
                if reason is not None:
                    return reason
            self._meter.pause()
        if self.progress.batches == 0:
            raise TrainingError(
                "there are no rows to train on; look at the rows dropped and why in the run's report, at `data.where` "
                "and at the split"
            )
        self._call("on_epoch_end", self.progress.epoch, self.progress.examples)
        metrics = self._measure()
        self.progress = replace(self.progress, epoch=self.progress.epoch + 1, batches=0)
        self._save(metrics)
        return None

    def _train(self, batch: PreparedBatch, waited: float) -> None:
        step = self.progress.step
        factor = self._factor(step)
        self._suspects.watch(batch.arrays)
        losses = {
            name: float(value) for name, value in self.step(batch.tensors, batch.lookup, factor).items()
        }
        if not math.isfinite(losses["loss"]):
            raise TrainingError(self._suspects.explain(step + 1, losses, batch.arrays))
        self.progress = replace(
            self.progress,
            step=step + 1,
            batches=self.progress.batches + 1,
            examples=self.progress.examples + batch.num_rows,
        )
        self._meter.tick(batch.num_rows, waited)
        if self._first is None:
            self._first = (self._meter.examples, self._meter.seconds, self._meter.wait_seconds)
            self._called = time.perf_counter()
            release_freed_memory()
            self._call("on_first_step", self.progress.examples)
        for name, value in losses.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._summed += 1

    def _after_step(self) -> str | None:
        step, config = self.progress.step, self.config
        if step % config.log_every == 0:
            self._log_step()
        elif time.perf_counter() - self._called > _SECONDS_BETWEEN_CALLBACKS:
            self._tell(self._meter.peek())
        if self._interrupted:
            self._meter.pause()
            self._save({})
            return "interrupted"
        ended = self._reached_max()
        evaluates = config.evaluate_every is not None and step % config.evaluate_every == 0
        saves = config.checkpoints.every_steps is not None and step % config.checkpoints.every_steps == 0
        if ended or evaluates or saves:
            self._meter.pause()
            metrics = self._measure() if ended or evaluates else {}
            if ended or saves or self._improved:
                self._save(metrics)
            self._meter.resume()
        if ended:
            return "max_steps"
        return "early_stopping" if evaluates and self._stopping.stop else None

    def _reached_max(self) -> bool:
        return self.config.max_steps is not None and self.progress.step >= self.config.max_steps

    # Evaluation and checkpoints.

    def _measure(self) -> dict[str, float]:
        """Evaluates once per step; notes whether it is the best so far."""
        step = self.progress.step
        self._improved = False
        if self._evaluate is None:
            return {}
        if self._evaluated_step == step:
            return self._evaluations[-1]["metrics"]
        self._call("on_evaluation_start", step)
        metrics = self._evaluate()
        self._evaluated_step = step
        self._evaluations.append({"step": step, "metrics": metrics})
        self._improved = self._monitor.update(metrics)
        self._stopping.update(metrics)
        self._write("evaluation", {"epoch": self.progress.epoch, **metrics})
        self._call("on_evaluation", step, metrics, self._improved)
        return metrics

    def _save(self, metrics: dict[str, float]) -> None:
        self.progress = replace(
            self.progress,
            metrics=metrics,
            monitor=self._monitor.describe() if metrics else None,
            stopping={"early_stopping": self._stopping.state(), "best": self._monitor.best},
        )
        checkpoint = self.checkpoints.save(training_state(self.step), self.progress)
        self._write("checkpoint", {"path": checkpoint.path.name})
        self._call("on_checkpoint", self.progress.step, checkpoint.path)

    def _resume(self) -> None:
        checkpoint = _latest_whole(self.checkpoints)
        if checkpoint is None:
            return
        if checkpoint.progress.seed != self.config.seed:
            raise CheckpointError(
                f"{checkpoint.path}: was trained with seed {checkpoint.progress.seed}, the configuration says "
                f"{self.config.seed}; the rest of the epoch would not be the rest. Use the same seed"
            )
        restore(checkpoint, training_state(self.step))
        self.progress = checkpoint.progress
        if self.progress.stopping is not None:
            self._stopping.restore(self.progress.stopping["early_stopping"])
            self._monitor.best = self.progress.stopping["best"]
            if self.progress.monitor is not None and self._monitor.metric is None:
                self._monitor.metric = self.progress.monitor["metric"]

    # What is told to the log and the callbacks.

    def _log_step(self) -> None:
        rate, wait = self._meter.lap()
        optimizer, factor = self.config.optimizer, self._factor(self.progress.step - 1)
        self._write(
            "train",
            {
                "epoch": self.progress.epoch,
                **{name: value / self._summed for name, value in self._sums.items()},
                "examples": self.progress.examples,
                "examples_per_second": rate,
                "wait_share": wait,
                "memory_mib": self._meter.memory_bytes / 2**20,
                "learning_rate/dense": factor * optimizer.dense.learning_rate,
                "learning_rate/embedding": factor * optimizer.embedding.learning_rate,
                **self._log_more(),
            },
        )
        self._tell((rate, wait))
        self._sums, self._summed = {}, 0

    def _log_more(self) -> dict[str, Any]:
        """More for a line of the log."""
        return {}

    def _cluster_load(self) -> ClusterLoad | None:
        """Who does how much, on a cluster."""
        return None

    def _tell(self, speed: tuple[float, float]) -> None:
        self._called = time.perf_counter()
        if self._callbacks:
            progress = self.progress
            loss = self._sums["loss"] / self._summed
            self._call(
                "on_step",
                StepInfo(
                    progress.step, self.total_steps, progress.epoch, self.config.epochs, progress.examples,
                    *speed, self._meter.memory_bytes, loss, self._cluster_load(),
                ),
            )  # fmt: skip

    def _write(self, event: str, values: dict[str, Any]) -> None:
        self._log.write(event, self.progress.step, {"time": time.time(), **values})

    def _call(self, method: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, method)(*arguments)

    def _result(self, reason: str) -> TrainingResult:
        meter = self._meter
        examples, seconds, wait = self._first or (0, 0.0, 0.0)
        rate, share = rates(meter.examples - examples, meter.seconds - seconds, meter.wait_seconds - wait)
        best = self.checkpoints.best()
        rated = best is not None and best.progress.monitor is not None
        return TrainingResult(
            reason=reason,
            steps=self.progress.step,
            epochs=self.progress.epoch,
            examples=self.progress.examples,
            seconds=meter.seconds,
            examples_per_second=rate,
            wait_share=share,
            peak_memory_bytes=peak_memory_bytes(),
            best_step=best.step if best is not None and rated else None,
            monitor=self._monitor.metric,
            evaluations=self._evaluations,
        )


def _total_steps(config: TrainingConfig, rows: int | None) -> int | None:
    if rows is None:
        return config.max_steps
    steps = config.epochs * math.ceil(rows / config.batch_size)
    return steps if config.max_steps is None else min(steps, config.max_steps)


def _latest_whole(store: CheckpointStore) -> Checkpoint | None:
    """The latest checkpoint whose files are as they were written."""
    damage: CheckpointError | None = None
    for checkpoint in reversed(store.all()):
        try:
            checkpoint.verify()
        except CheckpointError as error:
            damage = damage or error
            continue
        return checkpoint
    if damage is not None:
        raise damage
    return None
