"""What twins share: missing values, text, lists; the NumPy forms of `easyrec.features.tensors` and `lists`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from easyrec.errors import EasyRecError
from easyrec.features.batch import RaggedColumn
from easyrec.features.inputs import MISSING_INT

try:
    from farmhash import fingerprint64 as _fingerprint64
except ImportError:  # it comes with the extra `litert`
    _fingerprint64 = None

Fingerprint = Callable[[bytes], int]


def fingerprint64() -> Fingerprint:
    """FarmHash's Fingerprint64 of bytes, as `tf.strings.to_hash_bucket_fast` has it before the modulo.

    Raises:
        EasyRecError: The package that computes it is not installed.
    """
    if _fingerprint64 is None:
        raise EasyRecError(
            "text cannot be hashed without TensorFlow: the package `pyfarmhash` is not installed; "
            "`pip install easyrec[litert]` installs it"
        )
    found: Fingerprint = _fingerprint64
    return found


def missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values stand for missing: bool, same shape. Infinities count as missing."""
    if values.dtype == np.object_:
        return (values == "") | (values == b"")
    return values == MISSING_INT if values.dtype.kind == "i" else ~np.isfinite(values)


def as_text(values: npt.NDArray[Any]) -> list[bytes]:
    """Categories [N] as text; missing becomes b""."""
    if values.dtype == np.object_:
        return [value if isinstance(value, bytes) else value.encode() for value in values.tolist()]
    return [b"" if value == MISSING_INT else b"%d" % value for value in values.tolist()]


def texts(values: Sequence[bytes]) -> npt.NDArray[np.object_]:
    """Text as an array of objects [N]."""
    array = np.empty(len(values), np.object_)
    array[:] = values
    return array


def flat_rows(column: npt.NDArray[Any], separator: str | None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The values of all rows one after the other, missing ones included, and the row of each.

    Args:
        column: [B, L], or [B] text to be cut at `separator`; blanks around the pieces are removed.
        separator: Splits text, or None.
    """
    if separator is None or column.ndim == 2:
        rows, width = column.shape
        return column.reshape(-1), np.repeat(np.arange(rows), width)
    cut = separator.encode()
    pieces = [[piece.strip() for piece in text.split(cut)] for text in as_text(column)]
    lengths = [len(row) for row in pieces]
    return texts([piece for row in pieces for piece in row]), np.repeat(np.arange(len(pieces)), lengths)


def places_in_row(rows: npt.NDArray[Any], count: int, latest: bool = False) -> npt.NDArray[Any]:
    """The place of each value in its row, counted from 0: from the first one, or backwards from the last.

    Args:
        rows: [V] the row of each value, sorted.
        count: How many rows there are.
        latest: Count from the last one.
    """
    lengths = np.bincount(rows, minlength=count)
    ends = np.cumsum(lengths)
    here = np.arange(len(rows))
    return ends[rows] - 1 - here if latest else here - (ends - lengths)[rows]


def ragged(
    ids: npt.NDArray[np.int32],
    rows: npt.NDArray[Any],
    count: int,
    weights: npt.NDArray[np.float32] | None = None,
) -> RaggedColumn:
    """Ids and the row of each as a column of `count` rows."""
    return RaggedColumn(ids, np.bincount(rows, minlength=count).astype(np.int32), weights)
