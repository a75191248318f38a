"""Turns closed segments of the event log into Parquet, hour by hour, in a process of its own.

    parquet/events/hour=2026-11-30T12/part-....parquet         one row an event, each event once
    parquet/impressions/hour=2026-11-30T12/part-....parquet    one row an item shown, with what came of it

An hour's events are written when the hour is over; its impressions some time later, when the events that answer them
have come. Properties of events, the features that were served and what else was known of the request become columns of
their own, of one kind in all hours (`columns`); each type of event becomes a column of the impressions, 1 where the
item got one. So both can be trained on as they are.

Events of users who were erased since are left out, and files that hold some are written anew; so are those of the log
of exposures. Whatever breaks off is done again: files are written aside and renamed, and what is in place already is
passed over.

    python -m serving.events.compaction FOLDER

Where several machines share a store, `EASYREC_STORE` names it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from serving.events.columns import MOST_COLUMNS, Columns
from serving.events.compactor import STORE
from serving.events.erasures import (
    EVENTS,
    IMPRESSIONS,
    NOT_ERASED,
    PARQUET,
    WAITING,
    Erasures,
    note_erasures,
)
from serving.events.log import CLOSED, OPEN
from serving.events.sql import copy, database, parquet, quoted, text
from serving.stores.base import Store

logger = logging.getLogger(__name__)

LATE_MINUTES = 60.0
_REMEMBERED_HOURS = 48
_TYPES = "types.json"
_PART_BYTES = 64 << 20

_EVENT_COLUMNS = {
    "kind": "VARCHAR", "received": "DOUBLE", "event_id": "VARCHAR", "type": "VARCHAR", "user_id": "VARCHAR",
    "item_id": "VARCHAR", "request_id": "VARCHAR", "session_id": "VARCHAR", "position": "BIGINT", "value": "DOUBLE",
    "timestamp": "DOUBLE", "properties": "JSON",
}  # fmt: skip
_IMPRESSION_COLUMNS = {
    "kind": "VARCHAR", "received": "DOUBLE", "request_id": "VARCHAR", "user_id": "VARCHAR", "session_id": "VARCHAR",
    "scene": "VARCHAR", "model": "STRUCT(name VARCHAR, version VARCHAR)",
    "experiments": "STRUCT(layer VARCHAR, experiment VARCHAR, variant VARCHAR)[]", "degraded": "VARCHAR[]",
    "fallback": "VARCHAR", "candidates": "BIGINT", "fresh_propensity": "DOUBLE",
    "items": "STRUCT(item_id VARCHAR, score DOUBLE, position BIGINT, sources VARCHAR[], features JSON)[]",
    "features": "JSON", "context": "JSON",
}  # fmt: skip


def compact(
    folder: Path,
    now: float | None = None,
    late_minutes: float = LATE_MINUTES,
    exposures: Path | None = None,
    store: Store | None = None,
) -> dict[str, int]:
    """Writes what can be written by now.

    Args:
        folder: The folder of the event log.
        now: Seconds since 1970; the time unless given.
        late_minutes: How long after its hour an impression waits for events.
        exposures: The folder of the exposure log, from which erased users go as well; it may be missing.
        store: Knows who was erased on other machines, whose logs this one does not see.

    Returns:
        Rows of `events` and `impressions` written, and files `rewritten` because users were erased; empty when
        another process is at it.
    """
    now = time.time() if now is None else now
    with _alone(folder) as alone:
        if not alone:
            return {}
        (folder / WAITING).mkdir(exist_ok=True)
        erasures = Erasures(folder, store)
        erased = erasures.known
        counts = {"events": 0, "impressions": 0, "rewritten": erasures.apply(exposures)}
        for hour, paths in _by_hour(folder / CLOSED).items():
            if _is_over(hour, now) and not list((folder / OPEN).glob(f"{hour}-*.jsonl")):
                with _one_hour(hour):
                    for part in _parts(paths):
                        counts["events"] += _write_events(folder, hour, part, erased)
                        for path in part:
                            os.replace(path, folder / WAITING / path.name)
        for hour, paths in _by_hour(folder / WAITING).items():
            if _is_over(hour, now, late_minutes * 60):
                with _one_hour(hour):
                    for part in _parts(paths):
                        counts["impressions"] += _write_impressions(folder, hour, part, erased, late_minutes)
                        for path in part:
                            path.unlink()
    return counts


@contextlib.contextmanager
def _one_hour(hour: str) -> Iterator[None]:
    """Lets other hours be compacted when one cannot; its segments stay for the next time."""
    try:
        yield
    except (duckdb.Error, OSError) as error:
        logger.error("the hour %s cannot be compacted: %s", hour, error)


def _write_events(folder: Path, hour: str, paths: Sequence[Path], erased: dict[str, float]) -> int:
    with database(folder) as connection:
        _read(connection, "raw", paths, _EVENT_COLUMNS, "event")
        note_erasures(connection, erased)
        known = _files(folder, EVENTS, _hours(hour, -_REMEMBERED_HOURS, 1))
        without = _without(connection, "event_id", known)
        connection.execute(
            f"""CREATE TABLE new AS SELECT DISTINCT ON (event_id) * FROM raw
            WHERE event_id IS NOT NULL AND {NOT_ERASED} {without} ORDER BY event_id, received"""
        )
        columns = [
            "event_id", "type", "user_id", "session_id", "item_id", "request_id", "position", "value",
            "make_timestamptz((timestamp * 1e6)::BIGINT) AS time",
            "make_timestamptz((received * 1e6)::BIGINT) AS received",
        ]  # fmt: skip
        extra = Columns(folder, EVENTS).exploded(connection, "new", "properties", [*_EVENT_COLUMNS, "time"])
        query = f"SELECT {', '.join([*columns, *_named(extra)])} FROM new ORDER BY time, event_id"
        return _write(connection, query, folder, EVENTS, hour)


def _write_impressions(
    folder: Path, hour: str, paths: Sequence[Path], erased: dict[str, float], late_minutes: float
) -> int:
    with database(folder) as connection:
        _read(connection, "raw", paths, _IMPRESSION_COLUMNS, "impression")
        note_erasures(connection, erased)
        known = _files(folder, IMPRESSIONS, [hour])
        without = _without(connection, "request_id", known)
        connection.execute(
            f"""CREATE TABLE new AS SELECT DISTINCT ON (request_id) * FROM raw
            WHERE request_id IS NOT NULL AND {NOT_ERASED} {without} ORDER BY request_id, received"""
        )
        events = _files(folder, EVENTS, _hours(hour, 0, 1 + -(-int(late_minutes) // 60)))
        source = (
            f"SELECT request_id, item_id, type, value FROM {parquet(events)} "
            "WHERE request_id IN (SELECT request_id FROM new)"
            if events
            else "SELECT '' AS request_id, '' AS item_id, '' AS type, 0::DOUBLE AS value WHERE false"
        )
        connection.execute(f"CREATE TABLE answers AS {source}")
        types = _types_so_far(folder, connection, events)
        base = [
            "request_id", "user_id", "session_id", "scene", "experiments", "degraded", "fallback", "candidates",
            "fresh_propensity",
        ]  # fmt: skip
        item, context = quoted("the item"), quoted("the context")  # features may have any other name
        own = [
            *base, "the item", "the context", "item_id", "position", "score", "sources", "time", "model_name",
            "model_version",
        ]  # fmt: skip
        columns = Columns(folder, IMPRESSIONS)
        extra = columns.exploded(connection, "new", "features", own)
        of_shown = ", ".join([*base, f"context AS {context}", *_named(extra)])
        connection.execute(
            f"""CREATE TABLE shown AS SELECT {of_shown}, model.name AS model_name,
            model.version AS model_version, make_timestamptz((received * 1e6)::BIGINT) AS time,
            unnest(items) AS {item} FROM new"""
        )
        of_item = columns.exploded(connection, "shown", f"{item}.features", [*own, *extra])
        of_request = columns.exploded(connection, "shown", context, [*own, *extra, *of_item])
        taken = {*own, *extra, *of_item, *of_request}
        labels = _labels(types, taken)
        found = [
            f"count(*) FILTER (type = {text(kind)}) AS {quoted(name)}, "
            f"max(value) FILTER (type = {text(kind)}) AS {quoted(f'{name}_value')}"
            for kind, name in labels.items()
        ]
        connection.execute(
            f"CREATE TABLE outcomes AS SELECT {', '.join(['request_id', 'item_id', *found])} FROM answers "
            "GROUP BY request_id, item_id"
        )
        outcomes = [
            f"coalesce(outcomes.{quoted(name)}, 0) AS {quoted(name)}, outcomes.{quoted(f'{name}_value')}"
            for name in labels.values()
        ]
        shown = (
            f"shown.* EXCLUDE ({item}, {context}), {item}.item_id AS item_id, {item}.position AS position, "
            f"{item}.score AS score, {item}.sources AS sources"
        )
        query = f"""SELECT {", ".join([shown, *_named({**of_item, **of_request}), *outcomes])}
            FROM shown LEFT JOIN outcomes
            ON shown.request_id = outcomes.request_id AND shown.{item}.item_id = outcomes.item_id
            ORDER BY time, shown.request_id, position"""
        return _write(connection, query, folder, IMPRESSIONS, hour)


def _labels(types: Sequence[str], taken: Collection[str]) -> dict[str, str]:
    """Names of the columns for types of events, by type; those of values end in `_value`.

    Names differ by more than case, in DuckDB, and a feature keeps its name.
    """
    lowered = {name.lower() for name in taken}
    names: dict[str, str] = {}
    for kind in types:
        name = kind
        while lowered & {name.lower(), f"{name}_value".lower()}:
            name = f"event_{name}"
        lowered |= {name.lower(), f"{name}_value".lower()}
        names[kind] = name
    return names


def _named(expressions: dict[str, str]) -> list[str]:
    """Expressions by name as a list for SELECT."""
    return [f"{expression} AS {quoted(name)}" for name, expression in expressions.items()]


def _without(connection: duckdb.DuckDBPyConnection, key: str, files: Sequence[Path]) -> str:
    """A condition that leaves out what files have already; only keys at hand are kept in memory, not those of files."""
    if not files:
        return ""
    connection.execute(
        f"CREATE TABLE there AS SELECT DISTINCT {key} FROM {parquet(files)} WHERE {key} IN (SELECT {key} FROM raw)"
    )
    return f"AND {key} NOT IN (SELECT {key} FROM there)"


def _types_so_far(folder: Path, connection: duckdb.DuckDBPyConnection, events: Sequence[Path]) -> list[str]:
    """Types of events that some hour has had, as they came, the most frequent first: a column keeps its name.

    Where an hour has none of a type, that is 0, and no missing value.
    """
    file = folder / _TYPES
    known: list[str] = json.loads(file.read_text()) if file.exists() else []
    query = (
        f"SELECT type FROM {parquet(events)} WHERE item_id IS NOT NULL "  # no other can answer an item
        "GROUP BY type ORDER BY count(*) DESC, type"
    )
    rows = connection.execute(query).fetchall() if events else []
    types = [*known, *(kind for (kind,) in rows if kind not in known)]
    if types != known:
        aside = file.with_suffix(".tmp")
        aside.write_text(json.dumps(types))
        os.replace(aside, file)
    return types[:MOST_COLUMNS]


def _read(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    paths: Sequence[Path],
    columns: dict[str, str],
    kind: str,
) -> None:
    """Lines of one kind as a table; damaged lines are passed over."""
    types = ", ".join(f"{text(column)}: {text(type_)}" for column, type_ in columns.items())
    connection.execute(
        f"""CREATE TABLE {name} AS SELECT * FROM read_json([{", ".join(text(str(path)) for path in paths)}],
        format = 'newline_delimited', columns = {{{types}}}, ignore_errors = true) WHERE kind = {text(kind)}"""
    )


def _write(connection: duckdb.DuckDBPyConnection, query: str, folder: Path, kind: str, hour: str) -> int:
    row = connection.execute("SELECT count(*) FROM new").fetchone()
    if not row or not row[0]:
        return 0
    target = folder / PARQUET / kind / f"hour={hour}"
    target.mkdir(parents=True, exist_ok=True)
    name = f"part-{secrets.token_hex(8)}"
    aside = target / f"{name}.tmp"
    rows = copy(connection, query, aside)
    os.replace(aside, target / f"{name}.parquet")
    return rows


def _by_hour(folder: Path) -> dict[str, list[Path]]:
    hours: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        hours.setdefault(path.name[:13], []).append(path)
    return hours


def _parts(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Segments in groups that memory has room for, however much an hour has."""
    part: list[Path] = []
    size = 0
    for path in paths:
        size += path.stat().st_size
        if part and size > _PART_BYTES:
            yield part
            part, size = [], path.stat().st_size
        part.append(path)
    if part:
        yield part


