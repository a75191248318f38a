"""Behaviour sequences: what a user did before a moment, oldest first.

For a row of user u at time t, the history of a definition is the last `last` values of column `of` among the
interactions of u that satisfy `where` and happened strictly before t. Interactions at the same time as the row are not
seen, the row itself included. Among equal times before t the order of the files holds. Interactions without user, time
or value belong to no history; a row without user or time has an empty one.

`build` does this for all rows at once, larger than memory: the values are sorted by user and time once, and a row's
history is a slice of them, so that storage and work grow with the number of rows, however active a user is.
`apply_history` is the same for one user, as a service applies it to its own events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from easyrec.config.expressions import parse
from easyrec.config.features import History
from easyrec.data.arrays import create_array
from easyrec.data.engine import batches, connect
from easyrec.data.expressions import to_arrow
from easyrec.errors import DataError


@dataclass(frozen=True)
class HistoryColumn:
    """A history as a column of chunks.

    Attributes:
        name: Name of the column in chunks.
        of: Column of the interactions whose values are listed.
        where: Condition, or None.
        last: At most so many values.
    """

    name: str
    of: str
    where: str | None
    last: int

    @classmethod
    def of_feature(cls, name: str, history: History) -> HistoryColumn:
        """From the options of a sequence feature.

        Raises:
            DataError: `of` is not filled in.
        """
        if history.of is None:
            raise DataError(f"features.{name}.history: `of` is missing: which column is listed")
        return cls(name, history.of, history.where, history.last)


def apply_history(events: pa.Table, definition: HistoryColumn, time: str, now: Any) -> pa.Array:
    """The history of one user at one moment.

    Args:
        events: The user's interactions, in the order they were recorded; holds the columns that the definition reads.
        definition: What is listed.
        time: Name of the time column.
        now: Only interactions strictly before this, of the time column's type (or Python's equal of it).

    Returns:
        The values, oldest first, of the type of `definition.of`.
    """
    keep = pc.and_(pc.is_valid(events[time]), pc.is_valid(events[definition.of]))
    moment = now if isinstance(now, pa.Scalar) else pa.scalar(now, events[time].type)
    keep = pc.and_(keep, pc.less(events[time], moment))
    if definition.where is not None:
        keep = pc.and_(keep, pc.fill_null(to_arrow(parse(definition.where), events), False))
    kept = events.filter(pc.fill_null(keep, False))
    order = np.argsort(np.asarray(kept[time].cast(_orderable(kept[time].type))), kind="stable")
    return kept[definition.of].take(pa.array(order[max(0, len(order) - definition.last) :])).combine_chunks()


def _orderable(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) or pa.types.is_integer(kind) else pa.float64()


class BuiltHistory:
    """The histories of all rows of one table, by row position.

    Args:
        folder: What `build` wrote.
    """

    def __init__(self, folder: Path) -> None:
        self.stops: NDArray[np.int64] = np.load(folder / "stops.npy", mmap_mode="r")
        self.lengths: NDArray[np.int32] = np.load(folder / "lengths.npy", mmap_mode="r")
        self.values: NDArray[Any] = np.load(folder / "values.npy", mmap_mode="r")
        self.words: pa.Array | None = None
        if (folder / "words.parquet").exists():
            self.words = pq.read_table(folder / "words.parquet").column(0).combine_chunks()
        self.users = folder / "users.parquet"

    def gather(self, positions: NDArray[np.int64]) -> pa.ListArray:
        """The histories of the rows at `positions`."""
        lengths = self.lengths[positions].astype(np.int64)
        return self.slices(self.stops[positions] - lengths, lengths)

    def slices(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> pa.ListArray:
        """Lists of consecutive values of the sorted whole."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        index = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        values = pa.array(np.asarray(self.values[index]))
        if self.words is not None:
            values = self.words.take(values)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def build(
    folder: Path,
    events: Sequence[Path],
    target: int,
    num_rows: int,
    last: int,
    names: Mapping[str, str],
) -> None:
    """Writes the histories of all rows of one table.

    Args:
        folder: Where to write.
        events: Event logs (Parquet: `row`, `user`, `time`, and for each history a value and whether it counts), whose
            interactions all count; earlier files come first among equal times.
        target: Index of the log whose rows get histories.
        num_rows: Rows of the target's table, those that are in no log included.
        last: At most so many values a row.
        names: Columns of the log: `value` and `keep`.
    """
    stops = create_array(folder / "stops.npy", np.int64, num_rows)
    lengths = create_array(folder / "lengths.npy", np.int32, num_rows)
    with connect(folder) as connection:
        rows = _rows(connection, events, names)
        kept = rows.filter(rows.keep)
        at_time = rows.group_by(["user", "time"]).aggregate(count=rows.keep.sum())
        running = at_time["count"].sum().over(ibis.cumulative_window(group_by="user", order_by="time"))
        at_time = at_time.mutate(before=running - at_time["count"])
        per_user = at_time.group_by("user").aggregate(events=at_time["count"].sum())
        through = per_user.events.sum().over(ibis.cumulative_window(order_by="user"))
        per_user = per_user.mutate(first=through - per_user.events)
        wanted = rows.filter(rows.log == target)
        pointed = wanted.join(at_time, ["user", "time"]).join(per_user, "user")
        pointed = pointed.select("row", stop=pointed["first"] + pointed.before, length=pointed.before)
        for batch in batches(pointed):
            index = batch["row"].to_numpy()
            stops[index] = _whole(batch["stop"])
            lengths[index] = np.minimum(_whole(batch["length"]), last)
        _write_values(folder, kept.order_by(["user", "time", "log", "row"]), kept)
        per_user = per_user.select("user", "events", "first").order_by("first").to_pyarrow()
        pq.write_table(per_user, folder / "users.parquet")
    stops.flush()
    lengths.flush()


def _whole(column: pa.Array) -> NDArray[np.int64]:
    """DuckDB's 128-bit sums, which Parquet holds as floats."""
    return column.cast(pa.int64()).to_numpy()


def _rows(connection: Any, events: Sequence[Path], names: Mapping[str, str]) -> Any:
    logs = []
    for index, path in enumerate(events):
        log = connection.read_parquet(str(path), table_name=f"log_{index}")
        logs.append(
            log.select(
                "row",
                "user",
                "time",
                value=log[names["value"]],
                keep=log[names["keep"]],
                log=ibis.literal(index, "int64"),
            ).filter(log.user.notnull() & log.time.notnull())
        )
    return logs[0] if len(logs) == 1 else ibis.union(*logs)


def _write_values(folder: Path, ordered: Any, kept: Any) -> None:
    count = int(kept.count().to_pyarrow().as_py())
    text = ordered.schema()["value"].is_string()
    if text:
        words = kept.select("value").distinct().order_by("value")
        words = words.mutate(code=ibis.row_number().over(order_by="value"))
        words.select("value").order_by("value").to_parquet(folder / "words.parquet")
        coded = kept.join(words, "value")
        ordered = coded.order_by(["user", "time", "log", "row"]).select(value="code")
    else:
        ordered = ordered.select("value")
    values = create_array(folder / "values.npy", np.int32 if text else np.int64, count)
    position = 0
    for batch in batches(ordered):
        values[position : position + batch.num_rows] = batch["value"].cast(pa.int64()).to_numpy()
        position += batch.num_rows
    values.flush()
