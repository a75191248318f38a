"""Encodes rows into shards: part by part, several parts at once, each part kept as soon as it is complete."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import tensorflow as tf

from easyrec.data.prepared.records import RecordLayout
from easyrec.data.prepared.shards import (
    MANIFEST,
    ShardSet,
    Split,
    differences,
    join,
    open_shards,
    read_text,
    write_manifest,
    write_text,
)
from easyrec.data.store import fingerprint
from easyrec.data.stream import ChunkSource, EncodedStream
from easyrec.errors import DataError
from easyrec.features.batch import EncodedBatch

_PLAN = "plan.json"
Encode = Callable[[pa.Table], EncodedBatch]


@dataclass(frozen=True)
class ShardPlan:
    """How rows become shards.

    Attributes:
        batch_size: Rows of a batch; the last one of a part may be smaller.
        split_batches: Batches of a split.
        shuffle_buffer: Rows that are mixed with each other; 0 keeps their order.
        seed: Decides the order and what the source samples.
        facts: What else decides what the shards hold: fingerprints of data and features.
    """

    batch_size: int
    split_batches: int
    shuffle_buffer: int
    seed: int
    facts: Mapping[str, Any]

    def all_facts(self, parts: int) -> dict[str, Any]:
        """Everything that the content of the shards depends on."""
        options = {key: value for key, value in asdict(self).items() if key != "facts"}
        return {**dict(self.facts), **options, "parts": parts}


def write_shards(
    folder: str,
    parts: Sequence[ChunkSource],
    encode: Encode,
    plan: ShardPlan,
    *,
    coverage: Callable[[], Mapping[str, Mapping[str, float]]] = dict,
    replace: bool = False,
    threads: int | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> ShardSet:
    """The shards of some rows, made now unless they are there already.

    A part that is complete stays when another one fails or the process is killed, and is not made again.

    Args:
        folder: Where they go; anything `tf.io.gfile` writes.
        parts: The rows, each part an own sequence of chunks.
        encode: Encodes a chunk; called from several threads.
        plan: How.
        coverage: What the features met, asked for when all rows are encoded.
        replace: Whether shards of something else that are there are removed.
        threads: Parts at once; one a processor unless given.
        progress: Called from several threads with the rows of each split that has been written.

    Raises:
        DataError: The folder holds shards of something else (and `replace` is False), or cannot be written.
    """
    facts = json.loads(json.dumps(plan.all_facts(len(parts)), default=str))
    mark = fingerprint(facts)
    found = open_shards(folder)
    if found is not None and found.fingerprint == mark:
        return found
    if found is not None and not replace:
        raise DataError(
            f"{folder}: the shards there were prepared from something else; different: "
            f"{', '.join(differences(folder, facts)) or 'the version'}. Prepare again with `easyrec prepare CONFIG "
            "--overwrite`, or give another folder as `training.shards.path`"
        )
    try:
        _begin(folder, mark)
        splits = _write_parts(folder, parts, encode, plan, threads, progress)
    except tf.errors.OpError as error:
        raise DataError(
            f"{folder}: the shards cannot be written: {(error.message or str(error)).splitlines()[0]}. What is "
            "complete is kept; make room and start again"
        ) from error
    layouts = [layout for layout, _ in splits if layout is not None]
    if not layouts:
        raise DataError("there are no rows to prepare; look at `data.where` and at the split")
    shards = ShardSet(
        folder,
        mark,
        plan.batch_size,
        RecordLayout.from_dict(layouts[0]),
        tuple(split for _, part in splits for split in part),
        coverage(),
    )
    write_manifest(shards, facts)
    return shards


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


Written = tuple[dict[str, Any] | None, list[Split]]


def _write_parts(
    folder: str,
    parts: Sequence[ChunkSource],
    encode: Encode,
    plan: ShardPlan,
    threads: int | None,
    progress: Callable[[int], None],
) -> list[Written]:
    stop = threading.Event()

    def write(number: int) -> Written:
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
) -> Written:
    record = join(folder, f"part-{number:05d}.json")
    if tf.io.gfile.exists(record):
        stored = json.loads(read_text(record))
        splits = [Split(**split) for split in stored["splits"]]
        progress(sum(split.rows for split in splits))
        return stored["layout"], splits
    stream = EncodedStream(source, encode, plan.batch_size, plan.shuffle_buffer, plan.seed)
    batches = stream.batches(0)
    layout: RecordLayout | None = None
    splits = []
    try:
        while chosen := list(islice(batches, plan.split_batches)):
            if stop.is_set():
                raise DataError("preparing was stopped")
            layout = layout or RecordLayout.of(chosen[0])
            splits.append(
                _write_split(folder, f"part-{number:05d}-{len(splits):05d}.tfrecord", layout, chosen)
            )
            progress(splits[-1].rows)
    finally:
        batches.close()
    described = None if layout is None else layout.as_dict()
    write_text(record, json.dumps({"layout": described, "splits": [asdict(split) for split in splits]}))
    return described, splits


def _write_split(folder: str, file: str, layout: RecordLayout, batches: Sequence[EncodedBatch]) -> Split:
    path = join(folder, file)
    with tf.io.TFRecordWriter(path) as writer:
        for batch in batches:
            writer.write(layout.pack(batch))
    rows = sum(batch.num_rows for batch in batches)
    return Split(file, len(batches), rows, int(tf.io.gfile.stat(path).length))


def batches_per_split(rows: int, batch_size: int, wanted: int | None = None) -> int:
    """Batches of a split: as wanted, else at most 32, and few enough that an epoch has some 64 splits."""
    if wanted is not None:
        return wanted
    return max(1, min(32, -(-rows // batch_size) // 64))
