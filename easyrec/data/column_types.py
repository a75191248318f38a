"""The few Arrow types that columns are brought to, how types of several files are unified, and casts that are checked.

Whatever a file stores, a chunk holds only: int64, float32, float64, bool, string, dictionary<int32, string>,
timestamp, lists of int64, float32, float64 or string, map<string | int64, float64>, and null where every cell is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from easyrec.config.columns import ColumnKind
from easyrec.config.data import ColumnType
from easyrec.errors import SchemaError

DICTIONARY = pa.dictionary(pa.int32(), pa.string())

DECLARED: Mapping[ColumnType, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "list<string>": pa.list_(pa.string()),
    "list<int64>": pa.list_(pa.int64()),
    "list<float32>": pa.list_(pa.float32()),
}
"""What the words under `columns:` stand for."""

_TIME_UNITS = ("s", "ms", "us", "ns")
_MILLISECONDS_FROM = 100_000_000_000  # as seconds the year 5138, as milliseconds March 1973


class CastError(SchemaError):
    """A value does not fit the type its column is read as.

    Attributes:
        value: The first value that does not fit.
        row: Its position in the array.
        target: The type.
    """

    def __init__(self, value: object, row: int, target: pa.DataType) -> None:
        self.value, self.row, self.target = value, row, target
        super().__init__(f"the value {value!r} in row {row + 1} is not {article(target)}")

    def __reduce__(self) -> tuple[type[CastError], tuple[object, int, pa.DataType]]:
        return type(self), (self.value, self.row, self.target)


def article(kind: pa.DataType) -> str:
    """A type in words: "an int64", "a timestamp", "a list<string>"."""
    name = (
        "timestamp"
        if pa.types.is_timestamp(kind)
        else str(kind).replace("element: ", "").replace("item: ", "")
    )
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's list types."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's string types, or a dictionary of strings."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def normal(kind: pa.DataType) -> pa.DataType | None:
    """The type a column of type `kind` is read as, or None when there is none (structs, lists of lists)."""
    if pa.types.is_dictionary(kind):
        return DICTIONARY if is_text(kind.value_type) else normal(kind.value_type)
    if is_text(kind) or _is_binary(kind):
        return pa.string()
    if pa.types.is_integer(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return pa.float32()
    if pa.types.is_float64(kind) or pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_date(kind):
        return pa.timestamp("us")
    if pa.types.is_boolean(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind):
        return kind
    if is_list(kind):
        return _normal_list(kind.value_type)
    if pa.types.is_map(kind):
        key, item = normal(kind.key_type), kind.item_type
        if key is None or not (key == DICTIONARY or key == pa.string() or key == pa.int64()):
            return None
        number = pa.types.is_integer(item) or pa.types.is_floating(item) or pa.types.is_decimal(item)
        return pa.map_(pa.string() if key == DICTIONARY else key, pa.float64()) if number else None
    return None


def _normal_list(value: pa.DataType) -> pa.DataType | None:
    inner = normal(value)
    if inner is None or is_list(inner) or pa.types.is_map(inner) or pa.types.is_timestamp(inner):
        return None
    if inner == DICTIONARY or pa.types.is_null(inner):
        inner = pa.string()
    return pa.list_(pa.int64() if pa.types.is_boolean(inner) else inner)


def time_order(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Times as numbers of the same order: int64 for timestamps and integers, float64 (NaN is null) for floats."""
    if pa.types.is_floating(times.type):
        numbers = pc.cast(times, pa.float64())
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
    return pc.cast(times, pa.int64())


def kind_of(kind: pa.DataType) -> ColumnKind:
    """What the configuration calls a column of this (normal) type."""
    if pa.types.is_map(kind):
        return "map"
    if is_list(kind):
        if is_text(kind.value_type):
            return "list<string>"
        return "list<int>" if pa.types.is_integer(kind.value_type) else "list<float>"
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_floating(kind):
        return "float"
    if pa.types.is_boolean(kind):
        return "bool"
    return "timestamp" if pa.types.is_timestamp(kind) else "string"


