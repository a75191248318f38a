"""The loop of synchronous training on a cluster: rounds of one batch a worker, one update each."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from easyrec.data.prepared.shards import ShardSet
from easyrec.training.cluster.dispatch import Dispatcher, Outcome, Task
from easyrec.training.cluster.synchronous import GradientFunction, RoundUpdate
from easyrec.training.cluster.trainer import ClusterTrainer

_POLL_SECONDS = 0.2
_Batch = tuple[int, int]
"""A split, and the position of a batch in it."""


class SynchronousTrainer(ClusterTrainer):
    """Trains in rounds: every batch of a round is computed from the same weights, which are then updated once.

    A step is a round. W workers learn what one machine learns from batches W times as large. The batches of splits
    follow each other in the order of the epoch; before a checkpoint or an evaluation the split under way is finished,
    and the round that does it may have fewer batches.

    Args:
        *args: As for `ClusterTrainer`.
        **options: As for `ClusterTrainer`.
    """

    def _steps(self, shards: ShardSet, workers: int) -> int:
        return self.config.epochs * -(-shards.batches // workers)

    def _connect(self, coordinator: Any, strategy: tf.distribute.Strategy) -> Dispatcher:
        shards = self.shards
        self._gradients = GradientFunction(self.step, shards.layout, shards.batch_size)
        kinds = {self._rows(batch) == shards.batch_size for batch in self._batches(range(len(shards.splits)))}
        for full in kinds:
            self._gradients.of(full)
        self._update = RoundUpdate(strategy, self.step)

        def schedule(arguments: tuple[Any, ...]) -> Any:
            full, *rest = arguments
            return coordinator.schedule(self._gradients.of(full), args=tuple(rest))

        return Dispatcher(schedule, capacity=self._workers, timeout=self.config.cluster.split_timeout)

    def _batches(self, splits: Any, seed: int | None = None) -> list[_Batch]:
        """The batches of splits: in random order by `seed`, those that are not full last."""
        found = []
        for split in splits:
            places = np.arange(self.shards.splits[split].batches)
            if seed is not None:
                places = np.random.default_rng([seed, split]).permutation(places)
            batches = [(split, int(place)) for place in places]
            found += sorted(batches, key=lambda batch: self._rows(batch) < self.shards.batch_size)
        return found

    def _rows(self, batch: _Batch) -> int:
        split, place = self.shards.splits[batch[0]], batch[1]
        return min(self.shards.batch_size, split.rows - place * self.shards.batch_size)

    def _epoch(self, stream: Any) -> str | None:
        epoch = self.progress.epoch
        done = set(self.progress.splits)
        waiting = deque(index for index in self._order(epoch) if index not in done)
        seed = epoch + 1 if self._shuffle else None
        opened: deque[_Batch] = deque()
        left = Counter({index: self.shards.splits[index].batches for index in waiting})
        due: set[str] = set()
        self._meter.resume()
        self.loads.resume()
        while waiting or opened:
            if "end" in due or ((due or self._ending) and not opened):
                reason, due = self._pause(due), set()
                if reason is not None:
                    return reason
            chosen: list[_Batch] = []
            while len(chosen) < self._workers and (opened or (waiting and not due and not self._ending)):
                if not opened:
                    opened.extend(self._batches([waiting.popleft()], seed))
                chosen.append(opened.popleft())
            before = self.progress.step
            damaged = self._round(chosen)
            opened = deque(batch for batch in opened if batch[0] not in damaged)
            left.subtract(split for split, _ in chosen)
            finished = [split for split in dict.fromkeys(split for split, _ in chosen) if not left[split]]
            splits = [*self.progress.splits, *(split for split in finished if split not in damaged)]
            self.progress = replace(self.progress, splits=splits)
            due |= self._fell_due(before)
        self._end_epoch()
        return None

    def _round(self, chosen: list[_Batch]) -> set[int]:
        """Trains on some batches with one update; gives back the splits that turned out to be damaged."""
        outcomes: dict[_Batch, Outcome] = {}
        damaged: set[int] = set()
        places = {}
        for batch in chosen:
            places[self._place] = batch
            self._submit(batch)
        while self._dispatcher.running:
            for outcome in self._dispatcher.collect(_POLL_SECONDS):
                batch = places[outcome.task.place]
                if outcome.values is not None:
                    outcomes[batch] = outcome
                elif batch[0] not in damaged and self._failed(outcome) is None:
                    damaged.add(batch[0])
                elif batch[0] not in damaged:
                    places[self._place] = batch
                    self._submit(batch)
            self._watch()
        if outcomes:
            self._apply({batch: outcomes[batch] for batch in chosen if batch in outcomes})
        return damaged

    def _submit(self, batch: _Batch) -> None:
        split = self.shards.splits[batch[0]]
        full = self._rows(batch) == self.shards.batch_size
        arguments = (full, tf.constant(self.shards.path(split)), tf.constant(batch[1], tf.int64))
        self._dispatcher.submit(Task(self._place, batch[0], arguments))
        self._place += 1

    def _apply(self, outcomes: dict[_Batch, Outcome]) -> None:
        rows = [self._rows(batch) for batch in outcomes]
        values = [outcome.values or {} for outcome in outcomes.values()]
        shares = np.array(rows) / sum(rows)
        means = shares @ np.array([one["losses"] for one in values])
        losses = dict(zip(self._gradients.names, means.tolist(), strict=True))
        self._check_loss(losses["loss"], self.shards.splits[next(iter(outcomes))[0]])
        penalty = self._update(values, rows, self._factor(self.progress.step))
        if self.network.embeddings.l2:
            losses["embedding_l2"] = penalty
            losses["loss"] += penalty
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            batches=self.progress.batches + len(rows),
            examples=self.progress.examples + sum(rows),
        )
        for outcome, number in zip(outcomes.values(), rows, strict=True):
            self._meter.tick(number, self.loads.take(outcome, number))
        self._after_steps(1, losses)
