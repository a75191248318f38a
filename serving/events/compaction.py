"""Turns closed segments of the event log into Parquet, hour by hour, in a process of its own.

    parquet/events/hour=2026-11-30T12/part-....parquet         one row an event, each event once
    parquet/impressions/hour=2026-11-30T12/part-....parquet    one row an item shown, with what came of it

An hour's events are written when the hour is over; its impressions some time later, when the events that answer them
have come. Properties of events, and the features that were served, become columns of their own; each type of event
becomes a column of the impressions, 1 where the item got one. So both can be trained on as they are.

Events of users who were erased since are left out, and files that hold some are written anew; so are those of the log
of exposures. Whatever breaks off is done again: files are written aside and renamed, and what is in place already is
passed over.

    python -m serving.events.compaction FOLDER
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from evaluation.abtest.exposure_erasure import erase_users
from evaluation.abtest.pseudonyms import Pseudonyms
from evaluation.errors import EvaluationError
from serving.events.log import CLOSED, OPEN, hour_name, read_segment

logger = logging.getLogger(__name__)

WAITING, PARQUET, EVENTS, IMPRESSIONS = "waiting", "parquet", "events", "impressions"
LATE_MINUTES = 60.0
_REMEMBERED_HOURS = 48
_ERASED = "erased.json"
_MOST_COLUMNS = 500

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
    "items": "STRUCT(item_id VARCHAR, score DOUBLE, position BIGINT, sources VARCHAR[])[]", "features": "JSON",
}  # fmt: skip


def compact(
    folder: Path,
    now: float | None = None,
    late_minutes: float = LATE_MINUTES,
    exposures: Path | None = None,
) -> dict[str, int]:
    """Writes what can be written by now.

    Args:
        folder: The folder of the event log.
        now: Seconds since 1970; the time unless given.
        late_minutes: How long after its hour an impression waits for events.
        exposures: The folder of the exposure log, from which erased users go as well; it may be missing.

    Returns:
        Rows of `events` and `impressions` written, and files `rewritten` because users were erased; empty when
        another process is at it.
    """
    now = time.time() if now is None else now
    with _alone(folder) as alone:
        if not alone:
            return {}
        (folder / WAITING).mkdir(exist_ok=True)
        erased = _erasures(folder)
        counts = {"events": 0, "impressions": 0, "rewritten": _rewrite(folder, erased)}
        if exposures is not None:
            counts["rewritten"] += _rewrite_exposures(exposures, erased)
        for hour, paths in _by_hour(folder / CLOSED).items():
            if _is_over(hour, now) and not list((folder / OPEN).glob(f"{hour}-*.jsonl")):
                with _one_hour(hour):
                    counts["events"] += _write_events(folder, hour, paths, erased)
                    for path in paths:
                        os.replace(path, folder / WAITING / path.name)
        for hour, paths in _by_hour(folder / WAITING).items():
            if _is_over(hour, now, late_minutes * 60):
                with _one_hour(hour):
                    counts["impressions"] += _write_impressions(folder, hour, paths, erased, late_minutes)
                    for path in paths:
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
    with duckdb.connect() as connection:
        _read(connection, "raw", paths, _EVENT_COLUMNS, "event")
        _note_erasures(connection, erased)
        known = _files(folder, EVENTS, _hours(hour, -_REMEMBERED_HOURS, 1))
        without = "" if not known else f"AND event_id NOT IN (SELECT event_id FROM {_parquet(known)})"
        connection.execute(
            f"""CREATE TABLE new AS SELECT DISTINCT ON (event_id) * FROM raw
            WHERE event_id IS NOT NULL AND {_NOT_ERASED} {without} ORDER BY event_id, received"""
        )
        columns = [
            "event_id", "type", "user_id", "session_id", "item_id", "request_id", "position", "value",
            "make_timestamptz((timestamp * 1e6)::BIGINT) AS time",
            "make_timestamptz((received * 1e6)::BIGINT) AS received",
        ]  # fmt: skip
        extra = _exploded(connection, "new", "properties", [*_EVENT_COLUMNS, "time"])
        query = f"SELECT {', '.join([*columns, *extra])} FROM new ORDER BY time, event_id"
        return _write(connection, query, folder, EVENTS, hour)


def _write_impressions(
    folder: Path, hour: str, paths: Sequence[Path], erased: dict[str, float], late_minutes: float
) -> int:
    with duckdb.connect() as connection:
        _read(connection, "raw", paths, _IMPRESSION_COLUMNS, "impression")
        _note_erasures(connection, erased)
        known = _files(folder, IMPRESSIONS, [hour])
        without = "" if not known else f"AND request_id NOT IN (SELECT request_id FROM {_parquet(known)})"
        connection.execute(
            f"""CREATE TABLE new AS SELECT DISTINCT ON (request_id) * FROM raw
            WHERE request_id IS NOT NULL AND {_NOT_ERASED} {without} ORDER BY request_id, received"""
        )
        events = _files(folder, EVENTS, _hours(hour, 0, 1 + -(-int(late_minutes) // 60)))
        source = (
            f"SELECT request_id, item_id, type, value FROM {_parquet(events)} WHERE request_id IS NOT NULL"
            if events
            else "SELECT ''::VARCHAR request_id, ''::VARCHAR item_id, ''::VARCHAR AS type, 0.0 AS value WHERE false"
        )
        connection.execute(f"CREATE TABLE answers AS {source}")
        found = connection.execute("SELECT DISTINCT type FROM answers ORDER BY type").fetchall()
        base = [
            "request_id", "user_id", "session_id", "scene", "experiments", "degraded", "fallback", "candidates",
            "fresh_propensity",
        ]  # fmt: skip
        own = [*base, "item_id", "position", "score", "sources", "time", "model_name", "model_version"]
        extra = _exploded(connection, "new", "features", own)
        taken = {*own, *(part.rsplit(" AS ", 1)[1].strip('"') for part in extra)}
        labels = []
        for (kind,) in found:
            name = kind if kind not in taken and f"{kind}_value" not in taken else f"event_{kind}"
            labels.append(f"count(*) FILTER (type = {_text(kind)}) AS {_quoted(name)}")
            labels.append(f"max(value) FILTER (type = {_text(kind)}) AS {_quoted(name + '_value')}")
        connection.execute(
            f"CREATE TABLE outcomes AS SELECT {', '.join(['request_id', 'item_id', *labels])} FROM answers "
            "GROUP BY request_id, item_id"
        )
        outcomes = [
            f"coalesce(outcomes.{_quoted(name)}, 0) AS {_quoted(name)}"
            if not name.endswith("_value")
            else f"outcomes.{_quoted(name)}"
            for name in (label.rsplit(" AS ", 1)[1].strip('"') for label in labels)
        ]
        connection.execute(
            f"""CREATE TABLE shown AS SELECT {", ".join([*base, *extra])}, model.name AS model_name,
            model.version AS model_version, make_timestamptz((received * 1e6)::BIGINT) AS time,
            unnest(items) AS item FROM new"""
        )
        columns = (
            "shown.* EXCLUDE item, item.item_id AS item_id, item.position AS position, item.score AS score"
        )
        query = f"""SELECT {", ".join([columns, "item.sources AS sources", *outcomes])}
            FROM shown LEFT JOIN outcomes
            ON shown.request_id = outcomes.request_id AND shown.item.item_id = outcomes.item_id
            ORDER BY time, shown.request_id, position"""
        return _write(connection, query, folder, IMPRESSIONS, hour)


def _rewrite(folder: Path, erased: dict[str, float]) -> int:
    """Writes files anew that hold users who were erased since; returns how many."""
    if not erased:
        return 0
    rewritten = 0
    for path in sorted((folder / PARQUET).glob("*/*/*.parquet")):
        moment = "received" if path.parts[-3] == EVENTS else "time"
        with duckdb.connect() as connection:
            _note_erasures(connection, erased)
            kept = _NOT_ERASED.replace("received", f"epoch({moment})")
            gone = connection.execute(
                f"SELECT count(*) FROM {_parquet([path])} AS raw WHERE NOT ({kept})"
            ).fetchone()
            if not gone or not gone[0]:
                continue
            rewritten += 1
            aside = path.with_suffix(".tmp")
            _copy(connection, f"SELECT * FROM {_parquet([path])} AS raw WHERE {kept}", aside)
            os.replace(aside, path)
    return rewritten


def _rewrite_exposures(folder: Path, erased: dict[str, float]) -> int:
    """The same for exposures; what cannot be done now is tried again the next time."""
    try:
        return erase_users(folder, erased, Pseudonyms.from_environment())
    except (EvaluationError, OSError) as error:
        logger.error("%s", error)
        return 0


_NOT_ERASED = (
    "NOT EXISTS (SELECT 1 FROM erased WHERE erased.digest = sha256(raw.user_id) AND raw.received <= erased.moment)"
).replace("raw.received", "received")


def _erasures(folder: Path) -> dict[str, float]:
    """When users were erased, by digest of their keys; those in segments are added to those known.

    They are kept as long as a segment may hold older events, as digests, so that no list of erased users remains.
    """
    file = folder / _ERASED
    known: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    segments = [*(folder / CLOSED).glob("*.jsonl"), *(folder / WAITING).glob("*.jsonl")]
    for path in segments:
        for record, _ in read_segment(path):
            if record.get("kind") == "erase":
                digest = hashlib.sha256(str(record["user_id"]).encode()).hexdigest()
                known[digest] = max(known.get(digest, 0.0), float(record["received"]))
    first = min((path.name[:13] for path in segments), default="9999")
    kept = {
        digest: at for digest, at in known.items() if hour_name(at) >= first or at > time.time() - 172_800
    }
    aside = file.with_suffix(".tmp")
    aside.write_text(json.dumps(kept))
    os.replace(aside, file)
    return known


def _note_erasures(connection: duckdb.DuckDBPyConnection, erased: dict[str, float]) -> None:
    connection.execute("CREATE TABLE erased (digest VARCHAR, moment DOUBLE)")
    if erased:
        connection.executemany("INSERT INTO erased VALUES (?, ?)", [list(pair) for pair in erased.items()])


def _read(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    paths: Sequence[Path],
    columns: dict[str, str],
    kind: str,
) -> None:
    """Lines of one kind as a table; damaged lines are passed over."""
    types = ", ".join(f"{_text(column)}: {_text(type_)}" for column, type_ in columns.items())
    connection.execute(
        f"""CREATE TABLE {name} AS SELECT * FROM read_json([{", ".join(_text(str(path)) for path in paths)}],
        format = 'newline_delimited', columns = {{{types}}}, ignore_errors = true) WHERE kind = {_text(kind)}"""
    )


def _exploded(
    connection: duckdb.DuckDBPyConnection, table: str, column: str, taken: Sequence[str]
) -> list[str]:
    """Expressions that make each key of JSON objects a column; keys whose name is taken are left out."""
    row = connection.execute(f"SELECT json_group_structure({column}) FROM {table}").fetchone()
    structure = json.loads(row[0]) if row and row[0] else None
    if not isinstance(structure, dict):
        return []
    if len(structure) > _MOST_COLUMNS:  # keys that are values, such as ids
        return [f"CAST({column} AS VARCHAR) AS {_quoted(column)}"]
    expressions = []
    lowered = {name.lower() for name in taken}
    for name, kind in structure.items():
        if name.lower() in lowered or not name:
            continue
        lowered.add(name.lower())  # names differ by more than case, in DuckDB
        pointer = "/" + name.replace("~", "~0").replace("/", "~1")
        value = f"json_extract({column}, {_text(pointer)})"
        kind = "BIGINT" if kind == "UBIGINT" else kind
        plain = isinstance(kind, str) and kind not in ("JSON", "NULL")
        typed = (
            f"json_transform({value}, {_text(json.dumps(kind))})"
            if plain or isinstance(kind, list)
            else value
        )
        if not plain and not isinstance(kind, list):
            typed = f"CAST({value} AS VARCHAR)"
        expressions.append(f"{typed} AS {_quoted(name)}")
    return expressions


def _write(connection: duckdb.DuckDBPyConnection, query: str, folder: Path, kind: str, hour: str) -> int:
    row = connection.execute("SELECT count(*) FROM new").fetchone()
    if not row or not row[0]:
        return 0
    target = folder / PARQUET / kind / f"hour={hour}"
    target.mkdir(parents=True, exist_ok=True)
    name = f"part-{secrets.token_hex(8)}"
    aside = target / f"{name}.tmp"
    rows = _copy(connection, query, aside)
    os.replace(aside, target / f"{name}.parquet")
    return rows


def _copy(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> int:
    found = connection.execute(f"COPY ({query}) TO {_text(str(path))} (FORMAT parquet, COMPRESSION zstd)")
    row = found.fetchone()
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return int(row[0]) if row else 0


def _by_hour(folder: Path) -> dict[str, list[Path]]:
    hours: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        hours.setdefault(path.name[:13], []).append(path)
    return hours


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


def _parquet(paths: Sequence[Path]) -> str:
    names = ", ".join(_text(str(path)) for path in paths)
    return f"read_parquet([{names}], union_by_name = true, hive_partitioning = false)"


def _text(value: str) -> str:
    escaped = value.replace("'", "''")
    return f"'{escaped}'"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


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
    logger.info("%s", compact(given.folder, late_minutes=given.late_minutes, exposures=given.exposures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
