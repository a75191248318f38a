"""Row-sparse optimizers: each is a pure function of a row, its gradient and its slots.

The rows that a batch uses are gathered, updated and written back; the rest of a table is neither read nor written.
One step equals that of the Keras optimizer of the same name on the rows used. Gathering and scattering whole rows
measured at a third of `ResourceSparseApplyAdagradV2` (docs/explanation/performance.md), and one code path serves every
optimizer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import tensorflow as tf

from easyrec.config.training import EmbeddingOptimizerConfig
from easyrec.embedding.table import ShardedTable

Slots = dict[str, tf.Tensor]


class RowOptimizer(tf.Module):
    """Base of the row-sparse optimizers.

    Args:
        config: Its options.
    """

    slot_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: EmbeddingOptimizerConfig) -> None:
        super().__init__(name=config.type)
        self.config = config
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False, name="iterations")
        self.slots: dict[str, dict[str, ShardedTable]] = {}

    def build(self, tables: Mapping[str, ShardedTable]) -> None:
        """Creates the slots of the given tables, by the tables' keys."""
        for key, table in tables.items():
            self.slots[key] = {
                slot: ShardedTable(
                    f"{key}/{slot}",
                    table.rows,
                    self.slot_dim(slot, table.dim),
                    shards=len(table.shards),
                    fill=self.slot_fill(slot),
                )
                for slot in self.slot_names
            }

    def slot_fill(self, slot: str) -> float:
        """First value of a slot."""
        return 0.0

    def slot_dim(self, slot: str, dim: int) -> int:
        """Values of a slot for a row of `dim` values."""
        return dim

    def slot_values(self, dim: int) -> int:
        """Values of all slots for a row of `dim` values."""
        return sum(self.slot_dim(slot, dim) for slot in self.slot_names)

    def apply(
        self,
        key: str,
        table: ShardedTable,
        ids: tf.Tensor,
        rows: tf.Tensor,
        gradient: tf.Tensor,
        learning_rate: tf.Tensor,
    ) -> None:
        """Updates the rows of one table.

        Args:
            key: The table's key in `build`.
            table: The table.
            ids: The rows to update, each once, [U].
            rows: Their present values, [U, D].
            gradient: The gradient of the loss in them, [U, D].
            learning_rate: Scalar.
        """
        tables = self.slots[key]
        if table.remote:
            for shard, own, part in table.parts(ids, tf.cast(gradient, table.transfer)):
                with tf.device(table.shards[shard].device):
                    arrived = [tf.identity(tensor) for tensor in (own, part, learning_rate)]
                self.apply_remote(key, table, shard, *arrived)
            return
        slots = {slot: tables[slot].gather(ids) for slot in self.slot_names}
        rows, slots = self.update(rows, gradient, slots, learning_rate)
        table.scatter(ids, rows)
        for slot, values in slots.items():
            tables[slot].scatter(ids, values)

    def apply_remote(
        self,
        key: str,
        table: ShardedTable,
        shard: int,
        rows: tf.Tensor,
        gradient: tf.Tensor,
        learning_rate: tf.Tensor,
    ) -> None:
        """The same for a shard on a parameter server: gradients travel, rows and slots do not.

        Rows are read afresh, so that what other workers did since this one gathered its rows is kept; and one worker
        after the other, because whole rows are written: adding to them in place takes eight times as long.

        Args:
            key: The table's key in `build`.
            table: The table.
            shard: Which of its shards.
            rows: The shard's rows to update, each once, [U]; these tensors lie where the shard does.
            gradient: The gradient of the loss in them as it travels, [U, D].
            learning_rate: Scalar.
        """
        slots, variable = self.slots[key], table.shards[shard]
        with tf.device(variable.device):
            # Nobody waits in the lock for the network.
            with tf.control_dependencies([rows, gradient, learning_rate]):
                lock = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name=f"{key}/{shard}"))
            with tf.control_dependencies([lock]):
                before = table.rows_of(shard, rows)
                own = {slot: tf.gather(slots[slot].shards[shard], rows) for slot in self.slot_names}
            updated, changed = self.update(before, tf.cast(gradient, tf.float32), own, learning_rate)
            written = [_write(variable, rows, table.stored(updated))]
            written += [_write(slots[slot].shards[shard], rows, after) for slot, after in changed.items()]
            with tf.control_dependencies(written):
                tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)

    def finish_step(self) -> None:
        """Counts a step; called once all tables are updated."""
        self.iterations.assign_add(1)

    @abstractmethod
    def update(
        self, rows: tf.Tensor, gradient: tf.Tensor, slots: Slots, learning_rate: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        """New rows [U, D] and slots [U, `slot_dim`]."""


class Adagrad(RowOptimizer):
    """a ← a + g²; w ← w − lr g / sqrt(a + ε) (Duchi et al. 2011; ε as in Keras)."""

    slot_names = ("accumulator",)

    def slot_fill(self, slot: str) -> float:
        """The configured start of the sums of squares."""
        return self.config.initial_accumulator

    def update(
        self, rows: tf.Tensor, gradient: tf.Tensor, slots: Slots, learning_rate: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        """The class's equation."""
        accumulator = slots["accumulator"] + tf.square(gradient)
        step = learning_rate * gradient * tf.math.rsqrt(accumulator + self.config.epsilon)
        return rows - step, {"accumulator": accumulator}


class RowWiseAdagrad(Adagrad):
    """a ← a + mean(g²), one a for each row; w ← w − lr g / sqrt(a + ε).

    A slot of one value where Adagrad has one as wide as the row, which for rows of 16 values is nearly half the memory
    (Mudigere et al. 2022, Software-Hardware Co-design for Fast and Scalable Training of Deep Learning Recommendation
    Models, section 4.1.4).
    """

    def slot_dim(self, slot: str, dim: int) -> int:
        """One value a row."""
        return 1

    def update(
        self, rows: tf.Tensor, gradient: tf.Tensor, slots: Slots, learning_rate: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        """The class's equation."""
        accumulator = slots["accumulator"] + tf.reduce_mean(tf.square(gradient), axis=1, keepdims=True)
        step = learning_rate * gradient * tf.math.rsqrt(accumulator + self.config.epsilon)
        return rows - step, {"accumulator": accumulator}


class LazyAdam(RowOptimizer):
    """Adam on the rows used (Kingma & Ba 2015): m ← β₁ m + (1 − β₁) g; v ← β₂ v + (1 − β₂) g²;
    w ← w − lr sqrt(1 − β₂ᵗ) / (1 − β₁ᵗ) m / (sqrt(v) + ε).

    t counts all steps, so a rare row's first update is not enlarged as if it were the first of training; moments
    of rows that a batch does not use stay as they are.
    """  # noqa: D205 - the formula does not fit one line

    slot_names = ("m", "v")

    def update(
        self, rows: tf.Tensor, gradient: tf.Tensor, slots: Slots, learning_rate: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        """The class's equation."""
        beta_1, beta_2 = self.config.beta_1, self.config.beta_2
        time = tf.cast(self.iterations + 1, tf.float32)
        rate = learning_rate * tf.sqrt(1 - tf.pow(beta_2, time)) / (1 - tf.pow(beta_1, time))
        m = slots["m"] + (1 - beta_1) * (gradient - slots["m"])
        v = slots["v"] + (1 - beta_2) * (tf.square(gradient) - slots["v"])
        return rows - rate * m / (tf.sqrt(v) + self.config.epsilon), {"m": m, "v": v}


class SGD(RowOptimizer):
    """w ← w − lr g."""

    def update(
        self, rows: tf.Tensor, gradient: tf.Tensor, slots: Slots, learning_rate: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        """The class's equation."""
        return rows - learning_rate * gradient, {}


def _write(variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=rows, updates=values)


_OPTIMIZERS: dict[str, type[RowOptimizer]] = {
    "adagrad": Adagrad,
    "row_wise_adagrad": RowWiseAdagrad,
    "lazy_adam": LazyAdam,
    "sgd": SGD,
}


def row_optimizer(config: EmbeddingOptimizerConfig) -> RowOptimizer:
    """The optimizer that `config.type` names."""
    return _OPTIMIZERS[config.type](config)


def clip_rows(gradient: tf.Tensor, norm: float) -> tf.Tensor:
    """Scales down each row of a gradient [U, D] so that its norm is at most `norm`."""
    return tf.clip_by_norm(gradient, norm, axes=[-1])
