"""Training throughput of a cluster of processes on this machine against the loop in one process.

    python benchmarks/cluster_throughput.py            3 rounds over 400,000 rows: about 10 minutes
    python benchmarks/cluster_throughput.py --quick    1 round over 100,000 rows: to see that everything runs
    python benchmarks/cluster_throughput.py --latency 1 --rate 1gbit
                                                       with a delay of 1 ms and a bandwidth cap on the loopback of an
                                                       own network namespace; needs root and `tc` (iproute2)

Every variant trains the DeepFM of `train_throughput.py` on the same generated Criteo-like rows, each in a fresh
process, in turn in every round. Two epochs: compiling is in the first one, the second one is measured. All processes
share the cores of this machine, so more workers cannot be faster here; what is measured is what the cluster costs. On
a machine that others use, compare examples per CPU-second.

    local         one process, batches from shards
    1x1 ... NxM   N workers, M parameter servers
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import folder_last  # noqa: F401
import psutil
from criteo_like import generate
from loop_easyrec import pipeline

from easyrec.fitting import fit
from easyrec.preparation import prepare
from easyrec.training.callbacks import Callback, StepInfo

HERE = Path(__file__).resolve().parent
OPTIONS = [
    "training.shards.local=true",
    "training.shards.split_batches=8",
    "training.log_every=8",
    "training.checkpoints.keep=1",
]


class Clock(Callback):
    """Examples and CPU seconds, of all processes together, between the first and the last look in the second epoch."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None
        self.last = (0, 0.0)

    def on_step(self, info: StepInfo) -> None:
        """Looks at the clock."""
        if info.epoch == 1:
            own = psutil.Process()
            times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
            self.last = (info.examples, sum(time.user + time.system for time in times))
            self.first = self.first or self.last

    def per_cpu_second(self) -> float:
        """Examples for each second that a core worked."""
        examples, seconds = self.first or self.last
        return (self.last[0] - examples) / max(self.last[1] - seconds, 1e-9)


def train(data: Path, folder: Path, variant: str, seed: int) -> dict[str, Any]:
    """Trains one variant in this process; examples per second of the second epoch, AUC, and the workers' load."""
    folder.mkdir(parents=True)
    file = folder / "pipeline.yaml"
    file.write_text(pipeline(data, seed, epochs=2), encoding="utf-8")
    prepared = prepare(file, [*OPTIONS, f"training.shards.path={data / 'shards'}"], run=folder / "run")
    workers, _, servers = variant.partition("x")
    cluster = None if variant == "local" else f"local:workers={workers},ps={servers}"
    clock = Clock()
    fit(prepared, cluster=cluster, callbacks=[clock])
    lines = prepared.run.logged()
    second = [line for line in lines if line["event"] == "train" and line["epoch"] == 1]
    begin = next(line for line in lines if line["event"] == "checkpoint")
    last = second[-1]
    skipped = second[0]  # the pipelines of a new epoch fill
    seconds = last["time"] - skipped["time"]
    metrics = next(line for line in reversed(lines) if line["event"] == "evaluation")
    return {
        "rate": (last["examples"] - skipped["examples"]) / seconds,
        "per_cpu": clock.per_cpu_second(),
        "idle": statistics.mean(line["wait_share"] for line in second[1:]),
        "auc": metrics["label/auc"],
        "bytes_per_step": (last.get("bytes_moved", 0) - skipped.get("bytes_moved", 0))
        / max(1, last["step"] - skipped["step"]),
        "workers": last.get("workers", {}),
        "servers": last.get("servers", {}),
        "started": begin["time"],
    }


def measure(
    data: Path, variants: list[str], rounds: int, shape: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """Trains every variant in every round, each in a fresh process."""
    outcomes: dict[str, list[dict[str, Any]]] = {variant: [] for variant in variants}
    for number in range(rounds):
        for variant in variants if number % 2 == 0 else variants[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, str(HERE / "cluster_throughput.py"), "--one", variant]
                command += ["--data", str(data), "--folder", f"{folder}/one", "--seed", str(number)]
                done = subprocess.run([*shape, *command], capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    sys.exit(f"{variant} failed:\n{done.stderr[-3000:]}")
            outcome = json.loads(done.stdout.strip().splitlines()[-1])
            outcomes[variant].append(outcome)
            print(
                f"round {number + 1}  {variant:<7}{outcome['rate']:>9,.0f} examples/s  "
                f"{outcome['per_cpu']:>8,.0f} per CPU-s  AUC {outcome['auc']:.4f}  "
                f"idle {outcome['idle']:.0%}  {outcome['bytes_per_step'] / 2**20:.2f} MiB a step  "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    return outcomes


def report(outcomes: dict[str, list[dict[str, Any]]]) -> None:
    """Prints medians and ratios to the loop in one process."""
    print("\nmedians")
    rates = {name: statistics.median(one["rate"] for one in found) for name, found in outcomes.items()}
    for name, found in outcomes.items():
        per_cpu = statistics.median(one["per_cpu"] for one in found)
        ratio = ""
        if "local" in rates:
            alone = statistics.median(one["per_cpu"] for one in outcomes["local"])
            ratio = f"{rates[name] / rates['local']:.2f} of local, {per_cpu / alone:.2f} per CPU-second"
        auc = statistics.median(one["auc"] for one in found)
        print(f"{name:<7}{rates[name]:>9,.0f} examples/s   AUC {auc:.4f}   {ratio}")


@contextlib.contextmanager
def namespace(latency: float, rate: str):  # type: ignore[no-untyped-def]
    """A network namespace whose loopback is slow; gives what to write before a command to run it there."""
    if not latency and not rate:
        yield []
        return
    name = f"easyrec-{os.getpid()}"
    inside = ["ip", "netns", "exec", name]
    shaping = ["tc", "qdisc", "add", "dev", "lo", "root", "netem"]
    shaping += ["delay", f"{latency / 2}ms"] if latency else []
    shaping += ["rate", rate] if rate else []
    if shutil.which("tc") is None:
        sys.exit("`tc` is not installed (Debian: iproute2)")
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        subprocess.run([*inside, *shaping], check=True)
        yield inside
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def main() -> None:
    """Generates the data, measures, reports."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="1 round over 100,000 rows")
    parser.add_argument("--variants", nargs="+", default=["local", "1x1", "2x1", "4x2"])
    parser.add_argument("--latency", type=float, default=0.0, help="milliseconds a round trip, added")
    parser.add_argument("--rate", default="", help="bandwidth, such as 1gbit")
    parser.add_argument("--data", type=Path, help="folder the data are kept in; a temporary one unless given")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(train(options.data, options.folder, options.one, options.seed)), flush=True)
        return
    rows, rounds = (100_000, 1) if options.quick else (options.rows, options.rounds)
    print(f"{os.cpu_count()} CPUs, {rows:,} rows, batches of 4096, DeepFM 256-128-64 over 16-wide embeddings")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.data or Path(temporary)
        generate(folder, rows, min(50_000, rows))
        with namespace(options.latency, options.rate) as shape:
            report(measure(folder, options.variants, rounds, shape))


if __name__ == "__main__":
    main()
