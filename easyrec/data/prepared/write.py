"""Encodes rows into shards: part by part, several parts at once, each part kept as soon as it is complete."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import tensorflow as tf

from easyrec.data.prepared.exclusive import alone
from easyrec.data.prepared.records import RecordLayout
from easyrec.data.prepared.shards import (
    FORMAT,
    MANIFEST,
    ShardSet,
    Split,
    differences,
    join,
    open_shards,
    read_text,
    reason_of,
    write_manifest,
    write_text,
)
from easyrec.data.store import fingerprint
from easyrec.data.stream import ChunkSource, EncodedStream
from easyrec.errors import DataError
from easyrec.features.batch import EncodedBatch
from easyrec.features.coded_ids import Dictionary
from easyrec.features.coverage import Coverage

_PLAN = "plan.json"
_LOOKS_AT_ONCE = 16
_NO_OPTIONS = ("facts", "equivalents", "dictionaries")
Encode = Callable[[pa.Table, Coverage], EncodedBatch]


@dataclass(frozen=True)
class ShardPlan:
    """How rows become shards.

    Attributes:
        batch_size: Rows of a batch; the last one of a part may be smaller.
        split_batches: Batches of a split.
        shuffle_buffer: Rows that are mixed with each other; 0 keeps their order.
        seed: Decides the order and what the source samples.
        facts: What else decides what the shards hold: fingerprints of data and features.
        equivalents: Other such facts; shards that were made from them hold the same.
        dictionaries: Which ids are numbered together; follows from the features.
    """

    batch_size: int
    split_batches: int
    shuffle_buffer: int
    seed: int
    facts: Mapping[str, Any]
    equivalents: Sequence[Mapping[str, Any]] = ()
    dictionaries: Sequence[Dictionary] = ()

    def all_facts(self, parts: int) -> list[dict[str, Any]]:
        """Everything that the content of the shards depends on, and what is equivalent."""
        options = {key: value for key, value in vars(self).items() if key not in _NO_OPTIONS}
        options |= {"parts": parts, "format": FORMAT}
        facts = [{**dict(one), **options} for one in (self.facts, *self.equivalents)]
        return list(json.loads(json.dumps(facts, default=str)))


def write_shards(
    folder: str,
    parts: Sequence[ChunkSource],
    encode: Encode,
    plan: ShardPlan,
    *,
    replace: bool = False,
    threads: int | None = None,
    progress: Callable[[int], None] = lambda rows: None,
    tell: Callable[[str], None] = lambda text: None,
) -> ShardSet:
    """The shards of some rows, made now unless they are there already.

    A part that is complete stays when another one fails or the process is killed, and is not made again. Of several
    processes that want the same shards one makes them while the others wait. Files that are gone or cut off are made
    again.

    Args:
        folder: Where they go; anything `tf.io.gfile` writes.
        parts: The rows, each part an own sequence of chunks.
        encode: Encodes a chunk, and adds what features met to the coverage of its part; called from several threads.
        plan: How.
        replace: Whether shards of something else that are there are removed.
        threads: Parts at once; one a processor unless given.
        progress: Called from several threads with the rows of each split that has been written.
        tell: Called with a line of text while another process is waited for.

    Raises:
        DataError: The folder holds shards of something else (and `replace` is False), or cannot be written.
    """
    facts, *equivalents = plan.all_facts(len(parts))
    mark = fingerprint(facts)
    marks = [mark, *map(fingerprint, equivalents)]
    found = _complete(folder, marks, replace)
    if found is not None:
        return found
    with alone(folder, tell):
        found = _complete(folder, marks, replace)  # another process may have made them in the meantime
        if found is not None:
            return found
        _refuse_others(folder, facts, marks, replace)
        try:
            _begin(folder, mark)
            shards = _joined(
                folder, mark, plan.batch_size, _write_parts(folder, parts, encode, plan, threads, progress)
            )
            write_manifest(shards, facts)
        except tf.errors.OpError as error:
            raise DataError(
                f"{folder}: the shards cannot be written: {reason_of(error)}. What is complete is kept; make room and "
                "start again"
            ) from error
        return shards


def _joined(folder: str, mark: str, batch_size: int, parts: Sequence[_Part]) -> ShardSet:
    """All parts as one."""
    layouts = [part.layout for part in parts if part.layout is not None]
    if not layouts:
        raise DataError("there are no rows to prepare; look at `data.where` and at the split")
    coverage = Coverage()
    for part in parts:
        coverage.add_report(part.coverage)
    splits = tuple(split for part in parts for split in part.splits)
    return ShardSet(folder, mark, batch_size, RecordLayout.from_dict(layouts[0]), splits, coverage.report())


def _complete(folder: str, marks: Sequence[str], replace: bool) -> ShardSet | None:
    """The shards with one of these fingerprints, if all of their files are there and whole."""
    try:
        found = open_shards(folder)
    except DataError:
        if not replace:
            raise
        return None
    return (
        found if found is not None and found.fingerprint in marks and _intact(folder, found.splits) else None
    )


def _intact(folder: str, splits: Sequence[Split]) -> bool:
    """Whether files have the size that they were written with; storage that is far away is asked many at once."""

    def whole(split: Split) -> bool:
        try:
            return bool(tf.io.gfile.stat(join(folder, split.file)).length == split.bytes)
        except tf.errors.OpError:
            return False

    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        return all(pool.map(whole, splits))


def _refuse_others(folder: str, facts: Mapping[str, Any], marks: Sequence[str], replace: bool) -> None:
    """Raises where shards of something else are, or have been begun, and may not be replaced."""
    if replace:
        return
    found, plan = open_shards(folder), join(folder, _PLAN)
    if found is not None and found.fingerprint not in marks:
        different = ", ".join(differences(folder, facts)) or "the version"
        raise DataError(
            f"{folder}: the shards there were prepared from something else; different: {different}. Prepare again "
            "with `easyrec prepare CONFIG --overwrite`, or give another folder as `training.shards.path`"
        )
    if found is None and tf.io.gfile.exists(plan) and read_text(plan) not in marks:
        raise DataError(
            f"{folder}: preparing shards of something else was interrupted there. Begin anew with `easyrec prepare "
            "CONFIG --overwrite`, or give another folder as `training.shards.path`"
        )


def _begin(folder: str, mark: str) -> None:
    """An empty folder, or one in which an earlier call for the same content was interrupted."""
    plan = join(folder, _PLAN)
    same = tf.io.gfile.exists(plan) and read_text(plan) == mark
    if tf.io.gfile.exists(folder) and not same:
        if not tf.io.gfile.exists(plan) and tf.io.gfile.listdir(folder):
            raise DataError(f"{folder}: holds something that is not shards; give another folder")
        tf.io.gfile.rmtree(folder)
    tf.io.gfile.makedirs(folder)
    if tf.io.gfile.exists(join(folder, MANIFEST)):
        tf.io.gfile.remove(join(folder, MANIFEST))
    write_text(plan, mark)


@dataclass(frozen=True)
class _Part:
    """What is written of a part, and into its record.

    Attributes:
        layout: Of its records; None where it has no rows.
        splits: Its splits.
        coverage: What the features met in it.
    """

    layout: dict[str, Any] | None
    splits: list[Split]
    coverage: dict[str, dict[str, float]]


def _write_parts(
    folder: str,
    parts: Sequence[ChunkSource],
    encode: Encode,
    plan: ShardPlan,
    threads: int | None,
    progress: Callable[[int], None],
) -> list[_Part]:
    stop = threading.Event()

    def write(number: int) -> _Part:
        try:
            return _write_part(folder, number, parts[number], encode, plan, progress, stop)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(max(1, min(len(parts), threads or os.cpu_count() or 1))) as pool:
        try:
            return list(pool.map(write, range(len(parts))))
        finally:
            stop.set()


def _write_part(
    folder: str,
    number: int,
    source: ChunkSource,
    encode: Encode,
    plan: ShardPlan,
    progress: Callable[[int], None],
    stop: threading.Event,
) -> _Part:
    record = join(folder, f"part-{number:05d}.json")
    if (stored := _stored(folder, record)) is not None:
        progress(sum(split.rows for split in stored.splits))
        return stored
    coverage = Coverage()
    stream = EncodedStream(
        source, lambda table: encode(table, coverage), plan.batch_size, plan.shuffle_buffer, plan.seed
    )
    batches = stream.batches(0)
    layout: RecordLayout | None = None
    splits: list[Split] = []
    try:
        while chosen := list(islice(batches, plan.split_batches)):
            if stop.is_set():
                raise DataError("preparing was stopped")
            layout = layout or RecordLayout.of(chosen[0], plan.dictionaries)
            splits.append(
                _write_split(folder, f"part-{number:05d}-{len(splits):05d}.tfrecord", layout, chosen)
            )
            progress(splits[-1].rows)
    finally:
        batches.close()
    described = None if layout is None else layout.as_dict()
    part = _Part(described, splits, coverage.report())
    write_text(record, json.dumps(asdict(part)))
    return part


def _stored(folder: str, record: str) -> _Part | None:
    """A part that an earlier call has completed, if its files are still there."""
    if not tf.io.gfile.exists(record):
        return None
    try:
        stored = json.loads(read_text(record))
        part = _Part(stored["layout"], [Split(**split) for split in stored["splits"]], stored["coverage"])
    except (ValueError, KeyError, TypeError):  # cut off, or of an earlier version
        return None
    return part if _intact(folder, part.splits) else None


def _write_split(folder: str, file: str, layout: RecordLayout, batches: Sequence[EncodedBatch]) -> Split:
    path = join(folder, file)
    with tf.io.TFRecordWriter(path) as writer:
        for batch in batches:
            writer.write(layout.pack(batch))
    rows = sum(batch.num_rows for batch in batches)
    return Split(file, len(batches), rows, int(tf.io.gfile.stat(path).length))


def batches_per_split(rows: int, batch_size: int, wanted: int | None = None) -> int:
    """Batches of a split: as wanted, else at most 32, and of few data about as many as there are splits.

    Between two splits a worker has nothing to do, so splits must not be small; and they must be more than workers, so
    that none waits for the last one of an epoch.
    """
    if wanted is not None:
        return wanted
    return max(1, min(32, math.isqrt(-(-rows // batch_size))))
