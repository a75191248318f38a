"""What a training will take before it starts: parameters, memory of each process, bytes moved in a step.

Rows of a fused table go to the servers in turn, so each server has the same number of them within one; what may differ
is how many of the rows that batches ask for lie on each. That is counted on a batch of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from easyrec.config.pipeline import PipelineConfig
from easyrec.embedding.layout import Group
from easyrec.embedding.lookup import host_lookup
from easyrec.features.batch import EncodedBatch
from easyrec.features.outputs import FeatureSchema
from easyrec.models.network import build_network
from easyrec.training.memory import row_bytes

_HOT = 1.25
_WORD = 4
_NAMED = 4


@dataclass(frozen=True)
class TableShare:
    """One embedding table.

    Attributes:
        name: Its name.
        rows: Rows.
        values: Values of a row in the table and its linear weights.
        bytes: Bytes of all rows and of the optimizer's slots.
        rows_per_server: Rows on each server.
    """

    name: str
    rows: int
    values: int
    bytes: int
    rows_per_server: tuple[int, ...]


@dataclass(frozen=True)
class TrainingPlan:
    """What a training takes.

    Attributes:
        servers: Parameter servers; 0 where there are none.
        workers: Workers of the servers, or replicas that train in step.
        tables: The embedding tables.
        dense: Dense weights, state included.
        dense_bytes: Bytes of the dense weights and of their optimizer's slots, about.
        step_rows: Distinct rows that a batch of the data asks for, on each server.
        step_bytes: Bytes that a step moves between a worker and the servers, or to a replica from the others.
        batch_bytes: Bytes of what a worker holds of a step: batch, rows and dense weights with their gradients.
    """

    servers: int
    workers: int
    tables: tuple[TableShare, ...]
    dense: int
    dense_bytes: int
    step_rows: tuple[int, ...]
    step_bytes: int
    batch_bytes: int

    @property
    def table_bytes(self) -> int:
        """Bytes of all tables with their slots."""
        return sum(table.bytes for table in self.tables)

    @property
    def parameters(self) -> int:
        """Weights in all."""
        return self.dense + sum(table.rows * table.values for table in self.tables)

    @property
    def hottest(self) -> float:
        """Rows that a batch asks of the busiest server, as a multiple of the mean."""
        mean = sum(self.step_rows) / max(1, len(self.step_rows))
        return max(self.step_rows, default=0) / mean if mean else 1.0

    def server_bytes(self) -> tuple[int, ...]:
        """Bytes on each server."""
        count = max(1, self.servers)
        totals = [self.dense_bytes // count] * count
        for table in self.tables:
            row = table.bytes // max(1, table.rows)
            totals = [total + rows * row for total, rows in zip(totals, table.rows_per_server, strict=True)]
        return tuple(totals)

    def lines(self) -> list[str]:
        """The plan in words."""
        place = "one device"
        if self.servers:
            place = f"{_count(self.servers, 'server')}, {_count(self.workers, 'worker')}"
        elif self.workers > 1:
            place = f"each of {self.workers} replicas"
        lines = [
            f"{self.parameters:,} parameters on {place}: {self.dense:,} dense, the rest in tables "
            f"({_size(self.table_bytes)} with the optimizer's slots)"
        ]
        for table in sorted(self.tables, key=lambda table: -table.bytes):
            where = f"; {self._on_servers(table)}" if self.servers else ""
            lines.append(
                f"  table {table.name}: {table.rows:,} rows of {table.values}, {_size(table.bytes)}{where}"
            )
        if not self.servers:
            each = " of each replica" if self.workers > 1 else ""
            lines.append(
                f"memory{each}: {_size(self.table_bytes + self.dense_bytes)} of weights with slots, "
                f"{_size(self.batch_bytes)} for a step, and its activations"
            )
            if self.workers > 1:
                lines.append(
                    f"a step moves {_size(self.step_bytes)} to each replica from the others, for "
                    f"{sum(self.step_rows):,} distinct rows of each"
                )
        else:
            named = ", ".join(f"ps {index} {_size(size)}" for index, size in enumerate(self.server_bytes()))
            lines.append(
                f"memory of the servers: {named}; of a worker: {_size(self.batch_bytes)} for the steps under way, and "
                "their activations"
            )
            lines.append(
                f"a step moves {_size(self.step_bytes)} between a worker and the servers, for "
                f"{sum(self.step_rows):,} distinct rows"
            )
            if self.hottest > _HOT:
                lines.append(
                    f"hot shard: ps {int(np.argmax(self.step_rows))} is asked for {self.hottest:.2f} times the mean of "
                    "rows; a number of servers without a common divisor with the ids' pattern spreads them"
                )
        return lines

    def _on_servers(self, table: TableShare) -> str:
        """How many rows and bytes of a table lie on each server."""
        row = table.bytes // max(1, table.rows)
        fewest, most = min(table.rows_per_server), max(table.rows_per_server)
        if fewest == most:
            return f"{most:,} rows, {_size(most * row)} on each server"
        more = [f"ps {index}" for index, rows in enumerate(table.rows_per_server) if rows == most]
        named = ", ".join(more) if len(more) <= _NAMED else f"{len(more)} servers"
        return f"{most:,} rows, {_size(most * row)} on {named}, one row less on the others"


def plan_training(
    config: PipelineConfig,
    schema: FeatureSchema,
    sample: EncodedBatch,
    *,
    servers: int = 0,
    workers: int = 1,
) -> TrainingPlan:
    """The plan of a pipeline, without making its tables.

    Args:
        config: The resolved configuration.
        schema: Of its fitted features.
        sample: A batch of the data, to count the rows that batches ask for.
        servers: Parameter servers; 0 where there are none.
        workers: Workers of the servers, or replicas that train in step.
    """
    # The dense part does not depend on how long tables are, so it is built over tables of one row.
    network = build_network(config, schema.short(), np.ones(1, np.int64))
    outputs = {output.feature: output for output in schema.ids}
    collection = network.embeddings
    count = max(1, servers)
    tables, groups = [], []
    step_rows = np.zeros(count, np.int64)
    cluster = config.training.cluster
    moved = tf.as_dtype(cluster.transfer).size if servers else _WORD
    id_bytes = row_values = 0
    for group in collection.groups:
        members = [*group.singles, *group.multis]
        rows = {output.table: outputs[output.feature].rows for output in members}
        widths = [dim for _, dim in collection.kinds(group)]
        groups.append((_long(group, rows), widths))
        for table in groups[-1][0].tables:
            values = sum(widths)
            size = table.rows * row_bytes(config, widths)
            # The rows of the fused table go to the servers in turn; this table begins somewhere in it.
            shares = tuple(
                len(range((shard - table.offset) % count, table.rows, count)) for shard in range(count)
            )
            tables.append(TableShare(table.name, table.rows, values, size, shares))
    dense = sum(int(np.prod(variable.shape)) for variable in network.variables)
    for group, widths in groups:
        unique = host_lookup((group,), sample.as_dict())[f"unique/{group.name}"].numpy()
        step_rows += np.bincount(unique % count, minlength=count)
        id_bytes += len(unique) * np.dtype(group.id_dtype).itemsize
        row_values += len(unique) * sum(widths)
    if servers:  # ids twice, rows in, gradients out; weights in, gradients out
        step_bytes = 2 * id_bytes + 2 * moved * row_values + 2 * _WORD * dense
    else:  # ids and gradients of the others' rows; a ring adds the gradients of dense weights up and hands them round
        step_bytes = (workers - 1) * (id_bytes + _WORD * row_values) + 2 * _WORD * dense * (
            workers - 1
        ) // workers
    held = (
        sum(array.nbytes for array in sample.as_dict().values()) + id_bytes + 2 * _WORD * (row_values + dense)
    )
    under_way = cluster.concurrent_batches if servers and cluster.mode == "asynchronous" else 1
    return TrainingPlan(
        servers,
        workers,
        tuple(tables),
        dense,
        3 * _WORD * dense,
        tuple(int(rows) for rows in step_rows),
        int(step_bytes),
        int(under_way * held),
    )


def _long(group: Group, rows: Mapping[str, int]) -> Group:
    """The group with tables of their real length."""
    tables, offset = [], 0
    for table in group.tables:
        tables.append(replace(table, rows=rows[table.name], offset=offset))
        offset += rows[table.name]
    return replace(group, tables=tuple(tables))


def _size(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
