"""The state at the end of the training data: each user's and each item's latest row, histories, seen items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from easyrec.config.expressions import Expression
from easyrec.data.column_types import cast, is_text, plain
from easyrec.data.engine import batches, connect
from easyrec.data.history import BuiltHistory
from easyrec.data.join import KeyedTable
from easyrec.data.keys import KeyIndex
from easyrec.data.rows import Rows


def latest_of_each(rows: Rows, log: Path, key: str, word: str, columns: Sequence[str]) -> pa.Table:
    """The latest interaction of each user or item, by time and then by place in the files; without a time, the last.

    Args:
        rows: The training rows.
        log: Their event log.
        key: Name of the key column.
        word: `user` or `item`, its name in the log.
        columns: Columns to keep beside the key.

    Returns:
        One row a key, in the order of the keys.
    """
    marks = np.zeros(rows.num_rows, bool)
    with connect() as connection:
        events = connection.read_parquet(str(log))
        order = [events.row.desc()]
        if "time" in events.columns:
            order = [
                events.time.isnull(),
                events.time.desc(),
                *order,
            ]  # rows without a time count as the earliest
        ranked = events.select(word, "row", place=ibis.row_number().over(group_by=word, order_by=order))
        for batch in batches(ranked.filter(ranked.place == 0).select("row")):
            marks[batch["row"].to_numpy()] = True
    names = list(dict.fromkeys([key, *columns]))
    parts = [
        table.filter(pa.array(marks[places]))
        for places, table in rows.interactions(names)
        if marks[places].any()
    ]
    table = pa.concat_tables(parts, promote_options="default").combine_chunks()
    keys = table.column(key)
    if is_text(keys.type):
        keys = cast(keys, pa.string())
    return table.take(pc.sort_indices(keys)).combine_chunks()


def rows_of(table: pa.Table, key: str, wanted: pa.Array, described: KeyedTable | None) -> pa.Table:
    """One row for each wanted key: from `table`, or what `described` says of a key that `table` lacks, else nulls."""
    found = KeyIndex(table.column(key), text=is_text(wanted.type)).find(wanted)
    indices = pa.array(found, pa.int64(), mask=found < 0)
    joined = {}
    if described is not None and key == described.key:
        names = [name for name in table.column_names if name in described.columns()]
        joined = described.take(described.find(wanted), names)
    columns = {}
    for name in table.column_names:
        if name == key:
            columns[name] = pa.chunked_array([wanted])
            continue
        column = table.column(name).take(indices)
        if name in joined:
            column = pc.if_else(pa.array(found >= 0), column, cast(joined[name], column.type))
        columns[name] = column
    return pa.table(columns)


def final_histories(built: BuiltHistory, users: pa.Array, last: int) -> pa.ListArray:
    """The last values of each user's history, the latest interaction included."""
    known = pq.read_table(built.users)
    found = KeyIndex(known.column("user"), text=is_text(users.type)).find(users)
    events, first = known.column("events").to_numpy(), known.column("first").to_numpy()
    counts = np.where(found >= 0, events[found] if len(events) else 0, 0)
    starts = np.where(found >= 0, first[found] if len(first) else 0, 0)
    lengths = np.minimum(counts, last)
    return built.slices(starts + counts - lengths, lengths)


def seen_items(log: Path, users: pa.Array) -> pa.ListArray:
    """The items of each user's interactions, each once, in order of the keys."""
    with connect() as connection:
        events = connection.read_parquet(str(log))
        pairs = events.select("user", "item").distinct().order_by(["user", "item"]).to_pyarrow()
    known = pairs.column("user").combine_chunks().dictionary_encode()
    counts = np.bincount(known.indices.to_numpy(), minlength=len(known.dictionary))
    ends = np.cumsum(counts)
    found = KeyIndex(known.dictionary, text=is_text(users.type)).find(users)
    lengths = np.where(found >= 0, counts[found] if len(counts) else 0, 0)
    starts = np.where(found >= 0, (ends - counts)[found] if len(counts) else 0, 0)
    offsets = np.zeros(len(users) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    index = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    items = pairs.column("item").combine_chunks().take(pa.array(index))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)


def relevant_items(rows: Rows, user: str, item: str, condition: Expression | None, label: str) -> pa.Table:
    """User, item and gain of the rows that count as hits; each pair once, with its largest gain.

    Args:
        rows: Evaluation rows.
        user: Name of the user key.
        item: Name of the item key.
        condition: Which rows count, each with gain 1; None for those with a label above 0, which is their gain.
        label: Name of the label column.
    """
    parts = []
    extras = {} if condition is None else {"relevant": condition}
    for table in rows.select([user, item, label], extras):
        if condition is None:
            gain = pc.cast(table.column(label), pa.float64())
            mask = pc.greater(gain, 0.0)
        else:
            mask = table.column("relevant")
            gain = pc.cast(mask, pa.float64())
        keys = {name: plain(table.column(name)) for name in (user, item)}
        parts.append(pa.table({**keys, "gain": gain}).filter(mask))
    everything = pa.concat_tables(parts)
    hits = everything.group_by([user, item], use_threads=False).aggregate([("gain", "max")])
    return hits.select([user, item, "gain_max"]).rename_columns([user, item, "gain"])
