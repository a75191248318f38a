"""DuckDB for the log: a bounded database, texts and names in statements, files written durably."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import duckdb

MEMORY = "512MB"
"""What a compaction may use; beyond it, it goes on in the folder of the log."""


def database(folder: Path) -> duckdb.DuckDBPyConnection:
    """An empty database in memory, beside a service that needs most of the machine.

    Args:
        folder: The folder of the event log; what does not fit into memory is there meanwhile.
    """
    return duckdb.connect(
        config={"memory_limit": MEMORY, "threads": 1, "temp_directory": str(folder / "spill")}
    )


def copy(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> int:
    """Writes what a query finds to a file, durably; returns how many rows."""
    found = connection.execute(f"COPY ({query}) TO {text(str(path))} (FORMAT parquet, COMPRESSION zstd)")
    row = found.fetchone()
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return int(row[0]) if row else 0


def parquet(paths: Sequence[Path]) -> str:
    """Files as a table, a column that one of them lacks being missing there."""
    names = ", ".join(text(str(path)) for path in paths)
    return f"read_parquet([{names}], union_by_name = true, hive_partitioning = false)"


def text(value: str) -> str:
    """A text in a statement."""
    escaped = value.replace("'", "''")
    return f"'{escaped}'"


def quoted(name: str) -> str:
    """The name of a column in a statement."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