def unify(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The normal type that holds the values of both, or None: an int and a float are floats, a null is anything."""
    if left == right:
        return left
    if pa.types.is_null(left) or pa.types.is_null(right):
        return right if pa.types.is_null(left) else left
    if is_list(left) and is_list(right):
        inner = unify(left.value_type, right.value_type)
        return None if inner is None else pa.list_(inner)
    if is_text(left) and is_text(right):
        return pa.string()
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right):
        unit = max(left.unit, right.unit, key=_TIME_UNITS.index)
        return pa.timestamp(unit, left.tz or right.tz)
    numbers = [kind for kind in (left, right) if pa.types.is_integer(kind) or pa.types.is_floating(kind)]
    if len(numbers) == 2:
        return pa.float64()
    return None


def cast(array: pa.Array | pa.ChunkedArray, target: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Casts to a normal type, losing nothing.

    Text is read as numbers, `true`/`false`, or ISO 8601 times; whole numbers as times in seconds or milliseconds since
    1970; dictionaries are decoded where the target is none.

    Raises:
        CastError: A value does not fit; it names the first.
    """
    if array.type == target:
        return array
    try:
        return _cast(array, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _first_that_fails(array, target, _cast) from error


def plain(array: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values without a dictionary."""
    return cast(array, pa.string()) if pa.types.is_dictionary(array.type) else array


def _cast(array: pa.Array | pa.ChunkedArray, target: pa.DataType) -> pa.Array | pa.ChunkedArray:
    source = array.type
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_cast(chunk, target) for chunk in array.chunks], type=target)
    if source == target:
        return array
    if pa.types.is_dictionary(source) and not pa.types.is_dictionary(target):
        return _cast(array.dictionary_decode(), target)
    if pa.types.is_dictionary(target) and not pa.types.is_dictionary(source):
        return _cast(_cast(array, pa.string()).dictionary_encode(), target)
    if pa.types.is_timestamp(target):
        return _cast_time(array, target)
    if pa.types.is_timestamp(source) and pa.types.is_string(target):
        return pc.cast(array, target)
    if pa.types.is_duration(source) or pa.types.is_time(source):
        wide = pa.int32() if source.bit_width == 32 else pa.int64()
        return pc.cast(pc.cast(array, wide), target)
    if pa.types.is_string(source) and pa.types.is_boolean(target):
        return pc.cast(pc.utf8_lower(pc.utf8_trim_whitespace(array)), target)
    if pa.types.is_string(source) and (pa.types.is_integer(target) or pa.types.is_floating(target)):
        return pc.cast(pc.utf8_trim_whitespace(array), target)
    if pa.types.is_floating(source) and pa.types.is_integer(target):
        # pandas writes integers with missing values as floats with NaN
        return pc.cast(pc.if_else(pc.is_nan(array), pa.scalar(None, source), array), target)
    if pa.types.is_decimal(source):
        return pc.cast(pc.cast(array, pa.float64()), target)
    if is_list(source) and is_list(target):
        plain = array if pa.types.is_list(source) else pc.cast(array, pa.list_(source.value_type))
        offsets = plain.offsets
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        values = _cast(plain.values.slice(first, last - first), target.value_type)
        return pa.ListArray.from_arrays(
            pc.subtract(offsets, first),
            values,
            type=target,
            mask=plain.is_null() if plain.null_count else None,
        )
    if is_list(target) and not pa.types.is_null(source):
        # A scalar is a list of one; a missing scalar is a missing list.
        ones = pa.array(range(len(array) + 1), pa.int32())
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(ones, _cast(array, target.value_type), type=target, mask=mask)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _cast_map(array, target)
    return pc.cast(array, target)


def _cast_map(array: pa.MapArray, target: pa.MapType) -> pa.MapArray:
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    keys = _cast(array.keys.slice(first, last - first), target.key_type)
    items = _cast(array.items.slice(first, last - first), target.item_type)
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(pc.subtract(offsets, first), keys, items, type=target, mask=mask)


def _cast_time(array: pa.Array, target: pa.TimestampType) -> pa.Array:
    source = array.type
    if pa.types.is_string(source):
        return pc.cast(parse_time(array), target)
    if pa.types.is_integer(source) or pa.types.is_floating(source):
        whole = pc.cast(array, pa.int64(), safe=True)
        largest = pc.max(pc.abs(whole)).as_py()
        unit = "s" if largest is None or largest < _MILLISECONDS_FROM else "ms"
        return pc.cast(pc.cast(whole, pa.timestamp(unit)), target)
    if pa.types.is_timestamp(source) and source.tz is not None and target.tz is None:
        return pc.cast(pc.cast(array, pa.timestamp(source.unit)), target)  # the instant, in UTC
    return pc.cast(array, target)


def parse_time(texts: pa.Array) -> pa.Array:
    """ISO 8601 dates and times as timestamps in UTC; all with a zone or all without.

    Raises:
        pyarrow.ArrowInvalid: A text is none.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    for unit in ("us", "ns"):
        for zone in (None, "UTC"):
            try:
                return pc.cast(pc.cast(trimmed, pa.timestamp(unit, zone)), pa.timestamp(unit))
            except pa.ArrowInvalid as error:
                failure = error
    raise failure


def _first_that_fails(
    array: pa.Array | pa.ChunkedArray, target: pa.DataType, convert: Callable[[pa.Array, pa.DataType], object]
) -> CastError:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        if _fails(array.slice(low, middle - low), target, convert):
            high = middle
        else:
            low = middle
    return CastError(array[low].as_py() if len(array) else None, low, target)


def _fails(array: pa.Array, target: pa.DataType, convert: Callable[[pa.Array, pa.DataType], object]) -> bool:
    try:
        convert(array, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return True
    return False
