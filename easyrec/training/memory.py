"""Whether the embedding tables of a training fit into the memory of this machine, asked before they are made."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import tensorflow as tf

from easyrec.config.pipeline import PipelineConfig
from easyrec.embedding.optimizers import row_optimizer
from easyrec.errors import TrainingError
from easyrec.features.outputs import FeatureSchema, IdsOutput

_CONTROL_GROUP = Path("/sys/fs/cgroup/memory.max")
_WORD = 4
_GIB = 1 << 30


def machine_memory() -> int:
    """Bytes that this process may use: those of the machine, or of the container that it runs in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CONTROL_GROUP.read_text(encoding="ascii").strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdecimal() else machine


def row_bytes(config: PipelineConfig, dims: Iterable[int]) -> int:
    """Bytes of a row of embeddings of some widths, with the optimizer's slots."""
    optimizer = row_optimizer(config.training.optimizer.embedding)
    stored = tf.as_dtype(config.embedding.storage).size
    return sum(int(stored * dim + _WORD * optimizer.slot_values(dim)) for dim in dims)


def table_bytes(config: PipelineConfig, schema: FeatureSchema) -> dict[str, int]:
    """Bytes of each embedding table with the optimizer's slots, the largest first; linear weights are not counted."""
    sizes = {output.table: output.rows * row_bytes(config, [output.dim]) for output in schema.ids}
    return dict(sorted(sizes.items(), key=lambda pair: -pair[1]))


def memory_shortage(config: PipelineConfig, schema: FeatureSchema) -> str | None:
    """What is said where the tables of a pipeline cannot fit this machine; None where they can."""
    sizes, memory = table_bytes(config, schema), machine_memory()
    total = sum(sizes.values())
    if total <= memory:
        return None
    largest = next(iter(sizes))
    shape = next(output for output in schema.ids if output.table == largest)
    return (
        f"the embedding tables take {total / _GIB:,.1f} GiB with the optimizer's slots, and this machine has "
        f"{memory / _GIB:,.1f} GiB; the largest is {_words(shape)}"
    )


def check_memory(config: PipelineConfig, schema: FeatureSchema) -> None:
    """Refuses a pipeline whose tables cannot fit this machine.

    Raises:
        TrainingError: They are larger than its memory.
    """
    if (shortage := memory_shortage(config, schema)) is not None:
        raise TrainingError(
            f"{shortage}. Lower `embedding.dim` or the vocabulary (`min_count`, `max_size`, hash `buckets`), choose "
            "`training.optimizer.embedding.type: row_wise_adagrad` or `embedding.storage: bfloat16`, or train on "
            "parameter servers (docs/how_to/train_on_a_cluster.md)"
        )


def _words(output: IdsOutput) -> str:
    return f"{output.table!r}, {output.rows:,} rows of {output.dim:,} values"
