"""How long the analysis of an experiment takes, and how much memory, by the number of exposure rows.

    python benchmarks/ab_analysis.py 1000000 5000000        # sizes; writes to a temporary folder
    python benchmarks/ab_analysis.py 50000000 --folder /big/disk

Units are a tenth of the rows, over 14 days; two events follow each exposure. Goals, a ratio with CUPED, a mean with a
cap, a proportion, and a quantile of latency. Each size runs in a process of its own, whose peak memory is printed;
one that takes more than `--memory` fails.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import folder_last  # noqa: F401

from evaluation.abtest.analysis.engines import duckdb_connection, size_in_bytes
from evaluation.abtest.analysis.run import Logs, analyze
from evaluation.abtest.analysis.tables import open_events, open_exposures
from evaluation.abtest.loading import parse_experiments

CONFIG = {
    "version": 1,
    "layers": {"ranking": {"owns": ["model"]}},
    "experiments": {
        "din": {
            "layer": "ranking",
            "status": "running",
            "percent": 100,
            "variants": {"control": {}, "din": {"overrides": {"model": "din"}}},
            "metrics": {
                "goals": ["ctr", "revenue"],
                "guardrails": {"latency_p95": 0.1},
                "secondary": ["conversion"],
            },
            "analysis": {"planned_n": 1000, "cuped_days": 7},
        }
    },
}
_START = 1_767_225_600


def write_logs(folder: Path, rows: int) -> None:
    """Synthetic logs, made by DuckDB."""
    units = rows // 10
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit='2GB'")
        connection.execute("SET preserve_insertion_order=false")
        connection.execute(
            f"""COPY (SELECT {_START} + random() * 14 * 86400 AS timestamp, 'r' || i AS request_id,
            'user_id' AS unit_type, 'u' || u AS unit_id, 'ranking' AS layer, 'din' AS experiment, 1 AS phase,
            CASE WHEN u % 2 = 0 THEN 'control' ELSE 'din' END AS variant, 20 + random() * 30 AS latency_ms
            FROM (SELECT i, hash(i) % {units} AS u FROM range({rows}) t(i)))
            TO '{folder}/exposures.parquet' (FORMAT PARQUET)"""
        )
        connection.execute(
            f"""COPY (SELECT {_START} - 7 * 86400 + random() * 21 * 86400 AS timestamp, 'r' || (i // 2) AS request_id,
            CAST('u' || (hash(i // 2) % {units}) AS VARCHAR) AS user_id,
            CASE WHEN i % 2 = 0 THEN 'impression' WHEN random() < 0.9 THEN 'click' ELSE 'purchase' END AS type,
            random() * 50 AS value FROM range({2 * rows}) t(i))
            TO '{folder}/events.parquet' (FORMAT PARQUET)"""
        )


def measure(folder: Path, memory: str) -> None:
    """Analyses the logs of a folder and prints time and peak memory."""
    start = time.perf_counter()
    steps = []
    with duckdb_connection(memory) as connection:
        logs = Logs(
            open_exposures(connection, folder / "exposures.parquet"),
            open_events(connection, folder / "events.parquet"),
        )
        result = analyze(
            parse_experiments(CONFIG),
            "din",
            logs,
            tell=lambda step: steps.append(f"{step} {time.perf_counter() - start:.0f}"),
        )
    used = resource.getrusage(resource.RUSAGE_SELF)
    processor, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9
    print(
        f"{result.counts['rows']:>11,} rows, {result.counts['units']:>9,} units: {time.perf_counter() - start:6.1f} s "
        f"(begun: {', '.join(steps)}), processor {processor:.0f} s, peak memory {peak:.2f} GB",
        flush=True,
    )
    limit = size_in_bytes(memory)
    if limit is not None and peak > limit / 1e9:
        raise SystemExit(f"{peak:.2f} GB is more than the {memory} that were allowed")


def main() -> None:
    """Measures each size in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=[1_000_000, 5_000_000])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.folder, options.memory)
        return
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    for size in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            write_logs(Path(folder), size)
            command = [sys.executable, str(Path(__file__)), "--measure", "--folder", folder]
            subprocess.run([*command, "--memory", options.memory], check=True)


if __name__ == "__main__":
    main()
