"""Raw columns of a table as the dense tensors that the signatures take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from easyrec.errors import SchemaError, nearest
from easyrec.export.manifest import InputEntry
from easyrec.features.columns import Column, check_aligned, read
from easyrec.features.inputs import MISSING_INT, Kind

Tensors = dict[str, npt.NDArray[Any]]

_MISSING: Mapping[Kind, Any] = {"string": "", "int": MISSING_INT, "float": np.nan}
_DTYPES: Mapping[Kind, Any] = {"string": np.object_, "int": np.int64, "float": np.float32}
_WORDS: Mapping[Kind, str] = {"string": "text", "int": "whole numbers", "float": "numbers"}

_BLOCK_CELLS = 1 << 24


def to_tensors(table: pa.Table, entries: Sequence[InputEntry]) -> Tensors:
    """Dense arrays for the signatures: missing values as markers, lists padded with them.

    Args:
        table: Has the columns of `entries`, of any type that can be converted without loss.
        entries: What the model reads.

    Returns:
        By tensor name, [B] or [B, L]: text as objects, int64, float32.

    Raises:
        SchemaError: A column is missing or of a type that cannot be used.
        DataError: A value cannot be converted; the message names column, row and value.
    """
    absent = [entry for entry in entries if entry.column not in table.column_names]
    if absent:
        wanted = ", ".join(f"{entry.column!r} ({describe(entry)})" for entry in absent)
        hint = nearest(absent[0].column, table.column_names)
        raise SchemaError(f"the data lack columns that the model reads: {wanted}.{hint}")
    columns = {entry.name: read(table, entry.spec) for entry in entries}
    for entry in entries:
        if entry.aligned_with is not None:
            check_aligned(columns[entry.name], columns[entry.aligned_with], entry.spec)
    return {entry.tensor: _dense(columns[entry.name], entry) for entry in entries}


def describe(entry: InputEntry) -> str:
    """What a column holds, in words."""
    return f"lists of {_WORDS[entry.kind]}" if entry.list else _WORDS[entry.kind]


def _dense(column: Column, entry: InputEntry) -> npt.NDArray[Any]:
    dtype, missing = _DTYPES[entry.kind], _MISSING[entry.kind]
    values = _convert(column, entry).fill_null(missing).to_numpy(zero_copy_only=False)
    if column.splits is None:
        return np.asarray(values, dtype)
    lengths = np.diff(column.splits)
    padded = np.full((len(lengths), int(lengths.max(initial=0))), missing, dtype)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = values
    return padded


def _convert(column: Column, entry: InputEntry) -> pa.Array:
    values = column.decoded
    kind = values.type
    if entry.kind == "string":
        if pa.types.is_integer(kind):
            return values.cast(pa.string())
        return values if _is_text(kind) else _refuse(values, pc.is_valid(values), column, entry)
    if entry.kind == "float":
        return values.cast(pa.float32(), safe=False)
    if pa.types.is_integer(kind):
        return values
    if _is_text(kind):
        return _decimal(values, column, entry)
    whole = pc.or_kleene(pc.is_nan(values), pc.equal(pc.floor(values), values))
    if not pc.all(whole, min_count=0).as_py():
        _refuse(values, pc.invert(whole), column, entry)
    return pc.if_else(pc.is_finite(values), values, None).cast(pa.int64(), safe=False)


def _decimal(text: pa.Array, column: Column, entry: InputEntry) -> pa.Array:
    """Text as the integer whose decimal text it is: that is the same category."""
    text = pc.utf8_trim_whitespace(text.cast(pa.large_string()))
    text = pc.if_else(pc.equal(text, ""), None, text)
    matches = pc.match_substring_regex(text, r"^(0|-?[1-9][0-9]{0,17})$")
    if not pc.all(matches, min_count=0).as_py():
        _refuse(text, pc.invert(matches), column, entry)
    return text.cast(pa.int64())


def _refuse(values: pa.Array, wrong: pa.Array, column: Column, entry: InputEntry) -> pa.Array:
    position = pc.index(wrong, True).as_py()
    if position < 0:
        return pa.nulls(len(values), pa.string())
    row = position if column.splits is None else int(np.searchsorted(column.splits, position, "right")) - 1
    raise SchemaError(
        f"column {entry.column!r} has {values[position].as_py()!r} in row {row} (counted from 0), but the model was "
        f"trained on {describe(entry)}"
    )


def _is_text(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )


def blocks(table: pa.Table, entries: Sequence[InputEntry], rows: int) -> Iterator[pa.Table]:
    """Slices of at most `rows` rows, fewer where padding lists to equal length would take much memory.

    A table without rows gives one slice without rows.
    """
    lists = [entry.column for entry in entries if entry.list and entry.column in table.column_names]
    for start in range(0, max(len(table), 1), rows):
        yield from _halves(table.slice(start, rows), lists)


def _halves(table: pa.Table, lists: Sequence[str]) -> Iterator[pa.Table]:
    if (
        len(table) > 1
        and len(table) * max((_longest(table[name]) for name in lists), default=0) > _BLOCK_CELLS
    ):
        middle = len(table) // 2
        yield from _halves(table.slice(0, middle), lists)
        yield from _halves(table.slice(middle), lists)
    else:
        yield table


def _longest(column: pa.ChunkedArray) -> int:
    if pa.types.is_map(column.type):
        column = column.cast(
            pa.list_(pa.struct({"key": column.type.key_type, "value": column.type.item_type}))
        )
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return 0
    return pc.max(pc.list_value_length(column)).as_py() or 0
