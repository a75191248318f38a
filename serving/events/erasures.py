"""Users who were erased leave the log: what is written leaves them out, and files that hold some are written anew.

Who was erased is told by lines of the log and, where several machines share a store, by the store: each machine has a
log of its own, and a user is erased on one of them.

What an anonymous session did is the user's whose it turned out to be: an event with both, in this log, says so.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import duckdb

from evaluation.abtest.exposure_erasure import SESSION, erase_users
from evaluation.abtest.pseudonyms import Pseudonyms
from evaluation.errors import EvaluationError
from serving.events.log import CLOSED, OPEN, hour_name, read_segment
from serving.events.sql import copy, database, parquet
from serving.stores.base import Store, StoreError, digest

logger = logging.getLogger(__name__)

WAITING, PARQUET, EVENTS, IMPRESSIONS = "waiting", "parquet", "events", "impressions"
_ERASED = "erased.json"
_OVERLAP = 86_400.0
"""Clocks of machines differ, and what one erased may be seen late: so far back is asked again."""

NOT_ERASED = (
    "NOT EXISTS (SELECT 1 FROM erased WHERE erased.moment >= received AND erased.digest = "
    f"coalesce(sha256(raw.user_id), '{SESSION}' || sha256(raw.session_id)))"
)


class Erasures:
    """When users, and sessions of theirs, were erased, by digest of their keys, so that no list of them remains.

    They are kept as long as a segment may hold older events.

    Args:
        folder: The folder of the event log.
        store: Knows who was erased on other machines.
    """

    def __init__(self, folder: Path, store: Store | None = None) -> None:
        self._folder = folder
        self._file = folder / _ERASED
        kept: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._before: dict[str, float] = kept.get("erased", {})
        self._until: float = kept.get("until", 0.0)
        self.known = dict(self._before)
        """When each was erased, seconds since 1970."""
        sessions: set[tuple[str, str]] = set()
        for path in [*(folder / CLOSED).glob("*.jsonl"), *(folder / WAITING).glob("*.jsonl")]:
            for record, _ in read_segment(path):
                if record.get("kind") == "erase":
                    self._add(digest(str(record["user_id"])), float(record["received"]))
                elif record.get("kind") == "event" and record.get("user_id") and record.get("session_id"):
                    sessions.add((digest(str(record["user_id"])), digest(str(record["session_id"]))))
        for name, moment in self._elsewhere(store).items():
            self._add(name, moment)
            self._until = max(self._until, moment)
        for user, session in sessions | self._sessions_of(self._new()):
            if user in self.known:
                self._add(SESSION + session, self.known[user])

    def apply(self, exposures: Path | None = None) -> int:
        """Writes files anew that hold users of whose erasure the last call did not know; returns how many.

        Args:
            exposures: The folder of the exposure log; it may be missing.
        """
        rewritten, done = _rewrite(self._folder, self._new())
        if exposures is not None:
            rewritten += _rewrite_exposures(exposures, self.known)
        if done:
            self._keep()
        return rewritten

    def _new(self) -> dict[str, float]:
        """Those of which the last call did not know."""
        return {name: moment for name, moment in self.known.items() if self._before.get(name) != moment}

    def _sessions_of(self, erased: dict[str, float]) -> set[tuple[str, str]]:
        """Digests of erased users and of their sessions, by the events in files."""
        found: set[tuple[str, str]] = set()
        for path in sorted((self._folder / PARQUET / EVENTS).glob("*/*.parquet")) if erased else ():
            try:
                with database(self._folder) as connection:
                    note_erasures(connection, erased)
                    found.update(
                        connection.execute(
                            "SELECT DISTINCT sha256(user_id), sha256(session_id) "
                            f"FROM {parquet([path])} WHERE session_id IS NOT NULL "
                            "AND sha256(user_id) IN (SELECT digest FROM erased)"
                        ).fetchall()
                    )
            except (duckdb.Error, OSError) as error:
                logger.error("sessions of erased users cannot be found in %s: %s", path, error)
        return found

    def _add(self, name: str, moment: float) -> None:
        self.known[name] = max(self.known.get(name, 0.0), moment)

    def _elsewhere(self, store: Store | None) -> dict[str, float]:
        """Those that the store has learned of; where it cannot be asked, the next call asks for as much more."""
        if store is None:
            return {}
        try:
            return store.erased_since(max(0.0, self._until - _OVERLAP))
        except StoreError as error:
            logger.error("who was erased on other machines is not known: %s", error)
            return {}

    def _keep(self) -> None:
        names = [
            path.name for part in (OPEN, CLOSED, WAITING) for path in (self._folder / part).glob("*.jsonl")
        ]
        first, since = min(names, default="9999")[:13], time.time() - 2 * _OVERLAP
        kept = {name: at for name, at in self.known.items() if hour_name(at) >= first or at > since}
        aside = self._file.with_suffix(".tmp")
        aside.write_text(json.dumps({"until": self._until, "erased": kept}))
        os.replace(aside, self._file)


def note_erasures(connection: duckdb.DuckDBPyConnection, erased: dict[str, float]) -> None:
    """Makes the table that `NOT_ERASED` reads."""
    connection.execute("CREATE TABLE erased (digest VARCHAR, moment DOUBLE)")
    if erased:
        connection.executemany("INSERT INTO erased VALUES (?, ?)", [list(pair) for pair in erased.items()])


def _rewrite(folder: Path, erased: dict[str, float]) -> tuple[int, bool]:
    """How many files were written anew, and whether none of them failed."""
    rewritten, done = 0, True
    for path in sorted((folder / PARQUET).glob("*/*/*.parquet")) if erased else ():
        try:
            rewritten += _rewrite_file(folder, path, erased)
        except (duckdb.Error, OSError) as error:
            logger.error("erased users cannot be taken out of %s: %s", path, error)
            done = False
    return rewritten, done


def _rewrite_file(folder: Path, path: Path, erased: dict[str, float]) -> bool:
    moment = "received" if path.parts[-3] == EVENTS else "time"
    with database(folder) as connection:
        note_erasures(connection, erased)
        kept = NOT_ERASED.replace("received", f"epoch({moment})")
        found = connection.execute(
            f"SELECT count(*) FROM {parquet([path])} AS raw WHERE NOT ({kept})"
        ).fetchone()
        if not found or not found[0]:
            return False
        aside = path.with_suffix(".tmp")
        copy(connection, f"SELECT * FROM {parquet([path])} AS raw WHERE {kept}", aside)
        os.replace(aside, path)
        return True


def _rewrite_exposures(folder: Path, erased: dict[str, float]) -> int:
    """The same for exposures; what cannot be done now is tried again the next time."""
    try:
        return erase_users(folder, erased, Pseudonyms.from_environment())
    except (EvaluationError, OSError) as error:
        logger.error("%s", error)
        return 0
