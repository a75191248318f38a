"""What is popular within groups of users: by country, by device, by any column with few values.

candidates/segments.parquet     `column`, `value`, `item` (row of the catalogue), `score`; best first in each group

Imports no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from easyrec.errors import BundleError
from easyrec.export.tables import KeyedTable

SEGMENTS = "segments.parquet"
MAX_VALUES = 100
"""A column with more values than this makes no segments."""
MIN_USERS = 5
"""A group of fewer users makes no segment: its list would say what single people did."""
ITEMS = 200

SCHEMA = pa.schema(
    [("column", pa.string()), ("value", pa.string()), ("item", pa.int32()), ("score", pa.float32())]
)


def segment_popularity(
    users: pa.Table, items: KeyedTable, columns: Iterable[str], weights: npt.NDArray[np.float64]
) -> pa.Table:
    """The items that most users of each group have taken.

    Args:
        users: The users, with a column `seen` that lists item keys.
        items: The catalogue of N items.
        columns: Columns to group by; those with lists or with many values are passed over.
        weights: [N] what one user counts for each item, such as the share of its recent takers.

    Returns:
        A table of the form `SCHEMA`.
    """
    if "seen" not in users.column_names:
        return SCHEMA.empty_table()
    seen = users["seen"].combine_chunks()
    owner = np.repeat(np.arange(len(seen)), pc.fill_null(pc.list_value_length(seen), 0).to_numpy())
    item = items.positions(pc.list_flatten(seen))
    owner, item = owner[item >= 0], item[item >= 0]
    parts = [SCHEMA.empty_table()]
    for name in columns:
        codes, values = _groups(users, name)
        for code, value in enumerate(values):
            members = codes == code
            if members.sum() >= MIN_USERS:
                counts = np.bincount(item[members[owner]], minlength=len(items)) * weights
                parts.append(_segment(name, value, counts))
    return pa.concat_tables(parts).combine_chunks()


def write_segments(folder: Path, segments: pa.Table) -> None:
    """Writes the table; nothing when it is empty."""
    if len(segments):
        pq.write_table(segments, folder / SEGMENTS, compression="zstd")


def read_segments(
    folder: Path, items: int
) -> dict[tuple[str, str], tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
    """Rows and scores of each group's items, by column and value as text.

    Args:
        folder: The folder of candidates.
        items: How many items the catalogue has.

    Raises:
        BundleError: The table cannot be read, or names an item that is not there.
    """
    if not (folder / SEGMENTS).exists():
        return {}
    try:
        table = pq.read_table(folder / SEGMENTS).cast(SCHEMA).combine_chunks()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BundleError(f"{folder / SEGMENTS} cannot be read: {error}") from error
    rows, scores = table["item"].to_numpy().astype(np.int64), table["score"].to_numpy()
    if len(rows) and not (rows.min() >= 0 and rows.max() < items):
        raise BundleError(f"{folder / SEGMENTS} names items beyond the {items} of the catalogue")
    names = list(zip(table["column"].to_pylist(), table["value"].to_pylist(), strict=True))
    starts = [place for place in range(len(names)) if place == 0 or names[place] != names[place - 1]]
    ends = [*starts[1:], len(names)]
    return {
        names[start]: (rows[start:end], scores[start:end]) for start, end in zip(starts, ends, strict=True)
    }


def segment_key(value: object) -> str:
    """A value as it stands in the table."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _groups(users: pa.Table, name: str) -> tuple[npt.NDArray[np.int64], list[str]]:
    """[U] the group of each user, -1 for none, and the values."""
    none = np.full(len(users), -1, np.int64)
    if name not in users.column_names:
        return none, []
    column = users[name].combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (
        pa.types.is_string(column.type)
        or pa.types.is_integer(column.type)
        or pa.types.is_boolean(column.type)
    ):
        return none, []
    encoded = column.dictionary_encode()
    if len(encoded.dictionary) > MAX_VALUES:
        return none, []
    values = [segment_key(value) for value in encoded.dictionary.to_pylist()]
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64), values


def _segment(name: str, value: str, counts: npt.NDArray[np.float64]) -> pa.Table:
    best = np.lexsort((np.arange(len(counts)), -counts))[:ITEMS]
    best = best[counts[best] > 0]
    return pa.table(
        [
            pa.array([name] * len(best), pa.string()),
            pa.array([value] * len(best), pa.string()),
            pa.array(best, pa.int32()),
            pa.array(counts[best], pa.float32()),
        ],
        schema=SCHEMA,
    )
