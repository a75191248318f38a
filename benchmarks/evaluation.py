"""How fast predictions are judged: GAUC and NDCG against pandas group-by-apply, and a table of 100 million rows.

    python benchmarks/evaluation.py                      # both ratios, and resampling, on a million rows
    python benchmarks/evaluation.py --long 100000000     # also a long file: time, rows a second and peak memory

The other side is what a careful analyst writes: `groupby(...).apply` with a function of one user. It computes the AUC
from ranks with ties and the NDCG with NumPy, without scikit-learn's checks, which would make it about ten times slower.
Ratios are measured in one run, one side after the other: the fastest of three rounds each.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import folder_last  # noqa: F401
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from evaluation import TaskColumns, evaluate, gauc, ndcg, ranked_rows

K = 10
ROUNDS = 3


def table_of(rows: int, users: int, seed: int = 0) -> pd.DataFrame:
    """Predictions of users of unequal activity; scores have ties."""
    generator = np.random.default_rng(seed)
    score = np.round(generator.random(rows), 4)
    return pd.DataFrame(
        {
            "user": np.minimum(generator.exponential(users / 5, rows).astype(np.int64), users - 1),
            "label": (generator.random(rows) < 0.3 * score).astype(np.int64),
            "score": score,
        }
    )


def pandas_gauc(frame: pd.DataFrame) -> float:
    """GAUC by group-by-apply: the AUC of one user from ranks, averaged by rows."""

    def one(part: pd.DataFrame) -> pd.Series:
        label = part["label"].to_numpy()
        positives = label.sum()
        negatives = len(label) - positives
        if not positives or not negatives:
            return pd.Series({"auc": 0.0, "rows": 0})
        ranks = part["score"].rank().to_numpy()
        won = ranks[label == 1].sum() - positives * (positives + 1) / 2
        return pd.Series({"auc": won / (positives * negatives), "rows": len(label)})

    users = frame.groupby("user")[["label", "score"]].apply(one)
    return float((users["auc"] * users["rows"]).sum() / users["rows"].sum())


def pandas_ndcg(frame: pd.DataFrame) -> float:
    """NDCG@10 by group-by-apply, over users with a positive row."""
    discount = 1 / np.log2(np.arange(2, K + 2))

    def one(part: pd.DataFrame) -> float:
        label = part["label"].to_numpy()
        if not label.any():
            return np.nan
        top = label[np.argsort(-part["score"].to_numpy(), kind="stable")[:K]]
        best = np.sort(label)[::-1][:K]
        return float(top @ discount[: len(top)] / (best @ discount[: len(best)]))

    return float(frame.groupby("user")[["label", "score"]].apply(one).mean())


def best_of(function: Callable[[], float], rounds: int = ROUNDS) -> tuple[float, float]:
    """(seconds of the fastest round, result)."""
    seconds, result = [], 0.0
    for _ in range(rounds):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def compare_with_pandas(rows: int, users: int) -> None:
    """Print the ratios for GAUC and NDCG."""
    frame = table_of(rows, users)
    label, score, user = (frame[name] for name in ("label", "score", "user"))
    print(f"{rows:,} rows, {frame['user'].nunique():,} users")
    pairs: list[tuple[str, Callable[[], float], Callable[[], float], float]] = [
        ("gauc", lambda: gauc(label, score, user), lambda: pandas_gauc(frame), 1e-9),
        (
            "ndcg@10",
            lambda: ndcg(ranked_rows(label, score, user, length=K), K),
            lambda: pandas_ndcg(frame),
            5e-3,
        ),
    ]
    for name, ours, theirs, tolerance in pairs:
        seconds, value = best_of(ours)
        other_seconds, other = best_of(theirs)
        if not np.isclose(value, other, atol=tolerance):  # the order of tied scores is free
            raise SystemExit(f"{name}: {value} here, {other} by pandas")
        ratio = other_seconds / seconds
        print(f"{name:8} {seconds:8.3f} s, pandas group-by-apply {other_seconds:8.3f} s: {ratio:.0f} times")


def resample(rows: int, users: int) -> None:
    """Print how long 1,000 resamples of the usual metrics take."""
    frame = table_of(rows, users)
    for metrics in (["log_loss", "ece"], ["gauc"], ["auc"]):
        start = time.perf_counter()
        evaluate(frame, user="user", metrics=metrics, resamples=1000)
        print(f"1,000 resamples by user of {', '.join(metrics):14} {time.perf_counter() - start:6.1f} s")


def write_long(path: Path, rows: int, users: int) -> None:
    """Write a long predictions file piece by piece."""
    piece = 5_000_000
    schema = pa.schema([("user", pa.int64()), ("label", pa.int8()), ("score", pa.float32())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, piece):
            generator = np.random.default_rng(start)
            count = min(piece, rows - start)
            score = generator.random(count, dtype=np.float32)
            columns = {
                "user": generator.integers(0, users, count),
                "label": (generator.random(count, dtype=np.float32) < 0.3 * score).astype(np.int8),
                "score": score,
            }
            writer.write_table(pa.table(columns, schema=schema))


def judge_long(path: Path, metrics: list[str] | None) -> None:
    """Judge a long file and print time and peak memory of this process."""
    start = time.perf_counter()
    result = evaluate(
        path, tasks={"clicked": TaskColumns("binary", "label", "score")}, user="user", metrics=metrics
    )
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows = result["clicked"].n_rows
    print(result)
    print(
        f"{rows:,} rows: {seconds:.0f} s, {rows / seconds / 1e6:.2f} million rows a second, peak {peak:.2f} GiB"
    )


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument(
        "--long", type=int, default=0, help="rows of a long file, with a twentieth as many users"
    )
    parser.add_argument("--all-metrics", action="store_true", help="all default metrics of the long file")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    metrics = None if options.all_metrics else ["auc", "log_loss", "gauc"]
    if options.judge:
        judge_long(options.judge, metrics)
        return
    if options.rows:
        compare_with_pandas(options.rows, options.users)
        resample(options.rows, options.users)
    if options.long:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "long.parquet"
            write_long(path, options.long, options.long // 20)
            extra = ["--all-metrics"] if options.all_metrics else []
            # A process of its own, so that peak memory is that of judging alone.
            subprocess.run([sys.executable, str(Path(__file__)), "--judge", str(path), *extra], check=True)


if __name__ == "__main__":
    main()
