"""Training throughput of EasyRec against loops written by hand for this one model.

    python benchmarks/train_throughput.py             5 alternating rounds over 1,000,000 rows: about 10 minutes
    python benchmarks/train_throughput.py --quick     2 rounds over 100,000 rows: to see that everything runs
    python benchmarks/train_throughput.py --rows 10000000 --rounds 1 --only easyrec
                                                      peak memory when the data are ten times as large

Each round trains with every loop in turn, each in a fresh process, so that a slow minute of the machine meets all of
them. Medians and ratios are over rounds. The first step, in which models compile, is left out of the time.

    easyrec       from a YAML file and Parquet to weights, through the whole framework
    tensorflow    (a) TensorFlow by hand, over batches decoded beforehand: no reading, no encoding
    torch         (b) PyTorch by hand, from Parquet; needs `pip install torch`, else left out
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from criteo_like import Data, generate

HERE = Path(__file__).resolve().parent
LOOPS = ["easyrec", "tensorflow", "torch"]
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}

Outcomes = dict[str, list[dict[str, float]]]


def run(script: str, *arguments: str) -> dict[str, float]:
    """Runs a script in a fresh process; its last line of output is JSON."""
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **QUIET, "PYTHONPATH": path},
    )
    if result.returncode != 0:
        sys.exit(f"{script} failed:\n{result.stderr[-4000:]}")
    outcome: dict[str, float] = json.loads(result.stdout.strip().splitlines()[-1])
    return outcome


def measure(data: Data, loops: list[str], rounds: int) -> Outcomes:
    """Trains with every loop in every round."""
    outcomes: Outcomes = {loop: [] for loop in loops}
    for number in range(rounds):
        # Turned around every other round: what runs first after a pause may find a cooler machine.
        for loop in loops if number % 2 == 0 else loops[::-1]:
            outcome = run(f"loop_{loop}.py", "--data", str(data.train.parent), "--seed", str(number))
            outcomes[loop].append(outcome)
            print(
                f"round {number + 1}  {loop:<11}{rate(outcome):>9,.0f} examples/s  "
                f"{per_cpu(outcome):>8,.0f} per CPU-s  AUC {outcome['auc']:.4f}  "
                f"peak {outcome['peak_bytes'] / 2**30:.2f} GiB  load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    return outcomes


def rate(outcome: dict[str, float]) -> float:
    """Examples per second."""
    return outcome["examples"] / outcome["seconds"]


def per_cpu(outcome: dict[str, float]) -> float:
    """Examples per second of CPU time."""
    return outcome["examples"] / outcome["cpu_seconds"]


def report(outcomes: Outcomes, data: Data) -> None:
    """Prints medians, ratios of medians, and the share of the limit that matrix multiplication sets."""
    print("\nmedians")
    print(f"{'':<13}{'examples/s':>12}{'per CPU-s':>12}{'AUC':>9}{'peak GiB':>10}{'input wait':>12}")
    for loop, rounds in outcomes.items():
        waits = [outcome["wait_share"] for outcome in rounds if outcome["wait_share"] is not None]
        print(
            f"{loop:<13}{median(rounds, rate):>12,.0f}{median(rounds, per_cpu):>12,.0f}"
            f"{statistics.median(outcome['auc'] for outcome in rounds):>9.4f}"
            f"{max(outcome['peak_bytes'] for outcome in rounds) / 2**30:>10.2f}"
            + (f"{statistics.median(waits):>12.1%}" if waits else "")
        )
    print(f"the best possible AUC of these data is {data.bayes_auc:.4f}")
    if "easyrec" not in outcomes:
        return
    own = outcomes["easyrec"]
    for loop, aim in (("tensorflow", 0.95), ("torch", 1.0)):
        if loop in outcomes:
            other = outcomes[loop]
            gap = statistics.median(a["auc"] - b["auc"] for a, b in zip(own, other, strict=True))
            print(
                f"easyrec / {loop:<11} {median(own, rate) / median(other, rate):.2f} in examples/s (aim {aim:.2f}), "
                f"{median(own, per_cpu) / median(other, per_cpu):.2f} per CPU-second, AUC {gap:+.4f}"
            )
    limit = run("gemm_limit.py")
    rates = ", ".join(f"{name} {value / 1e9:.0f} GFLOP/s" for name, value in limit["rates"].items())  # type: ignore[attr-defined]
    print(f"matrix multiplication here: {rates}")
    print(
        f"it alone would allow {limit['limit']:,.0f} examples/s ({limit['flops_per_example'] / 1e3:.0f} kFLOP each); "
        f"easyrec reaches {median(own, rate) / limit['limit']:.0%}"
    )


def median(rounds: list[dict[str, float]], value) -> float:  # type: ignore[no-untyped-def]
    """Median of a value over rounds."""
    return statistics.median(value(outcome) for outcome in rounds)


def main() -> None:
    """Generates the data, measures, reports."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="2 rounds over 100,000 rows")
    parser.add_argument("--only", nargs="+", choices=LOOPS, default=LOOPS)
    parser.add_argument("--data", type=Path, help="folder the data are kept in; a temporary one unless given")
    options = parser.parse_args()
    rows, rounds = (100_000, 2) if options.quick else (options.rows, options.rounds)
    loops = [loop for loop in LOOPS if loop in options.only]
    if "torch" in loops and importlib.util.find_spec("torch") is None:
        loops.remove("torch")
        print("torch is not installed; (b) is left out (`pip install torch` to include it)")
    print(f"{os.cpu_count()} CPUs, {rows:,} rows, batches of 4096, DeepFM 256-128-64 over 16-wide embeddings")
    with tempfile.TemporaryDirectory() as temporary:
        data = generate(options.data or Path(temporary), rows, min(100_000, rows))
        report(measure(data, loops, rounds), data)


if __name__ == "__main__":
    main()
