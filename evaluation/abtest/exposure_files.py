"""Exposure logs as tables: what their columns are, compaction to Parquet, and export for other tools."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.exposures import DROPPED, EXPOSURE, OPEN, SEALED

COLUMNS = {
    "kind": "VARCHAR",
    "timestamp": "DOUBLE",
    "request_id": "VARCHAR",
    "unit_type": "VARCHAR",
    "unit_id": "VARCHAR",
    "user_id": "VARCHAR",
    "session_id": "VARCHAR",
    "layer": "VARCHAR",
    "experiment": "VARCHAR",
    "phase": "INTEGER",
    "variant": "VARCHAR",
    "bucket": "INTEGER",
    "forced": "BOOLEAN",
    "could_differ": "BOOLEAN",
    "config_hash": "VARCHAR",
    "scene": "VARCHAR",
    "model": "VARCHAR",
    "model_version": "VARCHAR",
    "fallback": "BOOLEAN",
    "fallback_reason": "VARCHAR",
    "latency_ms": "DOUBLE",
    "propensity": "DOUBLE",
    "explored_item": "VARCHAR",
    "explored_position": "INTEGER",
    "attributes": "JSON",
    "teams": "JSON",
    "rows": "BIGINT",
}
"""Columns of an exposure log and their types; all but the first are null where they do not apply."""


def log_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a log: Parquet, sealed and growing segments; a segment that is Parquet already counts once.

    Args:
        path: A folder, or one file.

    Raises:
        ExperimentDataError: There are none.
    """
    place = Path(path)
    if place.is_file():
        return [place]
    parquet = sorted(place.glob("**/*.parquet")) if place.is_dir() else []
    done = {file.with_suffix("") for file in parquet}
    segments = [
        file
        for suffix in (SEALED, OPEN)
        for file in (sorted(place.glob(f"**/*{suffix}")) if place.is_dir() else [])
        if file.with_name(file.name.removesuffix(suffix)) not in done
    ]
    if not parquet and not segments:
        raise ExperimentDataError(
            f"There are no logs in {path}: expected .parquet files, or .jsonl segments of an exposure log."
        )
    return [*parquet, *segments]


def _json(files: Iterable[Path]) -> str:
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())
    return f"read_json([{_quoted(files)}], format='newline_delimited', columns={{{columns}}}, ignore_errors=true)"


def _quoted(files: Iterable[Path | str]) -> str:
    return ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)


IDS = ("unit_id", "user_id", "session_id", "request_id")


def exposures_sql(files: Sequence[Path]) -> str:
    """A query for all rows of a log, whatever its files are; columns that they lack are null.

    Ids are text, as the assignment writes them: what pandas has made 42.0 of, because others were missing, is 42.
    """
    # The time keeps the type it has in the files: seconds, or timestamps of a log from elsewhere.
    empty = ", ".join(
        f"NULL AS {name}" if name in IDS else f"NULL::{kind} AS {name}"
        for name, kind in COLUMNS.items()
        if name != "timestamp"
    )
    parts = [f"SELECT * FROM (SELECT {empty}) WHERE false"]
    parquet = [file for file in files if file.suffix == ".parquet"]
    segments = [file for file in files if file.suffix != ".parquet"]
    if parquet:
        parts.append(f"SELECT * FROM read_parquet([{_quoted(parquet)}], union_by_name=true)")
    if segments:
        parts.append(f"SELECT * FROM {_json(segments)}")
    ids = ", ".join(f"{_id_text(name)} AS {name}" for name in IDS)
    return f"SELECT * REPLACE ({ids}) FROM ({' UNION ALL BY NAME '.join(parts)})"


def _id_text(name: str) -> str:
    whole = f"TRY_CAST(TRY_CAST({name} AS DOUBLE) AS BIGINT)"
    fits = f"typeof({name}) IN ('DOUBLE', 'FLOAT') AND TRY_CAST({name} AS DOUBLE) = {whole}"
    return f"CASE WHEN {fits} THEN {whole}::VARCHAR ELSE {name}::VARCHAR END"


def compact(directory: str | os.PathLike[str]) -> list[Path]:
    """Turn sealed segments into Parquet beside them, each at once.

    A crash between leaves the segment beside its Parquet file; readers then take the latter, and the next call removes
    the former.

    Returns:
        The new files.

    Raises:
        ExperimentDataError: A segment cannot be read, or the disk is full.
    """
    made = []
    with duckdb.connect() as connection:
        for segment in sorted(Path(directory).glob(f"**/*{SEALED}")):
            target = segment.with_name(segment.name.removesuffix(SEALED) + ".parquet")
            if not target.exists():
                _copy(connection, f"SELECT * FROM {_json([segment])} ORDER BY timestamp", target)
                made.append(target)
            segment.unlink()
    return made


def export_growthbook(
    source: str | os.PathLike[str], target: str | os.PathLike[str], experiment: str | None = None
) -> int:
    """Write exposures in the shape that GrowthBook's assignment queries return.

    Args:
        source: An exposure log.
        target: A .parquet or .csv file: user_id, timestamp (UTC), experiment_id, variation_id.
        experiment: Only this one.

    Returns:
        Number of rows. Forced rows are left out.
    """
    only = f"AND experiment = '{experiment.replace(chr(39), chr(39) * 2)}'" if experiment else ""
    query = (
        "SELECT unit_id AS user_id, to_timestamp(timestamp) AT TIME ZONE 'UTC' AS timestamp, "
        "experiment AS experiment_id, variant AS variation_id "
        f"FROM ({exposures_sql(log_files(source))}) "
        f"WHERE coalesce(kind, '{EXPOSURE}') = '{EXPOSURE}' AND NOT coalesce(forced, false) {only} ORDER BY timestamp"
    )
    with duckdb.connect() as connection:
        return _copy(connection, query, Path(target))


def dropped_rows(source: str | os.PathLike[str]) -> dict[tuple[str, str], int]:
    """Rows that a log lost, by experiment and variant."""
    query = (
        f"SELECT experiment, variant, sum(rows)::BIGINT FROM ({exposures_sql(log_files(source))}) "
        f"WHERE kind = '{DROPPED}' GROUP BY ALL"
    )
    with duckdb.connect() as connection:
        return {
            (experiment or "", variant or ""): rows
            for experiment, variant, rows in connection.execute(query).fetchall()
        }


def _copy(connection: Any, query: str, target: Path) -> int:
    kinds = {".parquet": "PARQUET", ".csv": "CSV"}
    if target.suffix not in kinds:
        raise ExperimentDataError(f"Exposures are written to .parquet or .csv, got {target}.")
    partial = target.with_name(f".{target.name}.partial")
    try:
        done = connection.execute(f"COPY ({query}) TO '{_escaped(partial)}' (FORMAT {kinds[target.suffix]})")
        count = int(done.fetchone()[0])
        os.replace(partial, target)
    except (duckdb.Error, OSError) as error:
        raise ExperimentDataError(f"{target} cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def _escaped(path: Path) -> str:
    return str(path).replace("'", "''")