def _files(folder: Path, kind: str, hours: Sequence[str]) -> list[Path]:
    return [
        path
        for hour in hours
        for path in sorted((folder / PARQUET / kind / f"hour={hour}").glob("*.parquet"))
    ]


def _hours(hour: str, first: int, last: int) -> list[str]:
    """Names of the hours from `first` to before `last`, counted from one."""
    start = datetime.strptime(hour, "%Y-%m-%dT%H").replace(tzinfo=UTC)
    return [(start + timedelta(hours=step)).strftime("%Y-%m-%dT%H") for step in range(first, last)]


def _is_over(hour: str, now: float, late_seconds: float = 0.0) -> bool:
    """Whether an hour is over; one that lies ahead was written while the clock was wrong, and is over as well."""
    start = datetime.strptime(hour, "%Y-%m-%dT%H").replace(tzinfo=UTC).timestamp()
    return now >= start + 3600 + late_seconds or now < start


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether no other process compacts this folder, for as long as the block runs."""
    with (folder / "compaction.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def main(arguments: Sequence[str] | None = None) -> int:
    """Compacts a folder once."""
    parser = argparse.ArgumentParser(prog="python -m serving.events.compaction", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of the event log")
    parser.add_argument("--late-minutes", type=float, default=LATE_MINUTES)
    parser.add_argument("--exposures", type=Path, help="the folder of the exposure log")
    given: Any = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    counts = compact(given.folder, None, given.late_minutes, given.exposures, _shared_store())
    logger.info("%s", counts)
    return 0


def _shared_store() -> Store | None:
    """The store, if machines share it; one of this machine has no more to tell than the log."""
    url = os.environ.get(STORE, "")
    if not url.startswith(("redis", "unix")):
        return None
    store: Store = importlib.import_module("serving.stores.redis").RedisStore(url)
    return store


if __name__ == "__main__":
    sys.exit(main())
