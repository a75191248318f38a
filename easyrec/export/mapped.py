"""Tables with one row a key that stay on disk: memory-mapped, shared by processes, looked up by binary search.

<stem>.arrow      the rows (Arrow IPC, not compressed)
<stem>_keys.npy   [N] the keys in order: int64, or the CRC-32 of text
<stem>_rows.npy   [N] int32, the row of each
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from easyrec.errors import BundleError
from easyrec.export.tables import KeyedTable, Positions, as_keys


class MappedTable(KeyedTable):
    """A table whose rows and index are files.

    Args:
        table: The rows, memory-mapped.
        key: Name of the key column.
        keys: [N] the keys in order, see above.
        rows: [N] the row of each.
    """

    def __init__(  # the base class reads all keys, which is what this one is there to avoid
        self, table: pa.Table, key: str, keys: npt.NDArray[Any], rows: npt.NDArray[np.int32]
    ) -> None:
        self.table = table
        self.key = key
        self._sorted = keys
        self._rows = rows
        self._integers = pa.types.is_integer(table.schema.field(key).type)

    @staticmethod
    def write_files(table: KeyedTable, stem: Path) -> None:
        """Writes the files of a table."""
        rows = table.table.combine_chunks()
        with (
            pa.OSFile(str(stem.with_suffix(".arrow")), "wb") as sink,
            pa.ipc.new_file(sink, rows.schema) as writer,
        ):
            writer.write_table(rows)
        hashed = _hashed(rows[table.key].combine_chunks())
        order = np.argsort(hashed, kind="stable")
        np.save(stem.with_name(f"{stem.name}_keys.npy"), hashed[order])
        np.save(stem.with_name(f"{stem.name}_rows.npy"), order.astype(np.int32))

    @classmethod
    def open_files(cls, stem: Path, key: str) -> MappedTable:
        """The table of some files.

        Raises:
            BundleError: A file cannot be read, or does not fit the others.
        """
        path = stem.with_suffix(".arrow")
        try:
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
            keys, rows = (
                np.asarray(np.load(stem.with_name(f"{stem.name}_{part}.npy"), mmap_mode="r"))
                for part in ("keys", "rows")
            )
        except (OSError, ValueError, EOFError, pa.ArrowException) as error:
            raise BundleError(f"{path} or its index cannot be read: {error}") from error
        if key not in table.column_names or not len(table) == len(keys) == len(rows):
            raise BundleError(f"{path} does not fit its index, or has no column {key!r}")
        return cls(table, key, keys, rows)

    def positions(self, keys: pa.Array | pa.ChunkedArray | Iterable[Any]) -> Positions:
        """As `KeyedTable.positions`."""
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        if not isinstance(keys, pa.Array):
            keys = as_keys(list(keys), self.keys.type)
        elif keys.type != self.keys.type:
            keys = as_keys(keys.to_pylist(), self.keys.type)
        found = np.full(len(keys), -1, np.int64)
        valid = np.flatnonzero(np.asarray(keys.is_valid()))
        if len(valid) and len(self._sorted):
            wanted = keys if len(valid) == len(keys) else keys.take(pa.array(valid))
            found[valid] = self._find(wanted)
        return found

    def row(self, position: int) -> dict[str, Any]:
        """One row as a dictionary."""
        return {
            name: column[position].as_py()
            for name, column in zip(self.table.column_names, self.table.columns, strict=True)
        }

    def _find(self, wanted: pa.Array) -> Positions:
        hashed = _hashed(wanted)
        places = np.searchsorted(self._sorted, hashed)
        found = np.full(len(hashed), -1, np.int64)
        open_ = np.arange(len(hashed))
        while len(open_):  # texts that share a hash stand side by side
            open_ = open_[places[open_] < len(self._sorted)]
            open_ = open_[self._sorted[places[open_]] == hashed[open_]]
            rows = self._rows[places[open_]].astype(np.int64)
            right = self._same(rows, wanted, open_)
            found[open_[right]] = rows[right]
            open_ = open_[~right]
            places[open_] += 1
        return found

    def _same(self, rows: Positions, wanted: pa.Array, places: Positions) -> npt.NDArray[np.bool_]:
        if self._integers:
            return np.ones(len(rows), bool)
        there = self.table[self.key].take(pa.array(rows))
        return np.asarray(pc.equal(there, wanted.take(pa.array(places))).to_numpy(), bool)


def _hashed(keys: pa.Array) -> npt.NDArray[Any]:
    """What keys are looked up by: integers themselves, CRC-32 of text."""
    if pa.types.is_integer(keys.type):
        return np.asarray(keys.to_numpy(zero_copy_only=False), np.int64)
    values = keys.to_numpy(zero_copy_only=False).tolist()
    plain = set(map(type, values)) <= {str}  # in a fraction of the time
    texts = map(str.encode, values) if plain else map(_bytes, values)
    return np.fromiter(map(zlib.crc32, texts), np.uint32, len(values))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
