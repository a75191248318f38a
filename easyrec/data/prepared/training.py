"""The shards of a pipeline: training rows shuffled into splits, held-out rows in the order of the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from easyrec.config.pipeline import PipelineConfig
from easyrec.data.bound import BoundDataset
from easyrec.data.prepared.shards import ShardSet, join
from easyrec.data.prepared.write import ShardPlan, batches_per_split, write_shards
from easyrec.data.rows import Rows
from easyrec.data.store import SHARDS
from easyrec.errors import DataError
from easyrec.features.encoder import Encoder


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
    progress: Callable[[int], None] = lambda rows: None,
) -> ShardSet:
    """The shards of the training rows, made unless they are there.

    Args:
        config: The resolved configuration.
        data: The data.
        encoder: The fitted features.
        folder: Of all shards of the pipeline; these go into `train`.
        replace: Whether shards of something else that are there are removed; among the run's own data they always are.
        progress: Called from several threads with the rows of each split written.

    Raises:
        DataError: The data or the folder cannot be used.
    """
    batch, rows = config.training.batch_size, data.train.num_rows
    if data.train.negatives is not None:
        rows += data.train.negatives.rows_added
    buffer = config.data.shuffle_buffer if config.data.shuffle else 0
    split = batches_per_split(rows, batch, config.training.shards.split_batches)
    facts = {**data.facts(), "features": encoder.fingerprint}
    encoder.reset_coverage()
    shards = write_shards(
        join(folder, "train"),
        data.train.parts(max(config.data.shuffle_buffer, split * batch)),
        lambda table: encoder.encode_table(table, count=True),
        ShardPlan(batch, split, buffer, config.training.seed, facts),
        coverage=encoder.coverage,
        replace=replace or config.training.shards.path is None,
        progress=progress,
    )
    encoder.reset_coverage(shards.coverage)
    return shards


def held_out_shards(config: PipelineConfig, data: BoundDataset, encoder: Encoder, folder: str) -> ShardSet:
    """The shards of the held-out rows, in the order of the files, for workers to predict.

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
        {**data.facts(rows), "features": encoder.fingerprint},
    )
    return write_shards(join(folder, "eval"), [_InOrder(rows)], encoder.encode_table, plan, replace=True)


class _InOrder:
    """Rows in the order of the files, whatever the seed."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def chunks(self, seed: int | None = None) -> Iterator[pa.Table]:
        """All chunks."""
        return self._rows.chunks()
