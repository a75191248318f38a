"""Arrow columns of any type, brought to the few forms that features read. No TensorFlow here.

| Arrow type                               | as a category                     | as a number          |
|------------------------------------------|-----------------------------------|----------------------|
| integers, bool                           | int64                             | int64                |
| float, decimal                           | int64; a fraction is an error     | float32              |
| string, binary, views                    | text as it is                     | parsed, else an error|
| date, timestamp                          | int64 seconds since 1970-01-01    | the same             |
| dictionary                               | a dictionary of its distinct values | decoded            |
| lists of these, map                      | offsets and flat values           | offsets and flat values |

An integer and its decimal text are one category, so training data with integers and a CSV file with the same ids as
text, or as 3.0 because a neighbour was missing, get the same ids. The text "3.0" or "03" is another value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from easyrec.errors import DataError, SchemaError, nearest
from easyrec.features.inputs import MISSING_INT, InputSpec, Role


@dataclass(frozen=True)
class Column:
    """One input of a chunk in canonical form.

    Attributes:
        values: int64, float32, string or binary values (nulls where missing), or a dictionary of strings; for lists,
            those of all rows one after the other.
        splits: None for one value a row, else [B + 1] int64: row i is `values[splits[i]:splits[i + 1]]`.
    """

    values: pa.Array
    splits: NDArray[np.int64] | None = None

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.values) if self.splits is None else len(self.splits) - 1

    @property
    def decoded(self) -> pa.Array:
        """The values, a dictionary replaced by what it stands for."""
        return decode(self.values)


def decode(values: pa.Array) -> pa.Array:
    """`values` without dictionary encoding."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def read(table: pa.Table, spec: InputSpec) -> Column:
    """One input of a chunk.

    Args:
        table: The chunk.
        spec: What to read of it.

    Returns:
        The column in canonical form.

    Raises:
        SchemaError: The column is not there, or of a type that the feature cannot use.
        DataError: A value cannot be used; the message names the row and the value.
    """
    if spec.column not in table.column_names:
        raise SchemaError(f"{_where(spec)} is not in the data.{nearest(spec.column, table.column_names)}")
    array = _combine(table.column(spec.column))
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_null(array.type):
        empty = pa.nulls(len(array), pa.string() if spec.role == "category" else pa.float32())
        return Column(empty.slice(0, 0), np.zeros(len(array) + 1, np.int64)) if spec.list else Column(empty)
    if not spec.list:
        if is_nested(array.type):
            raise SchemaError(
                f"{_where(spec)} holds {array.type}, the feature takes one value a row. "
                "Use the type `tags` or `sequence` for lists."
            )
        return Column(canonical(array, spec.role, spec))
    if not is_nested(array.type):
        raise SchemaError(
            f"{_where(spec)} holds {array.type}, the feature takes a list per row. "
            "Text is split into a list with `separator:`."
        )
    values, splits = _flatten(array, spec)
    return Column(canonical(values, spec.role, spec, splits), splits)


def check_aligned(column: Column, other: Column, spec: InputSpec) -> None:
    """Raises a DataError naming the first row in which two list inputs differ in length."""
    if column.splits is None or other.splits is None:
        return
    ours, theirs = np.diff(column.splits), np.diff(other.splits)
    wrong = np.flatnonzero(ours != theirs)
    if wrong.size:
        row = int(wrong[0])
        raise DataError(
            f"{_where(spec)} has {ours[row]} values in row {row} (counted from 0 in this chunk of {len(ours)}), but "
            f"{spec.aligned_with!r} has {theirs[row]}; both need one entry per value. {wrong.size} rows differ."
        )


def is_nested(kind: pa.DataType) -> bool:
    """Whether a row of this type holds several values."""
    return (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
        or pa.types.is_map(kind)
    )


