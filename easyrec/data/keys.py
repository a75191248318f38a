"""Finds keys (user or item ids) in a list of keys that stays the same: the index behind joins and seen items."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from easyrec.data.column_types import cast, is_text

_MAX_HOLES = 8


class KeyIndex:
    """Positions of keys. An integer and its decimal text are the same key when one side holds text.

    Args:
        keys: Distinct keys without nulls, int64 or text.
        text: Compare as text; needed when the keys that are looked up are text. True for text keys.
    """

    def __init__(self, keys: pa.Array | pa.ChunkedArray, *, text: bool = False) -> None:
        self.size = len(keys)
        self._text = text or is_text(keys.type)
        if self._text:
            values = cast(keys, pa.string())
            self._strings = pd.Index(np.asarray(values.to_pylist(), object), dtype=object)
            return
        numbers = np.asarray(keys.to_numpy(), np.int64)
        self._low = int(numbers.min()) if len(numbers) else 0
        span = (int(numbers.max()) - self._low + 1) if len(numbers) else 0
        self._table: NDArray[np.int64] | None = None
        if span <= _MAX_HOLES * max(len(numbers), 1024):
            self._table = np.full(span, -1, np.int64)
            self._table[numbers - self._low] = np.arange(len(numbers))
        else:
            self._order = np.argsort(numbers, kind="stable")
            self._sorted = numbers[self._order]

    def find(self, values: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
        """Position of each value, or -1 for nulls and values that are not there."""
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if pa.types.is_dictionary(values.type):
            found = self.find(values.dictionary)
            codes = pc.fill_null(values.indices, -1).to_numpy(zero_copy_only=False)
            return np.where(codes >= 0, found[codes] if len(found) else -1, -1)
        if self._text:
            return self._find_text(values)
        missing = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
        numbers = np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), np.int64)
        found = self._find_numbers(numbers)
        return found if missing is None else np.where(missing, -1, found)

    def _find_text(self, values: pa.Array) -> NDArray[np.int64]:
        encoded = cast(values, pa.string()).dictionary_encode()
        distinct = np.asarray(encoded.dictionary.to_pylist(), object)
        found = self._strings.get_indexer(pd.Index(distinct, dtype=object)).astype(np.int64)
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        return np.where(codes >= 0, found[codes] if len(found) else -1, -1)

    def _find_numbers(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.size == 0:
            return np.full(len(numbers), -1, np.int64)
        if self._table is not None:
            inside = (numbers >= self._low) & (numbers - self._low < len(self._table))
            return np.where(inside, self._table[np.where(inside, numbers - self._low, 0)], -1)
        slot = np.minimum(np.searchsorted(self._sorted, numbers), self.size - 1)
        return np.where(self._sorted[slot] == numbers, self._order[slot], -1)
