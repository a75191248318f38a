"""The outer loop on a cluster: the same epochs, evaluations, checkpoints and stopping, but splits instead of steps."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from easyrec.data.prepared.shards import ShardSet, Split, damaged
from easyrec.errors import TrainingError
from easyrec.training.callbacks import ClusterLoad
from easyrec.training.cluster.dispatch import Dispatcher, Outcome, Task
from easyrec.training.cluster.errors import lost, of_a_shard, to_be_done_again
from easyrec.training.cluster.load import ServerLoads, WorkerLoads
from easyrec.training.cluster.split_function import SplitFunction
from easyrec.training.schedules import schedule_factor
from easyrec.training.trainer import Trainer

_POLL_SECONDS = 0.2


class ClusterTrainer(Trainer):
    """Trains a network whose weights lie on parameter servers, splits handed out to workers.

    Checkpoints and evaluations wait until all splits under way are done, so that a checkpoint holds the weights after
    exactly the splits it names.

    Args:
        *args: As for `Trainer`.
        shards: The training data.
        coordinator: TensorFlow's, which hands functions to workers.
        strategy: In whose scope the network was made.
        workers: How many workers there are.
        shuffle: Take splits, and batches in them, in random order.
        skip_damaged: Leave out damaged shards instead of ending the run.
        on_hang: Called with files of splits that seem to hang.
        servers: Knows how busy the servers are.
        **options: As for `Trainer`.
    """

    def __init__(
        self,
        *args: Any,
        shards: ShardSet,
        coordinator: Any,
        strategy: tf.distribute.Strategy,
        workers: int,
        shuffle: bool = True,
        skip_damaged: bool = False,
        on_hang: Any = lambda files: None,
        servers: ServerLoads | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, rows=shards.rows, **options)
        if self.config.max_steps is None:
            self.total_steps = self._steps(shards, workers)
            self._factor = schedule_factor(self.config.optimizer.schedule, self.total_steps)
        self.shards = shards
        for table in self.network.embeddings.tables.values():
            table.transfer = tf.as_dtype(self.config.cluster.transfer)
        self.loads = WorkerLoads(workers)
        self._left_out = 0
        self._workers = workers
        self._shuffle = shuffle
        self._skip_damaged = skip_damaged
        self._on_hang = on_hang
        self._dispatcher = self._connect(coordinator, strategy)
        self._place = 0
        self._servers = servers
        self._asked_to_end: str | None = None

    def _steps(self, shards: ShardSet, workers: int) -> int:
        """Of the whole training, as far as is known."""
        return self.config.epochs * shards.batches

    def _connect(self, coordinator: Any, strategy: tf.distribute.Strategy) -> Dispatcher:
        """What hands out work."""
        self.function = SplitFunction(
            strategy,
            self.step,
            self.shards.layout,
            self.shards.batch_size,
            self.config.cluster.concurrent_batches,
        )
        return Dispatcher(
            lambda arguments: coordinator.schedule(self.function.train, args=arguments),
            capacity=self._workers + 1,
            staleness=self.config.cluster.staleness,
            timeout=self.config.cluster.split_timeout,
        )

    def interrupt(self, signal_name: str) -> None:
        """Asks training to end after the splits under way, with a checkpoint."""
        self._asked_to_end = signal_name

    @property
    def _ending(self) -> bool:
        return self._asked_to_end is not None or self._interrupt.requested is not None

    # The loop.

    def _epoch(self, stream: Any) -> str | None:
        epoch = self.progress.epoch
        order = self._order(epoch)
        done = set(self.progress.splits)
        waiting = deque(index for index in order if index not in done)
        assigned = self.progress.step
        due: set[str] = set()
        self._meter.resume()
        self.loads.resume()
        while waiting or self._dispatcher.running:
            pausing = bool(due) or self._ending
            while waiting and not pausing and self._dispatcher.may_submit(self._place):
                task = self._task(waiting[0], assigned, epoch)
                if task is None:
                    break
                assigned += len(task.arguments[1])
                waiting.popleft()
                self._dispatcher.submit(task)
                self._place += 1
            if not self._dispatcher.running:
                reason, due = self._pause(due), set()
                if reason is not None:
                    return reason
                continue
            before = self.progress.step
            for outcome in self._dispatcher.collect(_POLL_SECONDS):
                again = self._take(outcome)
                if again is not None:
                    waiting.appendleft(again)
            due |= self._fell_due(before)
            self._watch()
        self._end_epoch()
        return None

    def _end_epoch(self) -> None:
        self._meter.pause()
        self._check_epoch()
        self._call("on_epoch_end", self.progress.epoch, self.progress.examples)
        metrics = self._measure()
        self._left_out = 0
        self.progress = replace(self.progress, epoch=self.progress.epoch + 1, batches=0, splits=[])
        self._save(metrics)

    def _order(self, epoch: int) -> list[int]:
        seed = int(np.random.SeedSequence([self.config.seed, epoch]).generate_state(1)[0])
        return self.shards.order(seed if self._shuffle else None)

    def _task(self, split: int, step: int, epoch: int) -> Task | None:
        """What a worker is told of a split; None when no step is left to do."""
        one = self.shards.splits[split]
        count = one.batches
        if self.config.max_steps is not None:
            count = min(count, self.config.max_steps - step)
        if count <= 0:
            return None
        factors = np.array([self._factor(step + offset) for offset in range(count)], np.float32)
        full = min(count, one.rows // self.shards.batch_size)
        seed = epoch + 1 if self._shuffle else -1
        return Task(
            self._place,
            split,
            (
                tf.constant(self.shards.path(one)),
                tf.constant(factors),
                tf.constant(full, tf.int32),
                tf.constant(seed, tf.int64),
            ),
        )

    def _take(self, outcome: Outcome) -> int | None:
        """Counts a split that is done; gives back one that must be trained again."""
        if outcome.values is None:
            return self._failed(outcome)
        split = self.shards.splits[outcome.task.split]
        batches = len(outcome.task.arguments[1])
        whole = batches == split.batches
        rows = split.rows if whole else batches * self.shards.batch_size
        losses = dict(zip(self.function.names, np.asarray(outcome.values["losses"]).tolist(), strict=True))
        self._check_loss(losses["loss"], split)
        self.progress = replace(
            self.progress,
            step=self.progress.step + batches,
            batches=self.progress.batches + batches,
            examples=self.progress.examples + rows,
            splits=[*self.progress.splits, outcome.task.split] if whole else self.progress.splits,
        )
        self._meter.tick(rows, self.loads.take(outcome, rows))
        self._after_steps(batches, losses)
        return None

    def _check_loss(self, loss: float, split: Split) -> None:
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss is not a finite number in the split {self.shards.path(split)}, which began after step "
                f"{self.progress.step}. Training has stopped; no checkpoint holds these weights. Try a lower "
                "`training.optimizer.dense.learning_rate` and `training.optimizer.embedding.learning_rate`, "
                "`training.optimizer.clip_norm: 1.0`, or warm-up steps"
            )

    def _failed(self, outcome: Outcome) -> int | None:
        """A split that failed: to be trained again, left out, or the end.

        Raises:
            ServerLostError: A parameter server is gone.
            DataError: The shard is damaged.
        """
        error, split = outcome.error, self.shards.splits[outcome.task.split]
        if to_be_done_again(error):
            return outcome.task.split
        if not of_a_shard(error):
            raise lost(error) from error
        trouble = damaged(self.shards.path(split), error)
        if not self._skip_damaged:
            raise trouble from error
        self._left_out += 1
        self._write("skipped", {"split": split.file, "rows": split.rows})
        self._call("on_note", f"left out a damaged shard: {trouble}")
        self.progress = replace(self.progress, splits=[*self.progress.splits, outcome.task.split])
        return None

    def _after_steps(self, steps: int, losses: dict[str, float]) -> None:
        """Notes losses, summed over steps that are done."""
        for name, value in losses.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._summed += steps
        if self._first is None:
            self._first = (self._meter.examples, self._meter.seconds, self._meter.wait_seconds)
            self._call("on_first_step", self.progress.examples)
        step, every = self.progress.step, self.config.log_every
        if step // every > (step - steps) // every:
            self._log_step()
        else:
            self._tell(self._meter.peek())

    def _fell_due(self, before: int) -> set[str]:
        """What fell due between two steps: `evaluation`, `checkpoint`, `end`."""
        config, step = self.config, self.progress.step
        periods = {"evaluation": config.evaluate_every, "checkpoint": config.checkpoints.every_steps}
        found = {name for name, every in periods.items() if every and step // every > before // every}
        return found | {"end"} if self._reached_max() else found

    def _pause(self, due: set[str]) -> str | None:
        """With nothing under way: evaluates and saves what fell due; why training must end, or None."""
        self._meter.pause()
        if self._ending:
            self._save({})
            return "interrupted"
        evaluates = bool(due & {"evaluation", "end"})
        if due:
            metrics = self._measure() if evaluates else {}
            if due & {"checkpoint", "end"} or self._improved:
                self._save(metrics)
        self._meter.resume()
        self.loads.resume()
        if "end" in due:
            return "max_steps"
        return "early_stopping" if evaluates and self._stopping.stop else None

    def _watch(self) -> None:
        hanging = self._dispatcher.hanging()
        if hanging:
            files = [self.shards.splits[task.split].file for task in hanging]
            self._write("hanging", {"splits": files, "seconds": self._dispatcher.limit})
            self._on_hang(files)

    def _check_epoch(self) -> None:
        """Each split was trained once, or left out and named."""
        finished = self.progress.splits
        if sorted(finished) != list(range(len(self.shards.splits))):
            raise TrainingError(
                f"epoch {self.progress.epoch}: {len(finished)} splits were counted where there are "
                f"{len(self.shards.splits)}; this is a fault in EasyRec"
            )
        if self.progress.batches == 0:
            raise TrainingError(
                "every shard is damaged, so there was nothing to train on; prepare the shards again"
            )
        self._write(
            "epoch",
            {
                "epoch": self.progress.epoch,
                "splits": len(finished) - self._left_out,
                "skipped": self._left_out,
                "repeated": self._dispatcher.repeated,
                "batches": self.progress.batches,
            },
        )

    def _log_more(self) -> dict[str, Any]:
        """Beside what every training logs: who did how much."""
        return {
            "workers": self.loads.report(),
            "servers": {} if self._servers is None else self._servers.latest,
            "bytes_moved": self.loads.bytes_moved,
            "running": self._dispatcher.running,
        }

    def _cluster_load(self) -> ClusterLoad:
        workers = {name: worker["examples_per_second"] for name, worker in self.loads.report().items()}
        loads = {} if self._servers is None else self._servers.latest
        servers = {name: server["cpus"] for name, server in loads.items()}
        done, of = len(self.progress.splits), len(self.shards.splits)
        return ClusterLoad(done, of, workers, servers, self.loads.bytes_moved)
