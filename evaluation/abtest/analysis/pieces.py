"""Sums of what units did, for as many units at a time as the memory holds."""

import sys
from collections.abc import Sequence
from typing import Any

from evaluation.abtest.analysis.engines import kept, memory_limit
from evaluation.abtest.analysis.units import UnitTable

KEYS = ["id", "day", "age"]
_MOST_DAYS = 30
_BYTES_OF_A_GROUP, _BYTES_OF_A_SUM = 90, 24


def summed_in_pieces(table: UnitTable, rows: Any, names: Sequence[str]) -> list[Any]:
    """Sums by unit, day and age, for some of the units at a time: grouping all at once would not fit in memory.

    Args:
        table: The units.
        rows: Columns KEYS and those to sum.
        names: Columns to sum.
    """
    count = 1 + table.counts["units"] // _units_at_once(table, len(names))
    if count == 1:
        return [kept(summed(rows, KEYS, names))]
    rows = kept(rows)
    return [kept(summed(rows.filter(rows.id % count == place), KEYS, names)) for place in range(count)]


def _units_at_once(table: UnitTable, columns: int) -> int:
    """Units whose sums fit in memory together, if each did something on most days."""
    limit = memory_limit(table.units)
    if limit is None:
        return sys.maxsize
    groups = 1 + min(table.days, _MOST_DAYS)
    return max(1, int(limit / (groups * (_BYTES_OF_A_GROUP + _BYTES_OF_A_SUM * columns))))


def summed(rows: Any, keys: Sequence[str], names: Sequence[str]) -> Any:
    """Sums of columns by keys."""
    return rows.group_by(keys).aggregate(**{name: rows[name].sum() for name in names})
