"""What a configuration is checked against: the columns of the data, described without reading the data."""

from __future__ import annotations

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


@dataclass(frozen=True)
class ColumnInfo:
    """One column that features, labels and expressions may use.

    Attributes:
        name: Name of the column.
        kind: What its values are.
        table: Where it comes from: the interactions themselves, or the user or item table joined to them.
    """

    name: str
    kind: ColumnKind
    table: Table = "interactions"
