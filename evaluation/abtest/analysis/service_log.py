"""The event log of the service as one table: events, and each item that was shown as an event `impression`.

    open/, closed/, waiting/<hour>-....jsonl              lines of the last hours
    parquet/events/hour=<hour>/, parquet/impressions/hour=<hour>/    everything before

What is in Parquet already may still lie in a segment; it counts once.
"""

from collections.abc import Sequence
from pathlib import Path

_HOUR = len("2026-11-30T12")
_SEGMENTS = ("open", "closed", "waiting")
_EVENT = ("event_id", "type", "user_id", "session_id", "item_id", "request_id", "position", "value")
_LINE = {
    **dict.fromkeys((*_EVENT[:6], "kind"), "VARCHAR"),
    "position": "BIGINT",
    "value": "DOUBLE",
    "timestamp": "DOUBLE",
    "received": "DOUBLE",
    "items": "STRUCT(item_id VARCHAR, position BIGINT)[]",
}


def is_service_log(folder: Path) -> bool:
    """Whether a folder is the event log of a service."""
    return any((folder / name).is_dir() for name in _SEGMENTS) or (folder / "parquet" / "events").is_dir()


def service_log_sql(folder: Path) -> str:
    """A query for all events and impressions of a log; its columns are those of events, and of their properties."""
    segments = sorted(path for name in _SEGMENTS for path in (folder / name).glob("*.jsonl"))
    hours = {path.name[:_HOUR] for path in segments}
    events, impressions = (_parquet_files(folder, kind) for kind in ("events", "impressions"))
    empty = ", ".join(f"NULL::{_LINE[name]} AS {name}" for name in (*_EVENT, "timestamp"))
    parts = [f"SELECT * FROM (SELECT {empty}) WHERE false"]
    if events:
        parts.append(f"SELECT * EXCLUDE (time, received), epoch(time) AS timestamp FROM {_parquet(events)}")
    if impressions:
        parts.append(
            "SELECT 'impression' AS type, user_id, session_id, item_id, request_id, position, "
            f"epoch(time) AS timestamp FROM {_parquet(impressions)}"
        )
    if segments:
        columns = ", ".join(f"{name}: '{kind}'" for name, kind in _LINE.items())
        names = _names(segments)
        lines = f"read_json([{names}], format='newline_delimited', columns={{{columns}}}, ignore_errors=true)"
        parts.append(
            f"SELECT DISTINCT ON (event_id) {', '.join(_EVENT)}, least(timestamp, received) AS timestamp "
            f"FROM {lines} WHERE kind = 'event'{_unknown('event_id', events, hours)}"
        )
        parts.append(
            "SELECT 'impression' AS type, user_id, session_id, item.item_id AS item_id, request_id, "
            "item.position AS position, timestamp FROM (SELECT DISTINCT ON (request_id) user_id, session_id, "
            f"request_id, received AS timestamp, items FROM {lines} WHERE kind = 'impression'"
            f"{_unknown('request_id', impressions, hours)}) AS shown, unnest(shown.items) AS each(item)"
        )
    return " UNION ALL BY NAME ".join(parts)


def _parquet_files(folder: Path, kind: str) -> list[Path]:
    return sorted((folder / "parquet" / kind).glob("hour=*/*.parquet"))


def _unknown(key: str, files: Sequence[Path], hours: set[str]) -> str:
    """A condition that leaves out what Parquet files of the segments' own hours hold."""
    near = [path for path in files if path.parent.name.removeprefix("hour=") in hours]
    return f" AND {key} NOT IN (SELECT {key} FROM {_parquet(near)})" if near else ""


def _parquet(files: Sequence[Path]) -> str:
    return f"read_parquet([{_names(files)}], union_by_name=true, hive_partitioning=false)"


def _names(files: Sequence[Path]) -> str:
    return ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
