"""Which columns are user, item and time."""

from __future__ import annotations

from collections.abc import Mapping

from easyrec.data.inference.findings import Choice, Findings
from easyrec.data.inference.names import ITEM_WORDS, TIME_WORDS, USER_WORDS, is_unnamed, name_score
from easyrec.data.inference.profile import ColumnProfile, TableProfile
from easyrec.errors import DataError

_SECONDS = (5e8, 5e9)


def find_keys(
    found: Findings, table: TableProfile, items: TableProfile | None, users: TableProfile | None
) -> None:
    """Finds user, item and time: from names, from tables that share the key, from statistics, from places."""
    columns = table.columns
    for word, words, other in (("user", USER_WORDS, users), ("item", ITEM_WORDS, items)):
        taken = {choice.value for choice in found.keys.values()}
        candidates = [
            column
            for column in columns.values()
            if column.kind in ("string", "int") and column.name not in taken
        ]
        if other is not None:
            shared = [column for column in candidates if column.name in other.columns]
            unique = [column for column in shared if other.columns[column.name].unique_share > 0.999]
            best = max(unique, key=lambda column: name_score(column.name, words), default=None)
            if best is None:
                raise DataError(
                    f"the {word} table has no column that the interactions have too and that names each row once; the "
                    f"interactions have {', '.join(columns)}, the table has {', '.join(other.columns)}"
                )
            found.keys[word] = Choice(
                best.name, f"in both files, and different in each row of the {word} table"
            )
            continue
        named = [column for column in candidates if name_score(column.name, words) and column.distinct > 1]
        best = max(named, key=lambda column: name_score(column.name, words), default=None)
        if best is not None and not (best.unique_share > 0.99 and best.present > 100):
            found.keys[word] = Choice(
                best.name, f"by its name; {best.distinct} different ones in {best.present} sampled rows"
            )
    _find_time(found, columns)
    if "user" not in found.keys and "item" not in found.keys:
        _keys_by_place(found, columns)


def _find_time(found: Findings, columns: Mapping[str, ColumnProfile]) -> None:
    stamps = [column for column in columns.values() if column.kind == "timestamp" and column.distinct > 1]
    numbers = [
        column
        for column in columns.values()
        if column.numbers is not None and column.kind in ("int", "float") and is_epoch(column)
    ]
    for column in sorted(stamps, key=lambda column: -name_score(column.name, TIME_WORDS)):
        found.keys["time"] = Choice(column.name, "a timestamp")
        return
    for column in numbers:
        named = name_score(column.name, TIME_WORDS)
        if named or (column.distinct > 20 and is_unnamed(column.name)):
            unit = "milliseconds" if column.numbers and column.numbers.low > 1e11 else "seconds"
            found.keys["time"] = Choice(column.name, f"{unit} since 1970")
            return


def is_epoch(column: ColumnProfile) -> bool:
    """Whether all numbers are seconds or milliseconds since 1970, from 1985 to 2128."""
    numbers = column.numbers
    if numbers is None or not numbers.whole:
        return False
    return any(_SECONDS[0] * unit <= numbers.low and numbers.high <= _SECONDS[1] * unit for unit in (1, 1000))


def _keys_by_place(found: Findings, columns: Mapping[str, ColumnProfile]) -> None:
    """User, item, value (and time) without names: the first two columns are codes that come again and again."""
    if not 2 <= len(columns) <= 4 or not all(is_unnamed(name) for name in columns):
        return
    first, second = list(columns.values())[:2]
    if all(
        column.kind in ("int", "string") and column.distinct > 20 and column.unique_share < 0.5
        for column in (first, second)
    ):
        found.keys["user"] = Choice(
            first.name, f"the first column: {first.distinct} codes that come again and again"
        )
        found.keys["item"] = Choice(
            second.name, f"the second column: {second.distinct} codes that come again and again"
        )
