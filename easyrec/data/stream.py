"""Encoded batches for training: chunks are encoded ahead on threads, mixed in a buffer, cut into batches.

    chunks --(encode, on threads, in order)--> buffer of `shuffle_buffer` rows --(random half)--> batches

A full buffer is permuted as a whole; half of it leaves as batches, the other half stays and is mixed with what comes
next. With the chunks' own interleaving (`easyrec.data.order`) this mixes sorted files well, at about two copies a row.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from easyrec.features.batch import EncodedBatch

_WAITING_BATCHES = 8
_POLL_SECONDS = 0.05


class ChunkSource(Protocol):
    """Where raw rows come from; `easyrec.data.rows.Rows` is one."""

    def chunks(self, seed: int | None = None) -> Iterator[pa.Table]:
        """The chunks of one pass; the same for the same seed."""
        ...


class EncodedStream:
    """Shuffled batches of encoded rows, epoch by epoch.

    Args:
        source: Raw chunks.
        encode: Encodes a chunk; called on several threads at once when `threads` is above 1.
        batch_size: Rows of a batch; the last one of an epoch may be smaller.
        shuffle_buffer: Rows that are mixed with each other; 0 keeps the order of the chunks.
        seed: With the epoch, decides the order, and what the source samples.
        drop: Leave out the last batch of an epoch when it is smaller.
        threads: Chunks encoded at once.

    Attributes:
        wait_seconds: How long consumers have waited for batches so far.
    """

    def __init__(
        self,
        source: ChunkSource,
        encode: Callable[[pa.Table], EncodedBatch],
        batch_size: int,
        shuffle_buffer: int,
        seed: int,
        drop: bool = False,
        threads: int = 1,
    ) -> None:
        self.wait_seconds = 0.0
        self._source = source
        self._encode = encode
        self._batch_size = batch_size
        self._buffer_rows = shuffle_buffer
        self._seed = seed
        self._drop = drop
        self._threads = threads

    def batches(self, epoch: int, skip: int = 0) -> Generator[EncodedBatch, None, None]:
        """The batches of one epoch.

        Args:
            epoch: Number of the epoch; the same one gives the same batches.
            skip: So many batches are passed over; what was trained on before an interruption.

        Yields:
            Batches.

        Raises:
            Exception: Whatever the source or `encode` raised, where the batch would have come.
        """
        ready: queue.Queue[tuple[EncodedBatch | None, BaseException | None]] = queue.Queue(_WAITING_BATCHES)
        closed = threading.Event()
        thread = threading.Thread(
            target=self._produce, args=(epoch, skip, ready, closed), name="easyrec-input", daemon=True
        )
        thread.start()
        try:
            while True:
                started = time.perf_counter()
                batch, error = ready.get()
                self.wait_seconds += time.perf_counter() - started
                if error is not None:
                    raise error
                if batch is None:
                    return
                yield batch
        finally:
            closed.set()
            thread.join()

    def _produce(self, epoch: int, skip: int, ready: queue.Queue[Any], closed: threading.Event) -> None:
        error: BaseException | None = None
        try:
            with closing(self._epoch(epoch, closed)) as batches:
                for number, batch in enumerate(batches):
                    if number >= skip and not _put(ready, (batch, None), closed):
                        return
        except BaseException as raised:  # noqa: BLE001 handed to the consumer, whatever it is
            error = raised
        _put(ready, (None, error), closed)

    def _epoch(self, epoch: int, closed: threading.Event) -> Generator[EncodedBatch, None, None]:
        state = np.random.SeedSequence([self._seed, epoch])
        order_seed, mix_seed = (int(word) for word in state.generate_state(2, np.uint64))
        with closing(self._encoded(order_seed, closed)) as encoded:
            if self._buffer_rows > 0:
                yield from self._mixed(encoded, np.random.default_rng(mix_seed))
            else:
                yield from self._in_order(encoded)

    def _encoded(self, seed: int, closed: threading.Event) -> Generator[EncodedBatch, None, None]:
        """Encoded chunks in the order of the source, encoded a few ahead."""
        chunks = self._source.chunks(seed=seed)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="easyrec-encode") as pool:
            running: deque[Future[EncodedBatch]] = deque()
            try:
                for chunk in chunks:
                    if closed.is_set():
                        return
                    if chunk.num_rows:
                        running.append(pool.submit(self._encode, chunk))
                    if len(running) > self._threads:
                        yield running.popleft().result()
                while running:
                    yield running.popleft().result()
            finally:
                for future in running:
                    future.cancel()
                close = getattr(chunks, "close", None)
                if close is not None:
                    close()

    def _mixed(
        self, encoded: Iterator[EncodedBatch], random: np.random.Generator
    ) -> Generator[EncodedBatch, None, None]:
        pending: list[EncodedBatch] = []
        rows = 0
        for chunk in encoded:
            pending.append(chunk)
            rows += chunk.num_rows
            if rows >= self._buffer_rows + self._batch_size:
                mixed = _permuted(pending, random)
                leaving = max(rows // 2 // self._batch_size, 1) * self._batch_size
                yield from self._cut(mixed.slice(0, leaving))
                pending, rows = [mixed.slice(leaving, rows)], rows - leaving
        if pending:
            yield from self._cut(_permuted(pending, random), last=True)

    def _in_order(self, encoded: Iterator[EncodedBatch]) -> Generator[EncodedBatch, None, None]:
        rest: EncodedBatch | None = None
        for chunk in encoded:
            joined = chunk if rest is None else EncodedBatch.concat([rest, chunk])
            whole = joined.num_rows // self._batch_size * self._batch_size
            yield from self._cut(joined.slice(0, whole))
            rest = joined.slice(whole, joined.num_rows) if whole < joined.num_rows else None
        if rest is not None:
            yield from self._cut(rest, last=True)

    def _cut(self, rows: EncodedBatch, last: bool = False) -> Generator[EncodedBatch, None, None]:
        for start in range(0, rows.num_rows, self._batch_size):
            stop = min(start + self._batch_size, rows.num_rows)
            if last and self._drop and stop - start < self._batch_size:
                return
            yield rows.slice(start, stop)


def _permuted(parts: list[EncodedBatch], random: np.random.Generator) -> EncodedBatch:
    joined = EncodedBatch.concat(parts)
    return joined.take(random.permutation(joined.num_rows))


def _put(ready: queue.Queue[Any], item: Any, closed: threading.Event) -> bool:
    """Puts an item once there is room; False when the consumer is gone."""
    while not closed.is_set():
        try:
            ready.put(item, timeout=_POLL_SECONDS)
        except queue.Full:
            continue
        return True
    return False
