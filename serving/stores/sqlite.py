"""The store of one machine: an SQLite file in write-ahead mode, shared by all worker processes.

Readers never wait for a writer: each thread reads through a connection of its own. Writes go through one connection,
each in one transaction that takes the write lock at once, so that two processes queue instead of failing. A power cut
may cost the last commits, never the file; the event log brings lost events back.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving.stores.base import (
    HISTORY,
    SEEN,
    TAKINGS_SECONDS,
    Behaviour,
    Entry,
    ItemChange,
    Mark,
    Record,
    Served,
    StoreError,
    Takings,
    digest,
    owner,
    owners,
    readable,
    takings_from,
)

BUSY_SECONDS = 5.0
"""How long a write waits for that of another process."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, time REAL NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_of_owner ON events (owner, time, number);
CREATE TABLE IF NOT EXISTS marks (
    owner TEXT NOT NULL, served INTEGER NOT NULL, item TEXT NOT NULL, type TEXT NOT NULL, time REAL NOT NULL,
    PRIMARY KEY (owner, served, item, type)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS marks_by_time ON marks (owner, served, time);
CREATE TABLE IF NOT EXISTS profiles (user TEXT PRIMARY KEY, columns TEXT, erased REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items (
    version INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT NOT NULL UNIQUE, body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS takings (process TEXT PRIMARY KEY, time REAL NOT NULL, counts TEXT NOT NULL) WITHOUT ROWID;
"""


class SqliteStore:
    """See the module.

    Args:
        path: The file; made when missing.

    Raises:
        StoreError: The file cannot be used.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: list[sqlite3.Connection] = []
        with self._errors():
            self._writer = self._connect()
            self._writer.execute("PRAGMA journal_mode = WAL")
            self._writer.executescript(_SCHEMA)

    def read(self, user_id: str | None, session_id: str | None, history: int = HISTORY) -> Record:
        """See `Store.read`."""
        keys = owners(user_id, session_id)
        with self._errors():
            connection = self._reader()
            events = [
                row
                for key in keys
                for row in connection.execute(
                    "SELECT time, number, event_id, body FROM events WHERE owner = ? "
                    "ORDER BY time DESC, number DESC LIMIT ?",
                    (key, history),
                )
            ]
            marks = [self._marks(connection, keys, served) for served in (0, 1)]
            profile, erased = self._profile(connection, user_id)
        events.sort(key=lambda row: row[:2])
        return Record(
            tuple(readable(events[-history:] if history else (), _behaviour)),
            marks[0],
            marks[1],
            profile,
            erased,
        )

    def known_events(self, event_ids: Sequence[str]) -> set[str]:
        """See `Store.known_events`."""
        found: set[str] = set()
        with self._errors():
            connection = self._reader()
            for start in range(0, len(event_ids), 500):
                part = event_ids[start : start + 500]
                marks = ",".join("?" * len(part))
                rows = connection.execute(f"SELECT event_id FROM events WHERE event_id IN ({marks})", part)
                found.update(row[0] for row in rows)
        return found

    def append(self, entries: Sequence[Entry]) -> None:
        """See `Store.append`."""
        with self._transaction() as connection:
            sessions = {
                (entry.session_id, entry.user_id)
                for entry in entries
                if entry.user_id is not None and entry.session_id is not None
            }
            _add_events(connection, entries)
            for session_id, user_id in sessions:
                _merge(connection, owner(None, session_id), owner(user_id, None))
            _trim(connection, {owner(entry.user_id, entry.session_id) for entry in entries})

    def add_served(self, served: Sequence[Served]) -> None:
        """See `Store.add_served`."""
        rows = [
            (owner(one.user_id, one.session_id), 1, item_id, "", one.time)
            for one in served
            for item_id in one.item_ids
        ]
        with self._transaction() as connection:
            connection.executemany(_MARK, rows)
            _trim(connection, {row[0] for row in rows})

    def put_profile(self, user_id: str, columns: Mapping[str, Any]) -> None:
        """See `Store.put_profile`."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO profiles (user, columns) VALUES (?, ?) "
                "ON CONFLICT (user) DO UPDATE SET columns = excluded.columns",
                (user_id, _json(columns)),
            )

    def merge(self, session_id: str, user_id: str) -> None:
        """See `Store.merge`."""
        with self._transaction() as connection:
            _merge(connection, owner(None, session_id), owner(user_id, None))

    def erase(self, user_id: str, time: float) -> None:
        """See `Store.erase`."""
        with self._transaction() as connection:
            for table in ("events", "marks"):
                connection.execute(f"DELETE FROM {table} WHERE owner = ?", (owner(user_id, None),))
            connection.execute(
                "INSERT INTO profiles (user, erased) VALUES (?, ?) "
                "ON CONFLICT (user) DO UPDATE SET columns = NULL, erased = excluded.erased",
                (user_id, time),
            )

    def erased_since(self, time: float) -> dict[str, float]:
        """See `Store.erased_since`."""
        with self._errors():
            rows = (
                self._reader()
                .execute("SELECT user, erased FROM profiles WHERE erased >= ?", (time,))
                .fetchall()
            )
        return {digest(user): moment for user, moment in rows}

    def put_item(self, change: ItemChange) -> int:
        """See `Store.put_item`."""
        body = _json({"columns": change.columns, "available": change.available, "time": change.time})
        with self._transaction() as connection:
            cursor = connection.execute(
                "INSERT OR REPLACE INTO items (item, body) VALUES (?, ?)", (change.item_id, body)
            )
            return int(cursor.lastrowid or 0)

    def item(self, item_id: str) -> ItemChange | None:
        """See `Store.item`."""
        with self._errors():
            row = (
                self._reader()
                .execute("SELECT version, item, body FROM items WHERE item = ?", (item_id,))
                .fetchone()
            )
        return next(iter(readable([] if row is None else [row], _change)), None)

    def items_since(self, version: int) -> list[ItemChange]:
        """See `Store.items_since`."""
        with self._errors():
            rows = (
                self._reader()
                .execute(
                    "SELECT version, item, body FROM items WHERE version > ? ORDER BY version", (version,)
                )
                .fetchall()
            )
        return readable(rows, _change)

    def put_takings(self, process: str, takings: Takings) -> None:
        """See `Store.put_takings`."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO takings (process, time, counts) VALUES (?, ?, ?)",
                (process, takings.time, _json(takings.counts)),
            )
            connection.execute("DELETE FROM takings WHERE abs(time - ?) > ?", (takings.time, TAKINGS_SECONDS))

    def takings(self) -> dict[str, Takings]:
        """See `Store.takings`."""
        with self._errors():
            rows = self._reader().execute("SELECT process, time, counts FROM takings").fetchall()
        return dict(readable(rows, lambda row: (row[0], takings_from(row[1], json.loads(row[2])))))

    def prune(self, before: float) -> None:
        """See `Store.prune`."""
        with self._transaction() as connection:
            for table in ("events", "marks"):
                connection.execute(f"DELETE FROM {table} WHERE time < ?", (before,))

    def ping(self) -> None:
        """See `Store.ping`."""
        with self._errors():
            self._reader().execute("SELECT 1 FROM events LIMIT 1").fetchone()

    def close(self) -> None:
        """See `Store.close`."""
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA synchronous = NORMAL")
        self._open.append(connection)
        return connection

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
            self._local.connection = connection
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"the store {self._path} cannot be used: {error}") from error

    @staticmethod
    def _marks(connection: sqlite3.Connection, keys: Sequence[str], served: int) -> tuple[Mark, ...]:
        rows = [
            row
            for key in keys
            for row in connection.execute(
                "SELECT item, type, time FROM marks WHERE owner = ? AND served = ? ORDER BY time DESC LIMIT ?",
                (key, served, SEEN),
            )
        ]
        rows.sort(key=lambda row: -row[2])
        return tuple(Mark(item, kind, time) for item, kind, time in rows)

    @staticmethod
    def _profile(
        connection: sqlite3.Connection, user_id: str | None
    ) -> tuple[Mapping[str, Any] | None, float | None]:
        if user_id is None:
            return None, None
        row = connection.execute("SELECT columns, erased FROM profiles WHERE user = ?", (user_id,)).fetchone()
        if row is None:
            return None, None
        return next(iter(readable([row[0]] if row[0] else [], json.loads)), None), row[1]


_MARK = (
    "INSERT INTO marks (owner, served, item, type, time) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (owner, served, item, type) DO UPDATE SET time = max(time, excluded.time)"
)


def _add_events(connection: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    marks = []
    for entry in entries:
        one, key = entry.behaviour, owner(entry.user_id, entry.session_id)
        body = _json([one.type, one.item_id, one.value, one.properties])
        cursor = connection.execute(
            "INSERT OR IGNORE INTO events (event_id, owner, time, body) VALUES (?, ?, ?, ?)",
            (one.event_id, key, one.time, body),
        )
        if cursor.rowcount and one.item_id is not None:
            marks.append((key, 0, one.item_id, one.type, one.time))
    connection.executemany(_MARK, marks)


def _merge(connection: sqlite3.Connection, session: str, user: str) -> None:
    connection.execute("UPDATE events SET owner = ? WHERE owner = ?", (user, session))
    connection.execute(
        "INSERT INTO marks (owner, served, item, type, time) "
        "SELECT ?, served, item, type, time FROM marks WHERE owner = ? "
        "ON CONFLICT (owner, served, item, type) DO UPDATE SET time = max(time, excluded.time)",
        (user, session),
    )
    connection.execute("DELETE FROM marks WHERE owner = ?", (session,))


def _trim(connection: sqlite3.Connection, keys: set[str]) -> None:
    """Forgets the oldest marks of people who have far too many."""
    for key in keys:
        for served in (0, 1):
            row = connection.execute(
                "SELECT time FROM marks WHERE owner = ? AND served = ? ORDER BY time DESC LIMIT 1 OFFSET ?",
                (key, served, 2 * SEEN),
            ).fetchone()
            if row is not None:
                connection.execute(
                    "DELETE FROM marks WHERE owner = ? AND served = ? AND time <= ("
                    "SELECT time FROM marks WHERE owner = ? AND served = ? ORDER BY time DESC LIMIT 1 OFFSET ?)",
                    (key, served, key, served, SEEN),
                )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _behaviour(row: tuple[float, int, str, str]) -> Behaviour:
    time, _, event_id, body = row
    kind, item_id, value, properties = json.loads(body)
    return Behaviour(event_id, kind, item_id, time, value, properties)


def _change(row: tuple[int, str, str]) -> ItemChange:
    version, item, body = row
    values = json.loads(body)
    return ItemChange(item, values["columns"], values["available"], values["time"], version)
