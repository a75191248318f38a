"""What a bundle knows of its users, and what a caller says of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from easyrec.errors import SchemaError, nearest
from easyrec.export.manifest import HistoryEntry, Manifest
from easyrec.export.tables import KeyedTable, Positions

SEEN = "seen"


@dataclass(frozen=True)
class KnownUser:
    """One user.

    Attributes:
        columns: One row with the raw columns of the user and of the context; null where nothing is known.
        known: Whether anything is known.
        seen: Rows of the catalogue that the user has interacted with.
    """

    columns: pa.Table
    known: bool
    seen: Positions


class Users:
    """Raw columns of users, from the bundle and from callers.

    Args:
        manifest: Inputs, histories and keys.
        items: The catalogue.
        table: The users as of the end of training, with a column `seen` of item keys; None if they are not kept.
    """

    def __init__(self, manifest: Manifest, items: KeyedTable, table: KeyedTable | None) -> None:
        self.table = table
        self.items = items
        self.key = manifest.keys.get("user")
        self.columns = list(dict.fromkeys(entry.column for entry in manifest.inputs if not entry.of_item))
        inputs = {entry.name: entry for entry in manifest.inputs}
        self._histories: dict[str, HistoryEntry] = {
            inputs[history.name].column: history for history in manifest.histories
        }

    def find(
        self, user: Any, profile: Mapping[str, Any] | None = None, history: Sequence[Any] | None = None
    ) -> KnownUser:
        """All that is known of a user.

        Args:
            user: Key, or None.
            profile: Raw columns in place of the bundle's.
            history: Item keys, oldest first, in place of the bundle's history.

        Raises:
            SchemaError: `user` is no key, or `profile` has a column that the model does not read.
        """
        if isinstance(user, Iterable) and not isinstance(user, (str, bytes)):
            raise SchemaError(
                f"user: one key is expected, a text or a number; got {user!r}. For many users, use `rank_users`"
            )
        given = self._given(profile or {})
        if history is not None:
            given |= self._from_history(history)
        position = -1 if user is None or self.table is None else int(self.table.positions([user])[0])
        row = None if position < 0 or self.table is None else self.table.rows(np.array([position]))
        known = row is not None or profile is not None or history is not None
        if known and row is None and user is not None and self.key in self.columns:
            given.setdefault(str(self.key), _one_value(str(self.key), user))
        columns = {
            name: given[name]
            if name in given
            else row[name]
            if row is not None and name in row.column_names
            else pa.nulls(1)
            for name in self.columns
        }
        seen = [] if row is None or SEEN not in row.column_names else row[SEEN][0].as_py() or []
        return KnownUser(_table(columns, 1), known, self._positions([*seen, *(history or [])]))

    def rows(self, users: Iterable[Any]) -> tuple[pa.Table, list[Positions]]:
        """Raw columns of users of the bundle, a row each, and the rows of the catalogue that each has seen.

        Raises:
            SchemaError: The bundle does not know a user, or keeps none.
        """
        users = list(users)
        if self.table is None:
            raise SchemaError("the bundle keeps no users (`export.users: false`), so it cannot rank for them")
        positions = self.table.positions(users)
        if (positions < 0).any():
            unknown = users[int(np.argmax(positions < 0))]
            raise SchemaError(f"the user {unknown!r} is not among the {len(self.table)} users of the bundle")
        rows = self.table.rows(positions)
        absent = {name: pa.nulls(len(rows)) for name in self.columns if name not in rows.column_names}
        columns = {name: absent[name] if name in absent else rows[name] for name in self.columns}
        if SEEN not in rows.column_names:
            return _table(columns, len(rows)), [np.empty(0, np.int64)] * len(rows)
        seen = rows[SEEN].combine_chunks()
        found = self.items.positions(seen.flatten())
        lengths = seen.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        parts = np.split(found, np.cumsum(lengths)[:-1])
        return _table(columns, len(rows)), [part[part >= 0] for part in parts]

    def _given(self, profile: Mapping[str, Any]) -> dict[str, pa.Array]:
        for name in profile:
            if name not in self.columns:
                raise SchemaError(
                    f"profile: the model reads no column {name!r} of users.{nearest(name, self.columns)}"
                )
        return {name: _one_value(name, value) for name, value in profile.items()}

    def _from_history(self, history: Sequence[Any]) -> dict[str, pa.Array]:
        positions = self._positions(history)
        columns = {}
        for column, entry in self._histories.items():
            if entry.of == self.items.key:
                values = list(history)
            else:
                values = [
                    value for value in self.items.rows(positions)[entry.of].to_pylist() if value is not None
                ]
            columns[column] = pa.array(
                [values if entry.separator is None else entry.separator.join(map(str, values))]
            )
        return columns

    def _positions(self, keys: Sequence[Any]) -> Positions:
        positions = self.items.positions(keys)
        return positions[positions >= 0]


def _one_value(name: str, value: Any) -> pa.Array:
    try:
        return pa.array([value], from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise SchemaError(f"profile: the value {value!r} of {name!r} cannot be used: {error}") from error


def _table(columns: Mapping[str, Any], rows: int) -> pa.Table:
    """A table that keeps its number of rows even without columns."""
    return pa.table(dict(columns)) if columns else pa.table({"": pa.nulls(rows)})
