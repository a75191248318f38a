"""The event log: who did what and when, one narrow file that splits, histories and snapshots are made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from easyrec.config.data import KeysConfig
from easyrec.config.expressions import Expression, parse
from easyrec.data.column_types import plain, time_order
from easyrec.data.history import HistoryColumn
from easyrec.data.rows import Rows

_GROUP_ROWS = 1 << 17


def write_log(path: Path, rows: Rows, keys: KeysConfig, histories: Sequence[HistoryColumn]) -> None:
    """Writes the event log of training or evaluation rows.

    Columns: `row` (position in the source), `user`, `item`, `time` (as `time_order`) where the key is configured, and
    for the i-th history `value_i` and `keep_i`.

    Args:
        path: The Parquet file.
        rows: The rows; all that belong to the part and satisfy `data.where`.
        keys: Names of the key columns.
        histories: What is kept for histories.
    """
    writer: pq.ParquetWriter | None = None
    try:
        for table in _tables(rows, keys, histories):
            writer = writer or pq.ParquetWriter(path, table.schema, compression="lz4")
            writer.write_table(table, row_group_size=_GROUP_ROWS)
        if writer is None:
            pq.write_table(_empty(keys, histories), path)
    finally:
        if writer is not None:
            writer.close()


def _tables(rows: Rows, keys: KeysConfig, histories: Sequence[HistoryColumn]) -> Iterator[pa.Table]:
    columns = [name for name in (keys.user, keys.item, keys.time) if name is not None]
    columns += [history.of for history in histories if history.of not in columns]
    conditions: dict[str, Expression] = {
        f"keep_{index}": parse(history.where)
        for index, history in enumerate(histories)
        if history.where is not None
    }
    for positions, table in rows.interactions(columns, conditions):
        arrays: dict[str, pa.Array | pa.ChunkedArray] = {"row": pa.array(positions)}
        if keys.user is not None:
            arrays["user"] = plain(table.column(keys.user))
        if keys.item is not None:
            arrays["item"] = plain(table.column(keys.item))
        if keys.time is not None:
            arrays["time"] = time_order(table.column(keys.time))
        for index, history in enumerate(histories):
            value = plain(table.column(history.of))
            keep = pc.is_valid(value)
            if history.where is not None:
                keep = pc.and_(keep, pc.fill_null(table.column(f"keep_{index}"), False))
            arrays[f"value_{index}"] = value
            arrays[f"keep_{index}"] = keep
        yield pa.table(arrays)


def _empty(keys: KeysConfig, histories: Sequence[HistoryColumn]) -> pa.Table:
    names = {"row": pa.int64()}
    names.update({word: pa.int64() for word in ("user", "item", "time") if getattr(keys, word) is not None})
    for index in range(len(histories)):
        names.update({f"value_{index}": pa.int64(), f"keep_{index}": pa.bool_()})
    return pa.schema(list(names.items())).empty_table()


def marked(num_rows: int, positions: pa.ChunkedArray) -> np.ndarray:
    """[num_rows] bool, true at the given positions."""
    marks = np.zeros(num_rows, bool)
    marks[positions.to_numpy()] = True
    return marks
