"""What a configuration is checked against: the columns of the data, described without reading the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ColumnKind = Literal[
    "string",
    "int",
    "float",
    "bool",
    "timestamp",
    "list<string>",
    "list<int>",
    "list<float>",
    "map",
]
Table = Literal["interactions", "user", "item"]

NUMERIC: frozenset[ColumnKind] = frozenset({"int", "float", "bool"})
"""Kinds whose values are single numbers; a bool is 0 or 1."""
SCALAR: frozenset[ColumnKind] = frozenset({"string", "int", "float", "bool", "timestamp"})
"""Kinds with one value a row."""
LISTS: frozenset[ColumnKind] = frozenset({"list<string>", "list<int>", "list<float>"})
"""Kinds with several values a row."""

KIND_NAMES: Mapping[ColumnKind, str] = {
    "string": "text",
    "int": "integers",
    "float": "floating-point numbers",
    "bool": "true or false",
    "timestamp": "timestamps",
    "list<string>": "lists of text",
    "list<int>": "lists of integers",
    "list<float>": "lists of floating-point numbers",
    "map": "maps",
}
"""Kinds in words, for messages: "the column 'x' holds ..."."""


@dataclass(frozen=True)
class ColumnInfo:
    """One column that features, labels and expressions may use.

    Attributes:
        name: Name of the column.
        kind: What its values are.
        table: Where it comes from: the interactions themselves, or the user or item table joined to them.
        stray: Of a column of text that is meant as numbers, the first value that is none, and where; else empty.
    """

    name: str
    kind: ColumnKind
    table: Table = "interactions"
    stray: str = ""
