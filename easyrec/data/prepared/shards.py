"""A folder of shards: what it holds, whether it belongs to a configuration, and reading it on one machine.

    train/
      manifest.json             fingerprint, layout of the records, and each split's file, records and rows
      part-00000-00000.tfrecord one split: some batches, one record each
      part-00000.json           written when a part is complete, so that preparing goes on where it was interrupted

A **split** is the unit of work: one file, read by one worker from beginning to end. The folder may lie wherever
`tf.io.gfile` reaches, as long as every machine sees it under the same path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from easyrec.data.prepared.records import RecordLayout
from easyrec.errors import DataError
from easyrec.features.batch import EncodedBatch

FORMAT = 2
MANIFEST = "manifest.json"
_WHERE = re.compile(
    r"\s*(Graph execution error|\d+ root error|Detected at node|File \"|\[\[|Additional GRPC error)"
)
_BUFFER_BYTES = 1 << 20
_MOST_RECORDS = 1 << 20


@dataclass(frozen=True)
class Split:
    """Some batches in one file.

    Attributes:
        file: Name of the file in the folder.
        batches: Records in it.
        rows: Rows in all of them.
        bytes: Size of the file.
    """

    file: str
    batches: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class ShardSet:
    """The shards of one part of the data.

    Attributes:
        folder: Where they lie; anything `tf.io.gfile` opens.
        fingerprint: Of the data, features and options they were made from.
        batch_size: Rows of a full batch.
        layout: What a record holds.
        splits: The splits, in the order in which they were written.
        coverage: What the features met while the rows were encoded.
    """

    folder: str
    fingerprint: str
    batch_size: int
    layout: RecordLayout
    splits: tuple[Split, ...]
    coverage: Mapping[str, Mapping[str, float]]

    @property
    def rows(self) -> int:
        """Rows of an epoch."""
        return sum(split.rows for split in self.splits)

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return sum(split.batches for split in self.splits)

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(split.bytes for split in self.splits)

    def path(self, split: Split) -> str:
        """The file of a split."""
        return join(self.folder, split.file)

    def read(self, split: Split) -> list[EncodedBatch]:
        """The batches of a split, all of them or none.

        Raises:
            DataError: The file is missing or damaged; it is named.
        """
        path = self.path(split)
        try:
            batches = [self.layout.unpack(record) for record in _reader()(path).numpy()]
        except (tf.errors.OpError, DataError) as error:
            raise damaged(path, error) from error
        rows = sum(batch.num_rows for batch in batches)
        if len(batches) != split.batches or rows != split.rows:
            raise damaged(path, f"has {rows} rows where the manifest says {split.rows}")
        return batches

    def order(self, seed: int | None) -> list[int]:
        """Indices of the splits in the order of an epoch: as written, or at random by `seed`."""
        count = len(self.splits)
        if seed is None:
            return list(range(count))
        return [int(index) for index in np.random.default_rng(seed).permutation(count)]


@dataclass
class ShardRows:
    """The splits of an epoch as chunks, for training on one machine.

    Attributes:
        shards: The shards.
        shuffle: Take the splits in random order, anew each epoch.
        chunk_rows: Batches are joined to chunks of so many rows at least.
        skip_damaged: Leave out damaged splits instead of ending the run.
        finished: Splits that are left out because they were trained before.
        skipped: Messages about splits that were left out because they are damaged.
    """

    shards: ShardSet
    shuffle: bool
    chunk_rows: int
    skip_damaged: bool = False
    finished: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.skipped: list[str] = []

    def chunks(self, seed: int | None = None) -> Iterator[EncodedBatch]:
        """The rows of an epoch, some batches at a time; the same for the same seed.

        Raises:
            DataError: A split is damaged.
        """
        for index in self.shards.order(seed if self.shuffle else None):
            if index in self.finished:
                continue
            try:
                batches = self.shards.read(self.shards.splits[index])
            except DataError as error:
                if not self.skip_damaged:
                    raise
                if str(error) not in self.skipped:
                    self.skipped.append(str(error))
                continue
            together = -(-self.chunk_rows // self.shards.batch_size)
            for start in range(0, len(batches), together):
                yield EncodedBatch.concat(batches[start : start + together])


def open_shards(folder: str) -> ShardSet | None:
    """The shards of a folder, or None when there are none, or preparing them was interrupted.

    Raises:
        DataError: The manifest cannot be read.
    """
    path = join(folder, MANIFEST)
    if not tf.io.gfile.exists(path):
        return None
    try:
        stored = json.loads(read_text(path))
        if stored["format"] != FORMAT:
            raise DataError(
                f"{path}: the shards have format {stored['format']}, this version reads {FORMAT}. Prepare again with "
                "`easyrec prepare CONFIG --overwrite`, or give another folder as `training.shards.path`"
            )
        return ShardSet(
            folder,
            stored["fingerprint"],
            stored["batch_size"],
            RecordLayout.from_dict(stored["layout"]),
            tuple(Split(**split) for split in stored["splits"]),
            stored["coverage"],
        )
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read ({error}); prepare the shards anew") from error


@cache
def _reader() -> Callable[[str], tf.Tensor]:
    """A function from a file to its records, traced once: a dataset made anew for each file takes longer to begin with
    than a small file takes to read.
    """  # noqa: D205 - one sentence

    def records(path: tf.Tensor) -> tf.Tensor:
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        found = tf.data.TFRecordDataset(path, buffer_size=_BUFFER_BYTES).batch(_MOST_RECORDS)
        with tf.device("CPU"):
            return found.with_options(options).get_single_element()

    return tf.function(records, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)


def write_manifest(shards: ShardSet, facts: Mapping[str, Any]) -> None:
    """Makes a folder of shards complete.

    Args:
        shards: What it holds.
        facts: What the fingerprint was made from, for messages about differences.
    """
    write_text(
        join(shards.folder, MANIFEST),
        json.dumps(
            {
                "format": FORMAT,
                "fingerprint": shards.fingerprint,
                "facts": dict(facts),
                "batch_size": shards.batch_size,
                "rows": shards.rows,
                "layout": shards.layout.as_dict(),
                "coverage": shards.coverage,
                "splits": [asdict(split) for split in shards.splits],
            },
            indent=1,
        ),
    )


def differences(folder: str, facts: Mapping[str, Any]) -> Sequence[str]:
    """Which of the facts that decide what shards hold differ from those of the shards in a folder."""
    stored = json.loads(read_text(join(folder, MANIFEST))).get("facts", {})
    return sorted(name for name in {*stored, *facts} if stored.get(name) != facts.get(name))


def reason_of(error: object) -> str:
    """What an error of TensorFlow says, in one line: not where in a graph it happened."""
    text = str(getattr(error, "message", None) or error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _WHERE.match(line)]
    return lines[0] if lines else type(error).__name__


def damaged(path: str, reason: object) -> DataError:
    """The error of a shard that cannot be used."""
    return DataError(
        f"{path}: the shard is damaged or missing ({reason_of(reason)}). Delete the file and run "
        "`easyrec prepare` again, which makes it anew; with `data.on_error: skip` damaged shards are left out"
    )


def join(folder: str, name: str) -> str:
    """A path inside a folder that may be a URL."""
    return f"{folder.rstrip('/')}/{name}"


def read_text(path: str) -> str:
    """The text of a file."""
    with tf.io.gfile.GFile(path, "r") as file:
        return str(file.read())


def write_text(path: str, text: str) -> None:
    """Writes a file, whole or not at all."""
    writing = f"{path}.writing"
    with tf.io.gfile.GFile(writing, "w") as file:
        file.write(text)
    tf.io.gfile.rename(writing, path, overwrite=True)
