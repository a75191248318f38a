"""Where an analysis is computed: DuckDB in this process within a bound of memory, or a Spark cluster."""

import math
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pyarrow as pa

from evaluation.abtest.errors import ExperimentDataError
from evaluation.errors import did_you_mean

ENGINES = ("duckdb", "spark")


@contextmanager
def connected(engine: str, memory: str = "4GB") -> Iterator[Any]:
    """A connection to an engine by its name.

    Args:
        engine: "duckdb", or "spark" for the session that Spark's own configuration describes.
        memory: What this process may take with DuckDB; Spark has settings of its own.

    Yields:
        An Ibis connection.

    Raises:
        ExperimentDataError: There is no such engine, or it cannot start.
    """
    if engine not in ENGINES:
        raise ExperimentDataError(f"There is no engine {engine!r}; {did_you_mean(engine, ENGINES)}")
    with duckdb_connection(memory) if engine == "duckdb" else spark_connection() as connection:
        yield connection


@contextmanager
def spark_connection() -> Iterator[Any]:
    """An Ibis connection to Spark: the running session, or a new one as `spark-defaults.conf` and variables say.

    Yields:
        The connection. The session goes on if somebody else began it.

    Raises:
        ExperimentDataError: PySpark or Java is missing, or Spark refuses what is asked for.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ExperimentDataError(
            f"The engine spark needs PySpark: pip install 'easyrec[spark]', and Java 17 ({short(error)})."
        ) from error
    running = SparkSession.getActiveSession()
    try:
        session = running or SparkSession.builder.appName("easyrec ab").getOrCreate()
    except (PySparkException, RuntimeError) as error:
        raise ExperimentDataError(f"Spark does not start; is Java 17 there? {short(error)}") from error
    # Times are seconds since 1970 in every table, whatever the zone of the cluster is.
    session.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        with warnings.catch_warnings():
            # PySpark 4.0 calls pandas in ways that pandas 3 has deprecated; nobody who reads this can change that.
            for category in (DeprecationWarning, FutureWarning):
                warnings.filterwarnings("ignore", category=category, module=r"pyspark\.|ibis\.")
            yield ibis.pyspark.connect(session)
    except PySparkException as error:
        raise ExperimentDataError(f"Spark: {short(error)}") from error
    finally:
        if running is None:
            session.stop()


@contextmanager
def duckdb_connection(memory: str = "4GB", threads: int | None = None) -> Iterator[Any]:
    """An Ibis connection to a DuckDB that keeps what does not fit in memory in a temporary folder.

    Args:
        memory: What this process may take in all, such as "2GB"; DuckDB gets what Python and its libraries leave.
        threads: How many; all cores, as far as there is memory for them, unless given.

    Yields:
        The connection; it and its files are gone afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="easyrec-ab-") as folder:
        limit, affordable = _shares(memory)
        limits = {
            "memory_limit": limit,
            "temp_directory": folder,
            "preserve_insertion_order": False,
            "threads": threads or affordable,
        }
        try:
            connection = ibis.duckdb.connect(Path(folder) / "work.duckdb", **limits)
        except duckdb.Error as error:
            raise ExperimentDataError(
                f"DuckDB cannot start with memory {memory!r}: {short(error)}"
            ) from error
        try:
            with warnings.catch_warnings():
                # Ibis 12 calls a method that DuckDB has renamed; nobody who reads the warning here can change that.
                warnings.filterwarnings("ignore", r"fetch_arrow_table\(\) is deprecated", DeprecationWarning)
                yield connection
        except duckdb.OutOfMemoryException as error:
            raise ExperimentDataError(
                f"The analysis needs more than {memory} of memory; give more with --memory. ({short(error)})"
            ) from error
        finally:
            connection.disconnect()


_SIZE = re.compile(r"\s*([\d.]+)\s*([KMGT]?)(i?)B\s*", re.IGNORECASE)
_LEAST = 200e6
_OF_PYTHON = 300e6
# What DuckDB takes beside what its limit counts grows with it.
_MANAGED = 0.9
_OF_A_THREAD = 250e6


def size_in_bytes(size: str) -> float | None:
    """A size such as "4GB" or "476.8 MiB"; None if it is none."""
    found = _SIZE.fullmatch(size)
    if found is None or found[1].count(".") > 1 or found[1] == ".":
        return None
    base, power = (1024.0 if found[3] else 1000.0), " KMGT".index(found[2].upper() or " ")
    return float(found[1]) * math.pow(base, power)


def _shares(memory: str) -> tuple[str, int]:
    """DuckDB's part of the memory, and for how many threads it is enough."""
    whole, cores = size_in_bytes(memory), os.cpu_count() or 1
    if whole is None or whole < _LEAST:
        raise ExperimentDataError(
            f"The analysis cannot start with memory {memory!r}: a size is written like 4GB, and at least 200MB are "
            "needed."
        )
    own = max(_MANAGED * whole - _OF_PYTHON, whole / 2)
    return f"{int(own / 1e6)}MB", max(1, min(cores, int(own / _OF_A_THREAD)))


def memory_limit(table: Any) -> float | None:
    """Bytes that the database of a table may use; None where it looks after that itself."""
    backend = table.get_backend()
    if backend.name != "duckdb":
        return None
    [[size]] = backend.raw_sql("SELECT current_setting('memory_limit')").fetchall()
    return size_in_bytes(size)


def kept(expression: Any) -> Any:
    """The rows of a table, computed once: in the file of DuckDB's temporary folder, compressed; else Ibis's cache."""
    backend = expression.get_backend()
    if backend.name != "duckdb":
        return expression.cache()
    return backend.create_table(ibis.util.gen_name("kept"), obj=expression)


def texts(backend: Any, name: str, values: Sequence[str]) -> Any:
    """A table of one column of texts, in the engine of a backend."""
    if backend.name == "duckdb":
        return ibis.memtable(pa.table({name: pa.array(values, pa.string())}))
    view = ibis.util.gen_name("given")
    rows = backend._session.createDataFrame([(one,) for one in values], f"{name} string")
    rows.createOrReplaceTempView(view)
    return backend.table(view)


def short(error: Exception) -> str:
    """The message of an error, on one line."""
    return re.sub(r"\s+", " ", str(error))[:300]
