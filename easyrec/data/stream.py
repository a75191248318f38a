"""Encoded batches for training: chunks are encoded ahead on threads, mixed in a buffer, cut into batches.

    chunks --(encode, on threads, in order)--> buffer of `shuffle_buffer` rows --> batches

A chunk that enters the buffer is permuted, and its rows leave in equal parts while the next chunks enter, so a batch
holds rows of as many chunks as the buffer holds, and each chunk holds rows of several places in the files
(`easyrec.data.order`). At the end what is left is permuted as a whole; data that fit into the buffer are therefore
mixed completely.
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

from easyrec.features.batch import EncodedBatch

_WAITING_BATCHES = 8
_POLL_SECONDS = 0.05
_BUFFER_BYTES = 256 << 20


class ChunkSource(Protocol):
    """Where rows come from: raw ones (`easyrec.data.rows.Rows`) or encoded before (`easyrec.data.prepared`)."""

    def chunks(self, seed: int | None = None) -> Iterator[Any]:
        """The chunks of one pass, of which `num_rows` says the length; the same for the same seed."""
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
        encode: Callable[[Any], EncodedBatch],
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
        """Batches from a buffer of chunks, each permuted and handed out in equal parts over as many steps."""
        blocks: deque[_Block] = deque()
        life, rest = 0, None
        for chunk in encoded:
            if life == 0:
                life = self._blocks(chunk)
            blocks.append(_Block.permuted(chunk, life, random))
            if len(blocks) < life:
                continue
            leaving = [block.part() for block in blocks]
            if blocks[0].empty:
                blocks.popleft()
            joined = _permuted(leaving if rest is None else [rest, *leaving], random)
            whole = joined.num_rows // self._batch_size * self._batch_size
            yield from self._cut(joined.slice(0, whole))
            rest = joined.slice(whole, joined.num_rows)
        remaining = [block.rest() for block in blocks] + ([rest] if rest is not None else [])
        if remaining:
            yield from self._cut(_permuted(remaining, random), last=True)

    def _blocks(self, chunk: EncodedBatch) -> int:
        """How many chunks like this one the buffer holds."""
        rows = min(self._buffer_rows, _BUFFER_BYTES * chunk.num_rows // max(chunk.nbytes, 1))
        return max(1, round(rows / chunk.num_rows))

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


class _Block:
    """A chunk in the buffer, in random order, handed out in `life` parts."""

    def __init__(self, rows: EncodedBatch, life: int) -> None:
        self._rows = rows
        self._life = life
        self._given = 0

    @classmethod
    def permuted(cls, chunk: EncodedBatch, life: int, random: np.random.Generator) -> _Block:
        return cls(_permuted([chunk], random), life)

    @property
    def empty(self) -> bool:
        return self._given >= self._life

    def part(self) -> EncodedBatch:
        start, self._given = self._bound(self._given), self._given + 1
        return self._rows.slice(start, self._bound(self._given))

    def rest(self) -> EncodedBatch:
        return self._rows.slice(self._bound(self._given), self._rows.num_rows)

    def _bound(self, part: int) -> int:
        return self._rows.num_rows * min(part, self._life) // self._life


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
