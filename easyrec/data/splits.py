"""Which rows are held out for evaluation, when `data.eval` names no data of its own.

    random       a seeded hash of the row's position falls into the lowest `fraction`
    user         a seeded hash of the user does: all rows of some users
    time         the row is later than the time that cuts off the latest `fraction` of all rows
    user_latest  the same among the rows of each user: of n rows at least one and at most n - 1 are held out

Rows at exactly the cutting time stay in training, so nothing in training is later than, or at the time of, what is held
out; when ties leave nothing later, nothing is held out. Rows without a time stay in training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from easyrec.data.arrays import create_array
from easyrec.data.column_types import time_order
from easyrec.data.engine import batches, connect
from easyrec.data.hashing import below, hash_keys, mix


class Split(Protocol):
    """Marks the rows of a chunk that are held out."""

    def held_out(self, positions: NDArray[np.int64], table: pa.Table) -> NDArray[np.bool_]:
        """[B] whether each row is held out; `positions` are the rows' places in the whole table."""
        ...


class RandomSplit:
    """Random rows."""

    def __init__(self, fraction: float, seed: int) -> None:
        self.fraction, self.seed = fraction, seed

    def held_out(self, positions: NDArray[np.int64], table: pa.Table) -> NDArray[np.bool_]:
        """By a hash of the position."""
        return below(mix(positions, self.seed), self.fraction)


class UserSplit:
    """All rows of random users."""

    def __init__(self, fraction: float, seed: int, user: str) -> None:
        self.fraction, self.seed, self.user = fraction, seed, user

    def held_out(self, positions: NDArray[np.int64], table: pa.Table) -> NDArray[np.bool_]:
        """By a hash of the user."""
        return below(hash_keys(table.column(self.user), self.seed), self.fraction)


class TimeSplit:
    """Rows later than a moment, which is given as `time_order` gives times."""

    def __init__(self, time: str, cut: pa.Scalar) -> None:
        self.time, self.cut = time, cut

    def held_out(self, positions: NDArray[np.int64], table: pa.Table) -> NDArray[np.bool_]:
        """By the time."""
        later = pc.fill_null(pc.greater(time_order(table.column(self.time)), self.cut), False)
        return np.asarray(later.to_numpy() if isinstance(later, pa.ChunkedArray) else later.to_numpy(False))


class MarkedSplit:
    """Rows marked in a file of one byte a row."""

    def __init__(self, path: Path) -> None:
        self.marks: NDArray[np.bool_] = np.load(path, mmap_mode="r")

    def held_out(self, positions: NDArray[np.int64], table: pa.Table) -> NDArray[np.bool_]:
        """As marked."""
        return np.asarray(self.marks[positions])


def cutting_time(folder: Path, log: Path, fraction: float) -> Any:
    """The time after which the latest `fraction` of the rows of a log lies; None when no row has a time."""
    with connect(folder) as connection:
        times = connection.read_parquet(str(log)).select("time")
        times = times.filter(times.time.notnull())
        count = int(times.count().to_pyarrow().as_py())
        if count == 0:
            return None
        keep = min(max(round(count * (1 - fraction)), 1), count)
        return times.order_by("time").limit(1, offset=keep - 1).to_pyarrow().column("time")[0]


def mark_latest(folder: Path, log: Path, fraction: float, num_rows: int) -> None:
    """Writes `marks.npy`: each user's latest rows (see `user_latest` above)."""
    marks = create_array(folder / "marks.npy", np.bool_, num_rows)
    with connect(folder) as connection:
        rows = connection.read_parquet(str(log)).select("row", "user", "time")
        rows = rows.filter(rows.user.notnull() & rows.time.notnull())
        place = ibis.row_number().over(group_by="user", order_by=["time", "row"])
        rows = rows.mutate(place=place, rows=rows.count().over(group_by="user"))
        wanted = ibis.greatest((rows.rows * fraction).round().cast("int64"), 1)
        kept = rows.filter(rows.place == ibis.greatest(rows.rows - wanted, 1) - 1)
        kept = kept.select("user", cut="time")
        latest = rows.join(kept, "user")
        latest = latest.filter(latest.time > latest.cut).select("row")
        for batch in batches(latest):
            marks[batch["row"].to_numpy()] = True
    marks.flush()
