"""The shards of a pipeline: training rows shuffled into splits, held-out rows in the order of the files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from easyrec.config.pipeline import PipelineConfig
from easyrec.data.bound import BoundDataset
from easyrec.data.prepared.shards import ShardSet, join
from easyrec.data.prepared.write import ShardPlan, batches_per_split, write_shards
from easyrec.data.rows import Rows
from easyrec.data.store import SHARDS
from easyrec.errors import DataError
from easyrec.features.coded_ids import dictionaries
from easyrec.features.encoder import Encoder

_SECONDS_BETWEEN_LINES = 10.0


def shards_folder(config: PipelineConfig, prepared: Path) -> str:
    """Where the shards of a run lie: as configured, else among the run's prepared data."""
    return config.training.shards.path or str(prepared / SHARDS)


def training_shards(
    config: PipelineConfig,
    data: BoundDataset,
    encoder: Encoder,
    folder: str,
    *,
    replace: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> ShardSet:
    """The shards of the training rows, made unless they are there.

    Args:
        config: The resolved configuration.
        data: The data.
        encoder: The fitted features.
        folder: Of all shards of the pipeline; these go into `train`.
        replace: Whether shards of something else that are there are removed; among the run's own data they always are.
        tell: Called with a line of text every ten seconds, and while another process is waited for.

    Raises:
        DataError: The data or the folder cannot be used.
    """
    batch, negatives = config.training.batch_size, data.train.negatives
    added = 0 if negatives is None else negatives.rows_added
    rows = data.train.num_rows + added
    buffer = config.data.shuffle_buffer if config.data.shuffle else 0
    split = batches_per_split(rows, batch, config.training.shards.split_batches)
    shards = write_shards(
        join(folder, "train"),
        data.train.parts(max(config.data.shuffle_buffer, split * batch)),
        lambda table, coverage: encoder.encode_table(table, count=coverage),
        ShardPlan(
            batch,
            split,
            buffer,
            config.training.seed,
            *_facts(data, data.train, encoder),
            dictionaries(encoder.schema),
        ),
        replace=replace or config.training.shards.path is None,
        progress=_Progress((data.train.report.rows_used or data.train.num_rows) + added, tell),
        tell=tell,
    )
    encoder.reset_coverage(shards.coverage)
    return shards


def held_out_shards(
    config: PipelineConfig,
    data: BoundDataset,
    encoder: Encoder,
    folder: str,
    *,
    tell: Callable[[str], None] = lambda text: None,
) -> ShardSet:
    """The shards of the held-out rows, in the order of the files, for workers to predict.

    Args:
        config: The resolved configuration.
        data: The data.
        encoder: The fitted features.
        folder: Of all shards of the pipeline; these go into `eval`.
        tell: Called with a line of text while another process is waited for.

    Raises:
        DataError: There are no held-out rows, or the folder cannot be used.
    """
    rows = data.eval
    if rows is None:
        raise DataError("there are no evaluation rows: give `data.eval` or `data.split`")
    batch = config.evaluation.batch_size
    plan = ShardPlan(
        batch,
        batches_per_split(rows.num_rows, batch, config.training.shards.split_batches),
        0,
        config.training.seed,
        *_facts(data, rows, encoder),
        dictionaries(encoder.schema),
    )
    return write_shards(
        join(folder, "eval"),
        [_InOrder(rows)],
        lambda table, coverage: encoder.encode_table(table),
        plan,
        replace=True,
        tell=tell,
    )


def _facts(data: BoundDataset, rows: Rows, encoder: Encoder) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All that decides what shards of some rows hold, and what else leads to the same.

    Where faulty rows may be left out, shards that were made when none might be have none, so they serve as well: one
    that is damaged later is left out by `data.on_error: skip` without preparing all of them again.
    """
    facts, strict = (
        {**data.facts(rows, strict), "features": encoder.fingerprint} for strict in (False, True)
    )
    return facts, [strict]


class _Progress:
    """Says how far preparing is, every ten seconds; called from several threads."""

    def __init__(self, rows: int, tell: Callable[[str], None]) -> None:
        self._rows, self._tell = rows, tell
        self._done, self._began = 0, time.monotonic()
        self._told = self._began
        self._lock = threading.Lock()

    def __call__(self, more: int) -> None:
        with self._lock:
            self._done += more
            now = time.monotonic()
            if now - self._told > _SECONDS_BETWEEN_LINES:
                self._told = now
                speed = self._done / (now - self._began)
                self._tell(f"shards of {self._done:,} of {self._rows:,} rows, {speed:,.0f} rows/s")


class _InOrder:
    """Rows in the order of the files, whatever the seed."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def chunks(self, seed: int | None = None) -> Iterator[pa.Table]:
        """All chunks."""
        return self._rows.chunks()
