"""The input thread: turns encoded batches into tensors and makes their ids unique while the step computes."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import tensorflow as tf

from easyrec.embedding.collection import EmbeddingCollection
from easyrec.embedding.lookup import Lookup
from easyrec.features.batch import Array, EncodedBatch

T = TypeVar("T")
_DEPTH = 3
# A third of the weight of a normal thread: enough not to starve beside other programs.
_NICENESS = 5


class BatchStream(Protocol):
    """Where batches come from; `easyrec.data.stream.EncodedStream` is one."""

    def batches(self, epoch: int, skip: int = 0) -> Iterator[EncodedBatch]:
        """The batches of an epoch, the first `skip` passed over; the same for the same epoch."""


@dataclass(frozen=True)
class PreparedBatch:
    """A batch ready for the step.

    Attributes:
        num_rows: B.
        arrays: The encoded batch.
        tensors: The same as tensors.
        lookup: Its distinct ids.
    """

    num_rows: int
    arrays: dict[str, Array]
    tensors: dict[str, tf.Tensor]
    lookup: Lookup


def prepare(embeddings: EmbeddingCollection, batch: EncodedBatch) -> PreparedBatch:
    """Makes a batch ready for the step."""
    arrays = batch.as_dict()
    with tf.device("CPU"):
        tensors = {key: tf.convert_to_tensor(value) for key, value in arrays.items()}
        return PreparedBatch(batch.num_rows, arrays, tensors, embeddings.host_lookup(arrays))


class Prefetcher(Generic[T]):
    """Applies a function to the items of an iterable on a thread of its own, a few items ahead.

    Closing it, or leaving its `with` block, ends the thread. An exception of the iterable or the function is raised
    where the item would have come.

    Args:
        items: The iterable; it is advanced and closed on the thread.
        function: What to apply.
        depth: How many results may wait.

    Attributes:
        wait_seconds: How long the consumer has waited for items.
    """

    def __init__(self, items: Iterable[Any], function: Callable[[Any], T], depth: int = _DEPTH) -> None:
        self.wait_seconds = 0.0
        self._items = items
        self._function = function
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="easyrec-prefetch", daemon=True)

    def __enter__(self) -> Prefetcher[T]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        while True:
            start = time.perf_counter()
            kind, value = self._queue.get()
            self.wait_seconds += time.perf_counter() - start
            if kind == "item":
                yield value
            elif kind == "error":
                raise value
            else:
                return

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(0.01)

    def _work(self) -> None:
        _lower_priority()
        iterator = iter(self._items)
        try:
            for item in iterator:
                if self._closed.is_set() or not self._put("item", self._function(item)):
                    break
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised in the consumer
            self._put("error", error)
        else:
            self._put("end", None)
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    def _put(self, kind: str, value: Any) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put((kind, value), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False


def _lower_priority() -> None:
    """Lets the step go before this thread and those it starts, wherever the system has priorities of threads.

    Compiled matrix products give each core an equal part, so a core that is taken away for a moment stops all of them.
    Input that works in the gaps costs a step a tenth less.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # some sandboxes forbid it, and nothing depends on it
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)