def canonical(
    array: pa.Array, role: Role, spec: InputSpec, splits: NDArray[np.int64] | None = None
) -> pa.Array:
    """Single values in canonical form: int64, float32, string or binary, or a dictionary of strings.

    Args:
        array: Values of any type that is not nested.
        role: Whether equality matters or the amount.
        spec: The input, for messages.
        splits: Where the rows of a list column begin, for messages.

    Raises:
        SchemaError: The type cannot be used.
        DataError: A value cannot be used.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return canonical(array.storage, role, spec, splits)
    if pa.types.is_run_end_encoded(kind):
        return canonical(pc.run_end_decode(array), role, spec, splits)
    if pa.types.is_dictionary(kind):
        return _canonical_dictionary(array, role, spec, splits)
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.string() if role == "category" else pa.float32())
    if pa.types.is_boolean(kind):
        return array.cast(pa.int64())
    if pa.types.is_integer(kind):
        return _integers(array, spec, splits)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return array.cast(pa.float32(), safe=False) if role == "number" else _integral(array, spec, splits)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _seconds(array)
    if _is_text(kind):
        text = _plain_text(array)
        return text if role == "category" else _parse(text, spec, splits)
    raise SchemaError(
        f"{_where(spec)} has the type {kind}, which no feature can use; cast it under `columns:` of its file."
    )


def present(values: pa.Array) -> pa.Array:
    """The values without nulls and without what stands for missing ("" and -2**63), NaN and infinities included."""
    values = values.drop_null()
    if pa.types.is_integer(values.type):
        mask = pc.not_equal(values, pa.scalar(MISSING_INT, pa.int64()))
    elif pa.types.is_floating(values.type):
        mask = pc.is_finite(values)
    elif pa.types.is_dictionary(values.type):
        return values if len(values) == 0 else _present_dictionary(values)
    else:
        mask = pc.greater(pc.binary_length(values), 0)
    return values if pc.all(mask, min_count=0).as_py() else values.filter(mask)


def _present_dictionary(values: pa.Array) -> pa.Array:
    empty = pc.equal(pc.binary_length(values.dictionary), 0)
    if not pc.any(empty, min_count=0).as_py():
        return values
    return values.filter(pc.invert(pc.take(empty, values.indices)))


def _where(spec: InputSpec) -> str:
    return f"feature {spec.feature!r}: column {spec.column!r}"


def _row(position: int, splits: NDArray[np.int64] | None) -> int:
    return position if splits is None else int(np.searchsorted(splits, position, side="right")) - 1


def _combine(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks()


def _is_text(kind: pa.DataType) -> bool:
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _plain_text(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    return array


def _flatten(array: pa.Array, spec: InputSpec) -> tuple[pa.Array, NDArray[np.int64]]:
    """Flat values and row splits; a null list is an empty one."""
    kind = array.type
    if pa.types.is_map(kind):
        child = array.keys if spec.part == "keys" else array.items
    elif spec.part != "values":
        raise SchemaError(f"{_where(spec)} holds {kind}, but a map was there when the features were fitted.")
    elif pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return _flatten_views(array)
    else:
        if pa.types.is_fixed_size_list(kind):
            array = array.cast(pa.large_list(kind.value_type))
        child = array.values
    offsets = np.asarray(array.offsets).astype(np.int64)
    lengths = np.diff(offsets)
    if array.null_count:
        nulls = np.asarray(array.is_null())
        if lengths[nulls].any():  # a null may still span values; they are not part of any row
            keep = np.repeat(~nulls, lengths)
            child = child.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).filter(pa.array(keep))
            splits = np.concatenate([[0], np.cumsum(np.where(nulls, 0, lengths))]).astype(np.int64)
            return child, splits
    return child.slice(int(offsets[0]), int(offsets[-1] - offsets[0])), offsets - offsets[0]


def _flatten_views(array: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """As `_flatten`, for lists that lie anywhere in their values (pyarrow 26 casts them to lists wrongly)."""
    lengths = np.where(np.asarray(array.is_null()), 0, np.asarray(array.sizes)).astype(np.int64)
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    starts = np.asarray(array.offsets).astype(np.int64) - splits[:-1]
    return array.values.take(pa.array(np.arange(splits[-1]) + np.repeat(starts, lengths))), splits


def _integers(array: pa.Array, spec: InputSpec, splits: NDArray[np.int64] | None) -> pa.Array:
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        largest = pc.greater(array, pa.scalar(2**63 - 1, pa.uint64()))
        raise _bad_value(
            array, largest, spec, splits, "an integer below 2**63 (cast the column to string)"
        ) from None


def _integral(array: pa.Array, spec: InputSpec, splits: NDArray[np.int64] | None) -> pa.Array:
    """Categories that came as floating-point numbers, as pandas does to integers beside missing values."""
    numbers = array.cast(pa.float64(), safe=False)
    numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
    wrong = pc.or_(
        pc.not_equal(pc.floor(numbers), numbers), pc.greater_equal(pc.abs(numbers), pa.scalar(2.0**63))
    )
    if pc.any(wrong, min_count=0).as_py():
        raise _bad_value(array, wrong, spec, splits, "a whole number or text; use `type: number` for amounts")
    return numbers.cast(pa.int64(), safe=False)


def _seconds(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_date32(kind):
        return pc.multiply(array.cast(pa.int32()).cast(pa.int64()), 86_400)
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    ticks = array.cast(pa.int64())
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    if per_second == 1:
        return ticks
    whole = np.floor_divide(np.asarray(ticks.fill_null(0)), per_second)
    return pa.array(whole, pa.int64(), mask=np.asarray(ticks.is_null()))


def _parse(text: pa.Array, spec: InputSpec, splits: NDArray[np.int64] | None) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(text.cast(pa.large_string()))
    trimmed = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.large_string()), trimmed)
    try:
        return trimmed.cast(pa.float64()).cast(pa.float32(), safe=False)
    except pa.ArrowInvalid:
        wrong = pa.array([value is not None and not _numeric(value) for value in trimmed.to_pylist()])
        raise _bad_value(text, wrong, spec, splits, "a number") from None


def _numeric(value: str) -> bool:
    try:
        pa.array([value]).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _bad_value(
    array: pa.Array, wrong: Any, spec: InputSpec, splits: NDArray[np.int64] | None, wanted: str
) -> DataError:
    position = pc.index(wrong, pa.scalar(True)).as_py()
    value = array[position].as_py()
    row = _row(position, splits)
    total = len(array) if splits is None else len(splits) - 1
    return DataError(
        f"{_where(spec)} has {value!r} in row {row} (counted from 0 in this chunk of {total}); expected {wanted}."
    )


def _canonical_dictionary(
    array: pa.Array, role: Role, spec: InputSpec, splits: NDArray[np.int64] | None
) -> pa.Array:
    """Keeps a dictionary of text when it is smaller than the rows, else decodes it."""
    if role == "number" or not _is_text(array.type.value_type) or len(array.dictionary) > len(array):
        return canonical(array.dictionary_decode(), role, spec, splits)
    distinct = _plain_text(array.dictionary)
    return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), distinct)
