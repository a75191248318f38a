"""Popularity and co-occurrence of items, from interactions that need not fit in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import ibis
import ibis.expr.types as ir
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from easyrec.data.engine import connect
from easyrec.export.tables import KeyedTable

NEIGHBORS = 50
USER_HISTORY = 200
SHRINKAGE = 10.0
_BLOCK_ITEMS = 1024
_HALF_LIFE_SHARE = 0.1

_SCHEMA = pa.schema([("item", pa.int32()), ("user", pa.string()), ("time", pa.float64())])


@dataclass(frozen=True)
class ItemStatistics:
    """What interactions tell of N items; the arrays are those of `Candidates`."""

    count: npt.NDArray[np.int64]
    recent: npt.NDArray[np.float64]
    neighbors: npt.NDArray[np.int32]
    neighbor_scores: npt.NDArray[np.float32]


def item_statistics(
    interactions: Iterable[pa.Table],
    items: KeyedTable,
    user: str | None = None,
    time: str | None = None,
) -> ItemStatistics:
    """Counts how often items were taken, and which ones by the same users.

    An interaction's weight in `recent` halves with every tenth of the time that the data span. Two items are
    neighbours when users took both, among each user's latest 200 items; the score is c / (sqrt(a b) + 10), with c the
    users of both and a and b those of each: the cosine, drawn towards 0 where there are few users.

    Args:
        interactions: Tables with the key column of `items`, and perhaps the columns `user` and `time`; rows without
            a known item are passed over.
        items: The catalogue.
        user: Column that identifies the user; no neighbours without one.
        time: Column with the time; `recent` is `count` without one.
    """
    with tempfile.TemporaryDirectory(prefix="easyrec-") as folder:
        path = Path(folder) / "interactions.parquet"
        with pq.ParquetWriter(path, _SCHEMA) as writer:
            for table in interactions:
                writer.write_table(_compact(table, items, user, time))
        with connect(Path(folder)) as connection:
            taken = connection.read_parquet(path)
            count, recent = _popularity(taken, len(items))
            neighbors, scores = _neighbors(taken, len(items))
    return ItemStatistics(count, recent, neighbors, scores)


def _compact(table: pa.Table, items: KeyedTable, user: str | None, time: str | None) -> pa.Table:
    rows, names = items.positions(table[items.key]), table.column_names
    columns = {
        "item": pa.array(rows, pa.int32()),
        "user": table[user].cast(pa.string()) if user in names else pa.nulls(len(table), pa.string()),
        "time": _seconds(table[time]) if time in names else pa.nulls(len(table), pa.float64()),
    }
    return pa.table(columns, schema=_SCHEMA).filter(pa.array(rows >= 0))


def _seconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as numbers of any one unit: only their differences matter here."""
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("s"))
    return (
        times.cast(pa.int64()).cast(pa.float64())
        if pa.types.is_timestamp(times.type)
        else times.cast(pa.float64())
    )


def _popularity(taken: ir.Table, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    span = taken.aggregate(first=taken.time.min(), last=taken.time.max()).to_pyarrow().to_pylist()[0]
    recent = taken.count().cast("float64")
    if span["first"] is not None and span["last"] > span["first"]:
        half_life = (span["last"] - span["first"]) * _HALF_LIFE_SHARE
        weight = (-np.log(2.0) * (span["last"] - taken.time) / half_life).exp()
        recent = weight.fill_null(0.0).sum()
    by_item = taken.group_by("item").aggregate(count=taken.count(), recent=recent).to_pyarrow()
    rows = by_item["item"].to_numpy()
    counts, weights = np.zeros(size, np.int64), np.zeros(size)
    counts[rows] = by_item["count"].to_numpy()
    weights[rows] = by_item["recent"].to_numpy()
    return counts, weights


def _neighbors(taken: ir.Table, size: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    known = taken.filter(taken.user.notnull())
    pairs = known.group_by("user", "item").aggregate(last=known.time.max())
    order = ibis.window(
        group_by=pairs.user, order_by=[ibis.desc(pairs["last"], nulls_first=False), pairs.item]
    )
    pairs = pairs.mutate(place=ibis.row_number().over(order)).filter(lambda row: row.place < USER_HISTORY)
    table = pairs.select("user", "item").to_pyarrow()
    users = pc.dictionary_encode(table["user"].combine_chunks())
    codes = users.indices.to_numpy(zero_copy_only=False)
    shape = (len(users.dictionary), size)
    matrix = sparse.csr_array(
        (np.ones(len(codes), np.float32), (codes, table["item"].to_numpy())), shape=shape
    )
    return _top_neighbors(matrix, size)


def _top_neighbors(
    matrix: sparse.csr_array, size: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    width = min(NEIGHBORS, max(size - 1, 0))
    neighbors = np.full((size, width), -1, np.int32)
    scores = np.zeros((size, width), np.float32)
    by_item = matrix.T.tocsr()
    norms = np.sqrt(matrix.sum(axis=0))
    for start in range(0, size, _BLOCK_ITEMS):
        together = (by_item[start : start + _BLOCK_ITEMS] @ matrix).tocsr()
        for offset in range(together.shape[0]):
            item = start + offset
            span = slice(together.indptr[offset], together.indptr[offset + 1])
            others = together.indices[span]
            values = together.data[span] / (norms[item] * norms[others] + SHRINKAGE)
            values[others == item] = 0
            order = np.lexsort((others, -values))[: np.count_nonzero(values)][:width]
            neighbors[item, : len(order)] = others[order]
            scores[item, : len(order)] = values[order]
    return neighbors, scores
