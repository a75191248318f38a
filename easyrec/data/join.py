"""User and item tables, joined to the interactions on their key; a table is held in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from easyrec.data.column_types import article, cast, is_text, kind_of
from easyrec.data.keys import KeyIndex
from easyrec.data.row_groups import Source
from easyrec.errors import DataError, SchemaError, nearest

Side = Literal["user", "item"]


class KeyedTable:
    """One row a key.

    Attributes:
        side: `user` or `item`.
        key: Name of the key column.
        table: All rows with a key, the key column included.
        fingerprint, strict_fingerprint: Of the files it was read from.
        null_keys: Rows left out because their key is missing.
        note: A sentence on how key types were brought together, or "".
    """

    def __init__(self, side: Side, key: str, source: Source, interactions_type: pa.DataType) -> None:
        if key not in source.schema.names:
            raise SchemaError(
                f"the {side} table ({source.name}) has no column {key!r}, which `data.keys.{side}` "
                f"names.{nearest(key, source.schema.names)}"
            )
        table = source.read_all()
        kind = table.schema.field(key).type
        if not (is_text(kind) or pa.types.is_integer(kind)):
            raise SchemaError(
                f"the key {key!r} of the {side} table is {article(kind)}; a key is a string or an integer. "
                f"State it under `columns:` of the table, such as `{key}: int64`"
            )
        if pa.types.is_dictionary(kind):
            kind = pa.string()
            table = table.set_column(table.schema.get_field_index(key), key, cast(table.column(key), kind))
        missing = table.column(key).null_count
        if missing:
            table = table.filter(pc.is_valid(table.column(key)))
        _refuse_duplicates(side, key, table, source)
        self.side: Side = side
        self.key = key
        self.table = table
        self.null_keys = missing
        self.fingerprint, self.strict_fingerprint = source.fingerprint, source.strict_fingerprint
        text = is_text(interactions_type) or is_text(kind)
        self.note = ""
        if is_text(interactions_type) != is_text(kind):
            self.note = (
                f"key {key!r}: {kind_of(interactions_type)} in the interactions, {kind_of(kind)} in the {side} table; "
                "compared as text"
            )
        self.index = KeyIndex(table.column(key), text=text)

    def columns(self) -> list[str]:
        """All columns but the key."""
        return [name for name in self.table.column_names if name != self.key]

    def find(self, keys: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
        """Row of each key in `table`, -1 where there is none."""
        return self.index.find(keys)

    def take(self, rows: NDArray[np.int64], names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        """Columns of the given rows; null where the row is -1."""
        indices = pa.array(rows, pa.int64(), mask=rows < 0)
        return {name: self.table.column(name).take(indices) for name in names}


def _refuse_duplicates(side: Side, key: str, table: pa.Table, source: Source) -> None:
    keys = table.column(key)
    if pc.count_distinct(keys).as_py() == len(keys):
        return
    counts = pc.value_counts(keys)
    repeated = counts.filter(pc.greater(pc.struct_field(counts, "counts"), 1))
    value = repeated[0]["values"].as_py()
    rows = np.flatnonzero(pc.equal(keys, pa.scalar(value, keys.type)).to_numpy(zero_copy_only=False))[:2] + 1
    raise DataError(
        f"the {side} table ({source.name}) has {len(repeated)} keys more than once; the first is "
        f"{key} {value!r}, in rows {rows[0]} and {rows[1]}. Keep one row a key"
    )
