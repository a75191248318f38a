"""Training throughput of a cluster of processes on this machine against the loop in one process.

    python benchmarks/cluster_throughput.py            3 rounds over 1,000,000 rows: about 12 minutes
    python benchmarks/cluster_throughput.py --quick    1 round over 100,000 rows: to see that everything runs
    python benchmarks/cluster_throughput.py --latency 1 --rate 1gbit
                                                       each cluster a second time, over a network with a delay of 1 ms
                                                       and a bandwidth (benchmarks/slow_network.py); needs root

Every variant trains the DeepFM of `train_throughput.py` on the same generated Criteo-like rows, each in a fresh
process, in turn in every round. Two epochs: compiling is in the first one, the second one is measured. All processes
share the cores of this machine, so more workers cannot be faster here; what is measured is what the cluster costs.
Rounds in which other programs took CPU time are to be left out.

    parquet       one process, rows from Parquet
    local         one process, batches from shards
    1x1 ... NxM   N workers, M parameter servers

Beside speed it prints which share of the CPU time the chief and the coordinator took, and what an example cost the
workers and the servers: the constants of the model in docs/explanation/training_on_a_cluster.md.
"""

from __future__ import annotations

import argparse
import json
import os
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
from slow_network import FAR, slow_network

from easyrec.fitting import fit
from easyrec.preparation import prepare
from easyrec.training.callbacks import Callback, StepInfo
from easyrec.training.cluster import chief
from easyrec.training.cluster.roles import CHIEF, Cluster, LocalCluster, Role, local_addresses

HERE = Path(__file__).resolve().parent
OPTIONS = [
    "training.shards.split_batches=32",
    "training.log_every=8",
    "training.checkpoints.keep=1",
]
ALONE = ("parquet", "local")
SLOW = "-slow"
_ROLES = {"worker": "workers", "ps": "servers"}


class Clock(Callback):
    """Examples, and CPU seconds of each role and of the machine, between two looks in the second epoch."""

    def __init__(self) -> None:
        self.first: tuple[int, dict[str, float]] | None = None
        self.last: tuple[int, dict[str, float]] = (0, {})
        self.busy: list[float] = []

    def on_step(self, info: StepInfo) -> None:
        """Looks at the clock."""
        if info.epoch == 1:
            own = psutil.Process()
            seconds: dict[str, float] = {}
            for process in (own, *own.children(recursive=True)):
                role = _ROLES.get(process.name().partition(":")[0], "coordinator")
                times = process.cpu_times()
                seconds[role] = seconds.get(role, 0.0) + times.user + times.system
            self.last = (info.examples, seconds)
            machine = psutil.cpu_times()
            self.busy.append(machine.user + machine.nice + machine.system + machine.softirq)
            self.first = self.first or self.last

    def microseconds(self) -> dict[str, float]:
        """CPU time an example, by role; all of it is the coordinator's where there is one process."""
        examples, before = self.first or self.last
        count = max(1, self.last[0] - examples)
        return {role: 1e6 * (now - before.get(role, 0.0)) / count for role, now in self.last[1].items()}

    def others(self) -> float:
        """The share of the CPU time of all programs that others than these took."""
        before = (self.first or self.last)[1]
        own = sum(now - before.get(role, 0.0) for role, now in self.last[1].items())
        return max(0.0, 1 - own / max(1e-9, self.busy[-1] - self.busy[0]))


def far_addresses(local: LocalCluster) -> Cluster:
    """The cluster's processes by the address that leads over the slow network."""
    near = local_addresses(local)
    addresses = {
        job: tuple(address.replace("127.0.0.1", FAR) for address in found)
        for job, found in near.addresses.items()
    }
    return Cluster(addresses, Role(CHIEF, 0, addresses[CHIEF][0]))


