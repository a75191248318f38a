"""Logs as tables of Spark: Parquet of any file system that Spark knows, and files of this machine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ibis

from evaluation.abtest.analysis.service_log import is_service_log
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.exposure_files import COLUMNS, log_files

_KINDS = {"VARCHAR": "STRING", "JSON": "STRING", "DOUBLE": "DOUBLE", "INTEGER": "INT", "BIGINT": "BIGINT"}
_SCHEMA = ", ".join(f"`{name}` {_KINDS.get(kind, kind)}" for name, kind in COLUMNS.items())


def spark_exposures(connection: Any, path: str) -> Any:
    """An exposure log as a table of Spark.

    Args:
        connection: Of `spark_connection`.
        path: A folder or file of this machine, or the address of Parquet files elsewhere, such as hdfs://...

    Raises:
        ExperimentDataError: There is no log.
    """
    reader = connection._session.read
    if "://" in path:
        return _view(connection, reader.option("recursiveFileLookup", "true").parquet(path))
    files = log_files(path)
    parquet = [str(file) for file in files if file.suffix == ".parquet"]
    segments = [str(file) for file in files if file.suffix != ".parquet"]
    parts = [reader.option("mergeSchema", "true").parquet(*parquet)] if parquet else []
    if segments:
        # The last line of a segment that grows may be half a one.
        parts.append(reader.schema(_SCHEMA).option("mode", "DROPMALFORMED").json(segments))
    return _view(connection, _together(parts))


def spark_events(connection: Any, path: str) -> Any:
    """Events as a table of Spark; arguments as in `spark_exposures`, files also CSV or JSON lines.

    Raises:
        ExperimentDataError: There are no events, or it is the log of a service, which DuckDB reads.
    """
    reader, place = connection._session.read, Path(path)
    if "://" in path:
        return _view(connection, reader.option("recursiveFileLookup", "true").parquet(path))
    if is_service_log(place):
        raise ExperimentDataError(
            f"{path} is the event log of a service, which the engine duckdb reads; give Spark Parquet files of it."
        )
    readers: dict[str, Callable[[list[str]], Any]] = {
        ".parquet": lambda files: reader.option("mergeSchema", "true").parquet(*files),
        ".csv": lambda files: reader.csv(files, header=True, inferSchema=True),
        ".jsonl": lambda files: reader.json(files),
    }
    for suffix, read in readers.items():
        found = [place] if place.is_file() and place.suffix == suffix else sorted(place.glob(f"**/*{suffix}"))
        if found:
            return _view(connection, read([str(file) for file in found]))
    raise ExperimentDataError(f"There are no events in {place}: expected .parquet, .csv or .jsonl files.")


def _together(parts: Sequence[Any]) -> Any:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part, allowMissingColumns=True)
    return whole


def _view(connection: Any, frame: Any) -> Any:
    name = ibis.util.gen_name("log")
    frame.createOrReplaceTempView(name)
    return connection.table(name)
