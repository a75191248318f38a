"""Counts of values over chunks of Arrow arrays: memory grows with the distinct values, not with the rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from easyrec.errors import DataError
from easyrec.features.columns import decode, present

MAX_DISTINCT = 100_000_000
"""More distinct values than this are refused: such a column wants `vocabulary: {buckets: N}`."""


class ValueCounter:
    """Counts categories.

    Args:
        feature: Name of the feature, for messages.
        max_distinct: How many distinct values are allowed.
        pending: How many counts are held before they are merged.
    """

    def __init__(self, feature: str, max_distinct: int = MAX_DISTINCT, pending: int = 1 << 20) -> None:
        self.feature = feature
        self.max_distinct = max_distinct
        self.pending = pending
        self.missing = 0
        self._pending: list[tuple[pa.Array, pa.Array]] = []
        self._pending_rows = 0
        self._merged_rows = 0

    def update(self, values: pa.Array) -> None:
        """Counts canonical values (a dictionary is fine); missing ones are counted apart."""
        found = present(values)
        self.missing += len(values) - len(found)
        if len(found) == 0:
            return
        counted = pc.value_counts(found)
        self._add(_uniform(decode(counted.field(0))), counted.field(1))

    def _add(self, values: pa.Array, counts: pa.Array) -> None:
        self._pending.append((values, counts))
        self._pending_rows += len(values)
        if self._pending_rows > max(self.pending, 2 * self._merged_rows):
            values, _ = self.result()
            self._merged_rows = self._pending_rows = len(values)
            if len(values) > self.max_distinct:
                raise DataError(
                    f"feature {self.feature!r} has more than {self.max_distinct:,} distinct values; "
                    "hash them instead of fitting a vocabulary: `vocabulary: {buckets: 10000000}`."
                )

    @property
    def empty(self) -> bool:
        """Whether no value was counted."""
        return not self._pending

    def result(self) -> tuple[pa.Array, pa.Array]:
        """Distinct values (int64, large_string or large_binary) and their counts (int64), in no particular order."""
        if not self._pending:
            return pa.array([], pa.large_string()), pa.array([], pa.int64())
        if len(self._pending) > 1:
            self._pending = [merge(self._pending)]
        return self._pending[0]


def merge(results: list[tuple[pa.Array, pa.Array]]) -> tuple[pa.Array, pa.Array]:
    """Several lists of values and their counts as one in which each value occurs once."""
    results = [result for result in results if len(result[0])] or results[:1]
    if len(results) == 1:
        return results[0]
    kind = _common({values.type for values, _ in results})
    table = pa.table(
        {
            "value": pa.chunked_array([_as(values, kind) for values, _ in results]),
            "count": pa.chunked_array([counts for _, counts in results]),
        }
    )
    table = table.group_by("value").aggregate([("count", "sum")])
    return table["value"].combine_chunks(), table["count_sum"].combine_chunks()


def by_frequency(values: pa.Array, counts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Most frequent first; equally frequent ones by their text, byte by byte, so that 10 comes before 9.

    Integers and the same integers as text come in the same order.
    """
    text = values.cast(pa.large_string()) if pa.types.is_integer(values.type) else values
    table = pa.table({"count": counts, "text": text})
    order = pc.sort_indices(table, sort_keys=[("count", "descending"), ("text", "ascending")])
    return values.take(order), counts.take(order)


def canonical_integers(values: pa.Array) -> pa.Array | None:
    """Text that is wholly made of decimal int64 numbers as int64, or None when some is not ("03", "x", "1.0")."""
    if pa.types.is_integer(values.type):
        return values
    if not pa.types.is_large_string(values.type):
        return None
    matches = pc.match_substring_regex(values, r"^(0|-?[1-9][0-9]{0,18})$")
    if not pc.all(matches, min_count=0).as_py():
        return None
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:  # beyond 2**63
        return None


def as_text(values: pa.Array) -> pa.Array:
    """Integers as decimal text, text as it is."""
    return values.cast(pa.large_string()) if pa.types.is_integer(values.type) else values


def _uniform(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind):
        return values.cast(pa.large_string())
    if pa.types.is_binary(kind):
        return values.cast(pa.large_binary())
    return values


def _common(kinds: set[pa.DataType]) -> pa.DataType:
    if len(kinds) == 1:
        return next(iter(kinds))
    return pa.large_binary() if pa.large_binary() in kinds else pa.large_string()


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    return as_text(values).cast(kind)
