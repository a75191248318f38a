"""One row as the dense tensors that the signatures take: the fast path of `to_tensors` for a service.

What is of a plain Python type is laid out directly; anything else goes through a table of one row, so that both give
the same tensors and the same errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from easyrec.errors import DataError
from easyrec.export.inputs import Tensors, to_tensors
from easyrec.export.manifest import InputEntry
from easyrec.export.tables import is_unicode
from easyrec.features.inputs import MISSING_INT, Kind

_MISSING: Mapping[Kind, Any] = {"string": "", "int": MISSING_INT, "float": np.nan}
_DTYPES: Mapping[Kind, Any] = {"string": np.object_, "int": np.int64, "float": np.float32}
_PLAIN: Mapping[Kind, tuple[type, ...]] = {"string": (str,), "int": (int,), "float": (float, int)}
_LARGEST = 2**63 - 1


def row_tensors(values: Mapping[str, Any], entries: Sequence[InputEntry]) -> Tensors:
    """Dense arrays of one row for the signatures.

    Args:
        values: By column; columns that are not here are missing.
        entries: What the model reads.

    Returns:
        By tensor name, [1] or [1, L], as `to_tensors`.

    Raises:
        DataError: A value cannot be used; the message names column and value.
    """
    tensors: Tensors = {}
    for entry in entries:
        array = _plain(values.get(entry.column), entry)
        if array is None:
            return _through_a_table(values, entries)
        tensors[entry.tensor] = array
    shapes = {entry.name: tensors[entry.tensor].shape for entry in entries}
    if any(entry.aligned_with and shapes[entry.name] != shapes[entry.aligned_with] for entry in entries):
        return _through_a_table(values, entries)  # which says what is wrong
    return tensors


def _plain(value: Any, entry: InputEntry) -> npt.NDArray[Any] | None:
    """The array of a value, or None where a table has to decide."""
    kind = entry.kind
    if entry.part != "values":
        return None
    if not entry.list:
        if value is None:
            value = _MISSING[kind]
        elif not _is_plain(value, kind):
            return None
        array = np.empty(1, _DTYPES[kind])
        array[0] = value
        return array
    if value is None:
        value = ()
    elif type(value) not in (list, tuple):
        return None
    found = np.empty((1, len(value)), _DTYPES[kind])
    for place, one in enumerate(value):
        if one is None:
            one = _MISSING[kind]
        elif not _is_plain(one, kind):
            return None
        found[0, place] = one
    return found


def _is_plain(value: Any, kind: Kind) -> bool:
    if type(value) not in _PLAIN[kind]:
        return False
    if type(value) is int:
        return -_LARGEST <= value <= _LARGEST
    return kind == "float" or is_unicode(value)


def _through_a_table(values: Mapping[str, Any], entries: Sequence[InputEntry]) -> Tensors:
    columns = {entry.column: _one(values.get(entry.column), entry.column) for entry in entries}
    return to_tensors(pa.table(columns), entries)


def _one(value: Any, name: str) -> pa.Array:
    """A column of one value."""
    try:
        return pa.array([value], from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise DataError(f"the value {value!r} of {name!r} cannot be used: {error}") from error
