"""Ibis on DuckDB with bounded memory: what does not fit spills to a folder."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pyarrow as pa
import pyarrow.parquet as pq

from easyrec.errors import DataError

MEMORY_LIMIT = "512MB"
_BATCH_ROWS = 1 << 18


@contextmanager
def connect(folder: Path | None = None) -> Iterator[Any]:
    """A connection whose temporary files lie in `folder`, or where the system keeps them, and are removed with it.

    Raises:
        DataError: DuckDB ran out of memory or disk.
    """
    with tempfile.TemporaryDirectory(prefix="spill-", dir=folder, ignore_cleanup_errors=True) as spill:
        yield from _connected(spill)


def batches(expression: Any, folder: Path | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of an Ibis expression, through a Parquet file on disk, so that memory stays bounded.

    Args:
        expression: A table expression.
        folder: Where the file lies until the rows have been read.
    """
    with tempfile.TemporaryDirectory(prefix="rows-", dir=folder) as place:
        path = Path(place) / "rows.parquet"
        expression.to_parquet(path)
        with pq.ParquetFile(path) as parquet:
            yield from parquet.iter_batches(_BATCH_ROWS)


def _connected(spill: str) -> Iterator[Any]:
    connection = ibis.duckdb.connect(":memory:", temp_directory=spill, memory_limit=MEMORY_LIMIT)
    try:
        with warnings.catch_warnings():
            # Ibis 12 calls methods that DuckDB has renamed; nobody who reads the warning here can change that.
            warnings.filterwarnings("ignore", r"fetch_arrow_table\(\) is deprecated", DeprecationWarning)
            yield connection
    except duckdb.OutOfMemoryException as error:
        raise DataError(f"DuckDB ran out of memory or of disk in {spill}: {error}") from error
    except duckdb.IOException as error:
        raise DataError(f"DuckDB cannot read or write in {spill}: {error}") from error
    finally:
        connection.disconnect()
