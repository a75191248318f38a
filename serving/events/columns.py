"""Columns for what JSON objects of the log hold: one kind of value in all hours, whatever one sender gets wrong.

The first hour that has a column decides whether it holds numbers, yes or no, lists or text; where its values differ,
what most of them are. Whole numbers become fractions when fractions come. A later value of another kind is missing in
its column, and kept in the column `misfits`, as JSON. When most values of an hour are of another kind, and they are
many, the column has changed, and so does its kind.

A value of a column of text is its text, whatever it is.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from serving.events.sql import text

FILE = "columns.json"
MISFITS = "misfits"
MOST_COLUMNS = 500
_MOST_REMEMBERED = 5000
_CHANGED = 100
"""So many values of another kind, and more than half of an hour's, change the kind of a column."""
_TEXT = "VARCHAR"
_MIXED = "JSON"
_INTEGERS = ("BIGINT", "UBIGINT")
_NUMBERS = (*_INTEGERS, "DOUBLE")
_FITTING = {"BIGINT": _INTEGERS, "DOUBLE": _NUMBERS, "BOOLEAN": ("BOOLEAN",)}
"""Types of JSON values by the type of a column that holds them as they are."""


class Columns:
    """The kinds of columns in the hours so far.

    Args:
        folder: The folder of the event log.
        kind: Of the table, such as `events`.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self._file = folder / FILE
        self._kind = kind
        self._all: dict[str, dict[str, Any]] = (
            json.loads(self._file.read_text()) if self._file.exists() else {}
        )
        self._known = self._all.setdefault(kind, {})

    def exploded(
        self, connection: duckdb.DuckDBPyConnection, table: str, column: str, taken: Sequence[str]
    ) -> dict[str, str]:
        """Expressions, by name, that make each key of the objects in a column a column of its own.

        Args:
            connection: The database.
            table: Its table.
            column: Whose values are JSON objects.
            taken: Names that others have; keys of that name are left out.
        """
        row = connection.execute(f"SELECT json_group_structure({column}) FROM {table}").fetchone()
        structure = json.loads(row[0]) if row and row[0] else None
        if not isinstance(structure, dict):
            return {}
        if len(structure) > MOST_COLUMNS:  # keys that are values, such as ids
            return {column.replace(".", "_").replace('"', ""): f"CAST({column} AS VARCHAR)"}
        expressions: dict[str, str] = {}
        misfits: dict[str, str] = {}
        lowered = {name.lower() for name in (*taken, MISFITS)}
        for name, found in structure.items():
            if name.lower() in lowered or not name:
                continue
            lowered.add(name.lower())  # names differ by more than case, in DuckDB
            pointer = text("/" + name.replace("~", "~0").replace("/", "~1"))
            value = f"json_extract({column}, {pointer})"
            type_ = self._settled(connection, table, name, value, column_type(found))
            if type_ == _TEXT:
                expressions[name] = _text_of(value)
            elif type_ is not None:
                expressions[name] = _extracted(value, type_)
                if type_ != column_type(found):
                    misfits[name] = _misfit(value, expressions[name], type_)
        self._remember()
        if misfits:
            pairs = ", ".join(f"{text(name)}, {misfit}" for name, misfit in misfits.items())
            kept = f"json_merge_patch('{{}}', json_object({pairs}))"  # leaves out what is null
            name = MISFITS if MISFITS not in taken else f"{MISFITS}_of_items"
            expressions[name] = f"nullif(CAST({kept} AS VARCHAR), '{{}}')"
        return expressions

    def _settled(
        self, connection: duckdb.DuckDBPyConnection, table: str, name: str, value: str, found: Any
    ) -> Any:
        """The type of a column, given what this hour's values have in common; None where they say nothing."""
        known = self._known.get(name)
        if found is None or found == known or known == _TEXT:
            return None if found is None else known
        if _numbers(known, found):
            self._known[name] = _wider(known, found)
        elif known is None and found != _MIXED:
            self._known[name] = found
        else:
            rows = connection.execute(
                f"SELECT json_type({value}), count(*) FROM {table} GROUP BY 1"
            ).fetchall()
            types = Counter({kind: count for kind, count in rows if kind != "NULL"})
            self._known[name] = _kind(
                known, types, _lists(connection, table, value) if types["ARRAY"] else None
            )
        return self._known[name]

    def _remember(self) -> None:
        if len(self._known) > _MOST_REMEMBERED:  # names that are values
            return
        aside = self._file.with_suffix(".tmp")
        aside.write_text(json.dumps(self._all))
        os.replace(aside, self._file)


