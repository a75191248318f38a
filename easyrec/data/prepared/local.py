"""Training on one machine from shards: no reading, no encoding, only mixing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from easyrec.config.pipeline import PipelineConfig
from easyrec.data.prepared.shards import ShardRows, ShardSet
from easyrec.data.stream import EncodedStream
from easyrec.features.batch import EncodedBatch

# Mixing permutes the rows of a chunk; small ones stay in the processor's caches meanwhile.
_CHUNK_ROWS = 4_096
_CHUNKS = 32


@dataclass(frozen=True)
class Finished:
    """Splits that a cluster had trained when the checkpoint was written that training goes on from.

    Attributes:
        epoch: Of that epoch.
        splits: Their indices.
    """

    epoch: int = 0
    splits: tuple[int, ...] = ()


class ShardStream:
    """The batches of shards, epoch by epoch, as `EncodedStream` gives them from files.

    Without shuffling they are exactly those. With it, an epoch takes the splits in random order and mixes their rows
    in the same buffer.

    Args:
        shards: The shards.
        shuffle_buffer: Rows mixed with each other; 0 keeps the order.
        seed: Of the run.
        finished: What is left out of one epoch.
        skip_damaged: Leave out damaged splits.
    """

    def __init__(
        self, shards: ShardSet, shuffle_buffer: int, seed: int, finished: Finished, skip_damaged: bool = False
    ) -> None:
        self.shards = shards
        self._buffer = shuffle_buffer
        self._seed = seed
        self._finished = finished
        self._skip_damaged = skip_damaged

    def batches(self, epoch: int, skip: int = 0) -> Iterator[EncodedBatch]:
        """The batches of an epoch; those of finished splits count among the `skip` that are passed over."""
        done = self._finished.splits if epoch == self._finished.epoch else ()
        skip -= sum(self.shards.splits[index].batches for index in done)
        chunk = max(_CHUNK_ROWS, self._buffer // _CHUNKS)
        rows = ShardRows(self.shards, self._buffer > 0, chunk, self._skip_damaged, frozenset(done))
        stream = EncodedStream(rows, _as_it_is, self.shards.batch_size, self._buffer, self._seed)
        return stream.batches(epoch, max(0, skip))


def shard_stream(config: PipelineConfig, shards: ShardSet, finished: Finished) -> ShardStream:
    """The stream of a pipeline's shards."""
    buffer = config.data.shuffle_buffer if config.data.shuffle else 0
    return ShardStream(shards, buffer, config.training.seed, finished, config.data.on_error == "skip")


def _as_it_is(batch: EncodedBatch) -> EncodedBatch:
    return batch
