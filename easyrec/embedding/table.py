"""A table of rows as a list of shards: row `id` is row `id // n` of shard `id % n`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from easyrec.embedding.huge_pages import ask_for_huge_pages

# Rows written to or read from a variable at once: large enough to be quick, small beside the table.
SLICE_ROWS = 1 << 16


class ShardedTable(tf.Module):
    """Rows of equal width, trainable or an optimizer's slot.

    Args:
        name: Name of the variables, for errors and graphs.
        rows: Number of rows.
        dim: Values per row.
        shards: How many variables hold them.
        fill: First value of all cells.
        storage: Type of the variables; rows are float32 outside.

    Attributes:
        shards: The variables.
        remote: Whether they lie on parameter servers.
        transfer: Type that rows and their gradients have on the way between a worker and the servers.
    """

    def __init__(
        self,
        name: str,
        rows: int,
        dim: int,
        *,
        shards: int = 1,
        fill: float = 0.0,
        storage: str = "float32",
    ) -> None:
        super().__init__(name=_identifier(name))
        self.rows = rows
        self.dim = dim
        self.storage = tf.as_dtype(storage)
        self.transfer = tf.float32
        self.shards = []
        for shard in range(shards):
            shape = (len(range(shard, rows, shards)), dim)
            variable = tf.Variable(
                # A function runs where the variable lies, so that no table travels there.
                partial(_filled, shape, fill, self.storage),
                dtype=self.storage,
                shape=shape,
                trainable=False,  # Keras and gradient tapes must never see it as a dense weight
                name=f"{_identifier(name)}_{shard}" if shards > 1 else _identifier(name),
            )
            self.shards.append(variable)
        self.remote = any("/job:ps/" in shard.device for shard in self.shards)
        if not self.remote:
            for shard in self.shards:
                ask_for_huge_pages(shard)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on the way between a worker and the servers."""
        return int(self.dim * self.transfer.size)

    def gather(self, ids: tf.Tensor) -> tf.Tensor:
        """Rows of the ids [U], as [U, dim]."""
        return self.received(ids, self.sent(ids))

    def sent(self, ids: tf.Tensor) -> list[tf.Tensor]:
        """Rows of the ids [U] that each shard has, where it lies and as they travel, [U of the shard, dim]."""
        count = len(self.shards)
        if count == 1:
            return [self._sent(0, ids)]
        local = tf.dynamic_partition(ids // count, tf.cast(ids % count, tf.int32), count)
        return [self._sent(shard, part) for shard, part in enumerate(local)]

    def received(self, ids: tf.Tensor, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """Rows of the ids [U], as [U, dim], from what each shard has sent."""
        count = len(self.shards)
        if count == 1:
            return tf.cast(parts[0], tf.float32)
        places = tf.dynamic_partition(tf.range(tf.size(ids)), tf.cast(ids % count, tf.int32), count)
        return tf.cast(tf.reshape(tf.dynamic_stitch(places, parts), [-1, self.dim]), tf.float32)

    def _sent(self, shard: int, rows: tf.Tensor) -> tf.Tensor:
        """Rows [U] of one shard as they travel, [U, dim]."""
        if not self.remote:
            return self.rows_of(shard, rows)
        with tf.device(self.shards[shard].device):
            return tf.cast(tf.gather(self.shards[shard], rows), self.transfer)

    def rows_of(self, shard: int, rows: tf.Tensor) -> tf.Tensor:
        """Rows [U] of one shard, as [U, dim] float32."""
        return tf.cast(tf.gather(self.shards[shard], rows), tf.float32)

    def stored(self, values: tf.Tensor) -> tf.Tensor:
        """Values as they are stored.

        To bfloat16 they are rounded up or down at random, with the chances that make the mean right: its 8 bits would
        swallow most updates of a row, one as small as 1/256 of the value or less.
        """
        if self.storage == tf.bfloat16:
            bits = tf.bitcast(values, tf.uint32)
            noise = tf.cast(tf.random.uniform(tf.shape(values), 0, 1 << 16, tf.int32), tf.uint32)
            kept = tf.bitwise.bitwise_and(bits + noise, tf.constant(0xFFFF0000, tf.uint32))
            values = tf.bitcast(kept, tf.float32)
        return tf.cast(values, self.storage)

    def scatter(self, ids: tf.Tensor, values: tf.Tensor) -> None:
        """Overwrites the rows of the ids [U], each given once, with the values [U, dim]."""
        for shard, rows, part in self.parts(ids, self.stored(values)):
            self.shards[shard].scatter_update(tf.IndexedSlices(part, rows))

    def parts(self, ids: tf.Tensor, values: tf.Tensor) -> list[tuple[int, tf.Tensor, tf.Tensor]]:
        """The ids [U] and values [U, D] that belong to each shard: its index, rows of it, and their values."""
        count = len(self.shards)
        if count == 1:
            return [(0, ids, values)]
        owners = tf.cast(ids % count, tf.int32)
        rows = tf.dynamic_partition(ids // count, owners, count)
        return list(zip(range(count), rows, tf.dynamic_partition(values, owners, count), strict=True))

    def read(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.float32]:
        """Rows from `start` to before `stop` (the end unless given) in order of ids, [stop - start, dim]."""
        stop = self.rows if stop is None else stop
        count = len(self.shards)
        values = np.empty((stop - start, self.dim), np.float32)
        for index in range(count):
            first = (index - start) % count
            row, rows = (start + first) // count, len(range(start + first, stop, count))
            # Reading a variable that is scattered to, or a slice of it, copies all of it; gathering does not.
            values[first::count] = self.rows_of(index, tf.range(row, row + rows)).numpy()
        return values

    def write(self, start: int, values: npt.NDArray[np.float32]) -> None:
        """Overwrites the rows from `start` on with `values` [n, dim], in order of ids."""
        count = len(self.shards)
        for index, shard in enumerate(self.shards):
            first = (index - start) % count
            part = values[first::count]
            if len(part):
                row = (start + first) // count
                # Assigning to a slice would copy the whole variable; scattering writes in place.
                cells = tf.cast(part, self.storage)  # to the nearest: what was stored comes back as it was
                shard.scatter_update(tf.IndexedSlices(cells, tf.range(row, row + len(part))))

    def fill(self, value: float) -> None:
        """Gives all cells a value, in place: assigning would put the variable elsewhere in memory."""
        for start in range(0, self.rows, SLICE_ROWS):
            rows = min(SLICE_ROWS, self.rows - start)
            self.write(start, np.full((rows, self.dim), value, np.float32))

    def slices(self, start: int, stop: int) -> Iterator[npt.NDArray[np.float32]]:
        """Rows from `start` to before `stop`, at most SLICE_ROWS at a time."""
        for first in range(start, stop, SLICE_ROWS):
            yield self.read(first, min(first + SLICE_ROWS, stop))


def _filled(shape: tuple[int, int], value: float, storage: tf.DType) -> tf.Tensor:
    return tf.fill(shape, tf.constant(value, storage))


def _identifier(name: str) -> str:
    """A name that graphs accept."""
    return "".join(character if character.isalnum() else "_" for character in name)
