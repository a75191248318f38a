"""Tables with one row a key, looked up by key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from easyrec.errors import BundleError

Positions = npt.NDArray[np.int64]


class KeyedTable:
    """A table in which each row has a key of its own.

    Attributes:
        table: All columns, the key's included.
        key: Name of the key column.
    """

    def __init__(self, table: pa.Table, key: str) -> None:
        if key not in table.column_names:
            raise BundleError(f"the table has no column {key!r}; it has {', '.join(table.column_names)}")
        keys = table[key]
        if keys.null_count:
            table = table.filter(pc.is_valid(keys))
        if pa.types.is_dictionary(keys.type):
            position = table.column_names.index(key)
            table = table.set_column(position, key, table[key].cast(keys.type.value_type))
        self.table = table.combine_chunks()
        self.key = key
        if not self._index.is_unique:
            duplicate = self._index[self._index.duplicated()][0]
            raise BundleError(f"the key {key} = {duplicate!r} is in more than one row of its table")

    @classmethod
    def read(cls, path: Path, key: str) -> KeyedTable:
        """Reads a Parquet file."""
        try:
            return cls(pq.read_table(path), key)
        except (OSError, pa.ArrowException) as error:
            raise BundleError(f"{path} cannot be read: {error}") from error

    def write(self, path: Path) -> None:
        """Writes a Parquet file."""
        pq.write_table(self.table, path, compression="zstd")

    def __len__(self) -> int:
        return self.table.num_rows

    @property
    def keys(self) -> pa.ChunkedArray:
        """The key of each row."""
        return self.table[self.key]

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(self._hashable(self.table[self.key]))

    @staticmethod
    def _hashable(keys: pa.ChunkedArray | pa.Array) -> npt.NDArray[Any]:
        if pa.types.is_integer(keys.type):
            return keys.to_numpy(zero_copy_only=False) if isinstance(keys, pa.Array) else keys.to_numpy()
        return np.asarray(keys.to_pylist(), dtype=object)

    def positions(self, keys: pa.Array | pa.ChunkedArray | Iterable[Any]) -> Positions:
        """The row of each key.

        Args:
            keys: [N] Values; an integer and its decimal text are the same key.

        Returns:
            [N] row numbers, -1 where no row has the key.
        """
        if not isinstance(keys, (pa.Array, pa.ChunkedArray)):
            keys = as_keys(list(keys), self.keys.type)
        elif keys.type != self.keys.type:
            keys = _cast(keys, self.keys.type)
        found = np.full(len(keys), -1, np.int64)
        valid = np.asarray(pc.is_valid(keys).to_numpy(zero_copy_only=False), bool)
        found[valid] = self._index.get_indexer(pd.Index(self._hashable(pc.drop_null(keys))))
        return found

    def rows(self, positions: Positions) -> pa.Table:
        """The rows at `positions`; a row of nulls where a position is -1."""
        return self.table.take(pa.array(positions, mask=positions < 0))


def as_keys(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values of any type as keys of a table; null where a value cannot be one."""
    plain: type | None = int if pa.types.is_integer(kind) else str if pa.types.is_string(kind) else None
    if set(map(type, values)) <= {plain}:  # the usual case, in a fraction of the time
        with suppress(pa.ArrowInvalid, OverflowError, UnicodeEncodeError):  # one that cannot be a key
            return pa.array(values, kind)
    if plain is int and set(map(type, values)) == {str} and all(map(_is_digits, values)):
        with suppress(pa.ArrowInvalid, OverflowError):
            return pa.array([int(value) for value in values], kind)
    return pa.array([_as_key(value, kind) for value in values], kind)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def is_unicode(text: str) -> bool:
    """Whether text is made of Unicode characters only: JSON can hold halves of surrogate pairs, which are none."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_key(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return None
    if pa.types.is_integer(kind):
        return _as_integer(value, kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        text = value if isinstance(value, str) else str(value)
        return text if is_unicode(text) else None
    return value


def _as_integer(value: Any, kind: pa.DataType) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdecimal()) or len(text) > 20:
            return None
        value = int(text)
    if isinstance(value, float):
        if not value.is_integer():
            return None
        value = int(value)
    low = 0 if pa.types.is_unsigned_integer(kind) else -(1 << (kind.bit_width - 1))
    return value if isinstance(value, int) and low <= value < low + (1 << kind.bit_width) else None


def _cast(keys: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_dictionary(keys.type):
        keys = keys.cast(keys.type.value_type)
    try:
        return keys.cast(kind)
    except pa.ArrowInvalid:  # some value cannot be a key; the others still can
        return as_keys(keys.to_pylist(), kind)
