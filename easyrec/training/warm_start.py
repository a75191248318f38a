"""Starting from the weights of another run, whose vocabularies and features need not be the same.

Embedding rows are matched by the value they stand for, so that a vocabulary may have grown, shrunk or been reordered;
dense weights are matched by name and shape. What finds no match keeps its first values. Optimizers start afresh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from easyrec.config.loader import load_stored_config
from easyrec.embedding.collection import EmbeddingCollection
from easyrec.embedding.layout import Table
from easyrec.embedding.table import SLICE_ROWS, ShardedTable
from easyrec.errors import CheckpointError
from easyrec.features.counting import as_text
from easyrec.features.encoder import Encoder
from easyrec.features.vocabulary import HashVocabulary, IntegerVocabulary, TableVocabulary, Vocabulary
from easyrec.training.array_files import Array
from easyrec.training.checkpoints import MANIFEST, Checkpoint, CheckpointStore, open_checkpoint
from easyrec.training.step import TrainableNetwork

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TableMatch:
    """How many rows of a table were found in the other run, are new here, or are gone."""

    matched: int
    new: int
    dropped: int


@dataclass(frozen=True)
class WarmStart:
    """What was taken over.

    Attributes:
        source: The checkpoint.
        tables: By table.
        dense_matched: Dense weights taken over.
        dense_new: Dense weights that keep their first values, each with the reason.
        dense_dropped: Dense weights of the other run that this model does not have.
        tables_dropped: Tables of the other run that this model does not have.
    """

    source: Path
    tables: dict[str, TableMatch] = field(default_factory=dict)
    dense_matched: list[str] = field(default_factory=list)
    dense_new: dict[str, str] = field(default_factory=dict)
    dense_dropped: list[str] = field(default_factory=list)
    tables_dropped: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """What was taken over, for a reader."""
        lines = [f"warm start from {self.source}"]
        lines += [
            f"table {name}: {match.matched} rows matched, {match.new} new, {match.dropped} dropped"
            for name, match in self.tables.items()
        ]
        lines.append(f"dense weights: {len(self.dense_matched)} matched, {len(self.dense_new)} new")
        lines += [f"dense weight {name}: {reason}" for name, reason in self.dense_new.items()]
        gone = [*(f"table {name}" for name in self.tables_dropped), *self.dense_dropped]
        return lines + ([f"dropped: {', '.join(gone)}"] if gone else [])


def warm_start(network: TrainableNetwork, encoder: Encoder, source: str | Path) -> WarmStart:
    """Gives a network the weights of another run, as far as they match.

    Args:
        network: The network; its weights are changed.
        encoder: Its fitted features.
        source: Folder of a run (its best checkpoint is taken) or of one of its checkpoints.

    Raises:
        CheckpointError: There is no checkpoint, it is damaged, or nothing in it matches.
    """
    run, checkpoint = _locate(Path(source))
    before = Encoder.load(load_stored_config(run / "config.yaml"), run / "features")
    report = WarmStart(checkpoint.path)
    _start_tables(network.embeddings, encoder, before, checkpoint, report)
    _start_dense(network, checkpoint, report)
    if not report.dense_matched and not any(match.matched for match in report.tables.values()):
        raise CheckpointError(
            f"training.warm_start: nothing in {checkpoint.path} matches this model: no table has the same name, "
            "width and values, no dense weight the same name and shape. Is it the right run?"
        )
    return report


def _locate(source: Path) -> tuple[Path, Checkpoint]:
    if (source / MANIFEST).is_file() and source.parent.name == "checkpoints":
        return source.parent.parent, open_checkpoint(source)
    if not (source / "checkpoints").is_dir() or not (source / "config.yaml").is_file():
        raise CheckpointError(
            f"training.warm_start: {source} is neither the folder of a run (with config.yaml and checkpoints/) nor a "
            "checkpoint inside one (runs/<name>/checkpoints/step-...)"
        )
    return source, CheckpointStore(source / "checkpoints").choose("best")


def _start_tables(
    embeddings: EmbeddingCollection,
    encoder: Encoder,
    before: Encoder,
    checkpoint: Checkpoint,
    report: WarmStart,
) -> None:
    names = set()
    for kind, table, key in embeddings.places():
        name = f"{kind}/{table.name}"
        names.add(table.name)
        array = checkpoint.array(name) if name in checkpoint.names else None
        if array is None or array.shape[1] != embeddings.tables[key].dim:
            report.tables.setdefault(
                table.name, TableMatch(0, table.rows, 0 if array is None else len(array))
            )
            continue
        old, new = match_rows(
            before.vocabularies.get(table.name), encoder.vocabularies.get(table.name), len(array), table.rows
        )
        _copy(embeddings.tables[key], table, array, old, new)
        report.tables[table.name] = TableMatch(len(new), table.rows - len(new), len(array) - len(old))
    report.tables_dropped.extend(sorted({output.table for output in before.schema.ids} - names))


def match_rows(
    before: Vocabulary | None, now: Vocabulary | None, rows_before: int, rows_now: int
) -> tuple[Places, Places]:
    """Which rows of two tables stand for the same value.

    Values of vocabularies are matched by value; integers by themselves; hashes and buckets only when there are as many
    of them in both. The row of missing values always matches, rows of unseen values when there are as many of them.

    Args:
        before: Vocabulary of the other run, or None for a table of buckets.
        now: Vocabulary of this one.
        rows_before: Rows of the other table.
        rows_now: Rows of this one.

    Returns:
        Rows of the other table, and the rows of this one they match, both [matched].
    """
    if isinstance(before, TableVocabulary) and isinstance(now, TableVocabulary):
        reserved = np.arange(1 + now.oov if now.oov == before.oov else 1)
        found = pc.index_in(_text(now.values), value_set=_text(before.values))
        places = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        new = np.flatnonzero(places >= 0)
        old = places[new]
        return np.concatenate([reserved, old + 1 + before.oov]), np.concatenate([reserved, new + 1 + now.oov])
    if isinstance(before, IntegerVocabulary) and isinstance(now, IntegerVocabulary):
        same = np.arange(min(rows_before, rows_now))
    elif type(before) is type(now) and rows_before == rows_now and isinstance(now, HashVocabulary | None):
        same = np.arange(rows_now)
    else:
        same = np.arange(1)
    return same, same


def _text(values: pa.Array) -> pa.Array:
    return as_text(values).cast(pa.large_binary())


def _copy(values: ShardedTable, table: Table, array: Array, old: Places, new: Places) -> None:
    for start in range(0, len(new), SLICE_ROWS):
        part = slice(start, start + SLICE_ROWS)
        rows = np.asarray(array[old[part]], np.float32)
        values.scatter(tf.constant(new[part] + table.offset), tf.constant(rows))


def _start_dense(network: TrainableNetwork, checkpoint: Checkpoint, report: WarmStart) -> None:
    arrays = checkpoint.manifest["arrays"]
    stored = {name for name in arrays if name.startswith("dense/") and "f" in arrays[name]["dtype"]}
    for name, variable in _weights(network):
        key = f"dense/{name}"
        if key not in stored:
            report.dense_new[name] = "not in the other run"
            continue
        stored.discard(key)
        array = checkpoint.array(key)
        if array.shape != tuple(variable.shape):
            report.dense_new[name] = f"shape {list(variable.shape)} here, {list(array.shape)} there"
            continue
        variable.assign(np.asarray(array))
        report.dense_matched.append(name)
    report.dense_dropped.extend(sorted(name.removeprefix("dense/") for name in stored))


def _weights(network: TrainableNetwork) -> Iterator[tuple[str, keras.Variable]]:
    """Dense weights and moving averages; seeds of dropout belong to the run."""
    for name, variable in network.named_variables().items():
        if "float" in keras.backend.standardize_dtype(variable.dtype):
            yield name, variable