def column_type(kind: Any) -> Any:
    """The type of a column for what JSON values have in common, or None where none of them says anything.

    A column of nulls or empty lists has no type of its own: written with one, it would not fit the next hour's.
    """
    if isinstance(kind, list):
        inner = column_type(kind[0])
        return None if inner is None else [_TEXT if inner == _MIXED else inner]
    if kind == "NULL":
        return None
    if kind == "UBIGINT":  # so that it fits the hours in which there are negative ones
        return "BIGINT"
    return _MIXED if kind == "JSON" else _TEXT if isinstance(kind, dict) else kind


def _lists(connection: duckdb.DuckDBPyConnection, table: str, value: str) -> Any:
    """The type of a column for those values that are lists; text where they say nothing."""
    row = connection.execute(
        f"SELECT json_group_structure({value}) FROM {table} WHERE json_type({value}) = 'ARRAY'"
    ).fetchone()
    return column_type(json.loads(row[0])) or _TEXT if row and row[0] else _TEXT


def _kind(known: Any, types: Counter[str], lists: Any) -> Any:
    """The type of a column whose values differ, or differ from those of earlier hours.

    Args:
        known: That of earlier hours, or None.
        types: How many values are of each type.
        lists: The type of a column for those that are lists.
    """
    number = "DOUBLE" if types["DOUBLE"] else "BIGINT"
    numbers = sum(types[kind] for kind in _NUMBERS)
    usual = [(numbers, number), (types["BOOLEAN"], "BOOLEAN"), (types["ARRAY"], lists)]
    count, best = max(usual, key=lambda pair: pair[0])
    majority = best if 2 * count > types.total() else _TEXT
    if known is None:
        return majority
    fitting = (
        types["ARRAY"] if isinstance(known, list) else sum(types[kind] for kind in _FITTING.get(known, ()))
    )
    if known == "BIGINT" and types["DOUBLE"]:
        known, fitting = "DOUBLE", numbers
    misfits = types.total() - fitting
    return majority if misfits > max(_CHANGED, fitting) else known


def _numbers(left: Any, right: Any) -> bool:
    """Whether both are numbers, or lists of numbers."""
    if isinstance(left, list) and isinstance(right, list):
        return _numbers(left[0], right[0])
    return all(isinstance(one, str) and one in _NUMBERS for one in (left, right))


def _wider(left: Any, right: Any) -> Any:
    return [_wider(left[0], right[0])] if isinstance(left, list) else "DOUBLE"


def _extracted(value: str, type_: Any) -> str:
    """A value as it is, or missing where it is of another kind."""
    if isinstance(type_, list):
        element = _text_of("x") if type_[0] == _TEXT else _extracted("x", type_[0])
        return f"[{element} for x in TRY_CAST({value} AS JSON[])]"
    fitting = ", ".join(text(kind) for kind in _FITTING.get(type_, (type_,)))
    return f"CASE WHEN json_type({value}) IN ({fitting}) THEN json_transform({value}, {text(json.dumps(type_))}) END"


def _text_of(value: str) -> str:
    return f"json_extract_string({value}, '$')"


def _misfit(value: str, extracted: str, type_: Any) -> str:
    """The value where nothing, or not all of it, could be extracted."""
    lost = f"({extracted}) IS NULL"
    if isinstance(type_, list):
        lost += f" OR list_count({extracted}) < len({extracted})"
    return f"CASE WHEN json_type({value}) <> 'NULL' AND ({lost}) THEN {value} END"