def train(
    data: Path, folder: Path, variant: str, seed: int, options: list[str], epochs: int = 2
) -> dict[str, Any]:
    """Trains one variant in this process; examples per second of the second epoch, AUC, and the workers' load."""
    folder.mkdir(parents=True)
    file = folder / "pipeline.yaml"
    file.write_text(pipeline(data, seed, epochs), encoding="utf-8")
    chosen = [*OPTIONS, f"training.shards.path={data / f'shards-{seed}'}", *options]
    chosen += ["training.shards.local=true"] if variant == "local" else []
    prepared = prepare(file, chosen, run=folder / "run")
    if variant.endswith(SLOW):
        variant = variant.removesuffix(SLOW)
        chief.local_addresses = far_addresses
    workers, _, servers = variant.partition("x")
    cluster = None if variant in ALONE else f"local:workers={workers},ps={servers}"
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
        "per_cpu": 1e6 / max(1e-9, sum(clock.microseconds().values())),
        "cpu": clock.microseconds(),
        "others": clock.others(),
        "idle": statistics.mean(line["wait_share"] for line in second[1:]),
        "auc": metrics["label/auc"],
        "bytes_per_step": (last.get("bytes_moved", 0) - skipped.get("bytes_moved", 0))
        / max(1, last["step"] - skipped["step"]),
        "workers": last.get("workers", {}),
        "servers": last.get("servers", {}),
        "started": begin["time"],
    }


def measure(
    data: Path, variants: list[str], rounds: int, inside: list[str], settings: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """Trains every variant in every round, each in a fresh process."""
    outcomes: dict[str, list[dict[str, Any]]] = {variant: [] for variant in variants}
    for number in range(rounds):
        for variant in variants if number % 2 == 0 else variants[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, str(HERE / "cluster_throughput.py"), "--one", variant]
                command += ["--data", str(data), "--folder", f"{folder}/one", "--seed", str(number)]
                command += ["--set", *settings] if settings else []
                prefix = inside if variant.endswith(SLOW) else []
                done = subprocess.run([*prefix, *command], capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    sys.exit(f"{variant} failed:\n{done.stderr[-3000:]}")
            outcome = json.loads(done.stdout.strip().splitlines()[-1])
            outcomes[variant].append(outcome)
            print(
                f"round {number + 1}  {variant:<9}{outcome['rate']:>9,.0f} examples/s  "
                f"{outcome['per_cpu']:>8,.0f} per CPU-s  AUC {outcome['auc']:.4f}  "
                f"idle {outcome['idle']:.0%}  {outcome['bytes_per_step'] / 2**20:.2f} MiB a step  {shares(outcome)}"
                f"other programs {outcome['others']:.0%}",
                flush=True,
            )
    return outcomes


def shares(outcome: dict[str, Any]) -> str:
    """CPU microseconds an example by role, and the coordinator's share."""
    cpu = outcome["cpu"]
    if len(cpu) == 1:
        return ""
    split = ", ".join(f"{role} {cpu[role]:.1f}" for role in ("workers", "servers", "coordinator"))
    return f"CPU µs: {split} ({cpu['coordinator'] / sum(cpu.values()):.1%})  "


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
        if name.endswith(SLOW):
            ratio += f", {rates[name] / rates[name.removesuffix(SLOW)]:.2f} of the same on a fast network"
        auc = statistics.median(one["auc"] for one in found)
        print(f"{name:<9}{rates[name]:>9,.0f} examples/s   AUC {auc:.4f}   {ratio}")


def main() -> None:
    """Generates the data, measures, reports."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="1 round over 100,000 rows")
    parser.add_argument("--variants", nargs="+", default=["parquet", "local", "1x1", "2x1", "4x2"])
    parser.add_argument(
        "--set", nargs="*", default=[], help="settings, such as training.cluster.transfer=bfloat16"
    )
    parser.add_argument("--latency", type=float, default=0.0, help="milliseconds a round trip, added")
    parser.add_argument("--rate", default="", help="bandwidth, such as 1gbit")
    parser.add_argument("--data", type=Path, help="folder the data are kept in; a temporary one unless given")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, default=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        outcome = train(options.data, options.folder, options.one, options.seed, options.set, options.epochs)
        print(json.dumps(outcome), flush=True)
        return
    rows, rounds = (100_000, 1) if options.quick else (options.rows, options.rounds)
    print(f"{os.cpu_count()} CPUs, {rows:,} rows, batches of 4096, DeepFM 256-128-64 over 16-wide embeddings")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.data or Path(temporary)
        generate(folder, rows, min(50_000, rows))
        if not options.latency and not options.rate:
            report(measure(folder, options.variants, rounds, [], options.set))
            return
        slow = [f"{name}{SLOW}" for name in options.variants if name not in ALONE]
        with slow_network(options.latency, options.rate) as inside:
            report(measure(folder, [*options.variants, *slow], rounds, inside, options.set))


if __name__ == "__main__":
    main()
