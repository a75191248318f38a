"""A cluster of processes and one process in turn, seconds at a time: their ratio, whatever else the machine does.

    python benchmarks/cluster_paired.py            1x1 beside one process, 40 turns each: about 8 minutes
    python benchmarks/cluster_paired.py --variant 2x1 --turns 10

A machine that is shared becomes faster and slower by a tenth within minutes, and with it whatever runs at the time;
`cluster_throughput.py` needs many rounds to tell a difference of that size. Here both variants train all the time, and
one of them is stopped (SIGSTOP) while the other has its turn. What counts are the examples between two lines of its
log that lie in one turn and one epoch: starting, compiling, evaluations and checkpoints are left out.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import folder_last  # noqa: F401
import numpy as np
import psutil
from criteo_like import generate

HERE = Path(__file__).resolve().parent
ALONE = "local"
_SETTLING_SECONDS = 0.5
_POLL_SECONDS = 0.2


@dataclass
class Variant:
    """Training under way in processes of its own.

    Attributes:
        name: As in `cluster_throughput.py`.
        folder: Its folder.
        process: The process that was started; the others are its descendants.
        examples, seconds, cpu: Of its turns: examples between log lines, the time between them, CPU time in all.
        rates: Examples a second, by the number of the turn; without turns in which it was busy otherwise.
    """

    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    examples: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    rates: dict[int, float] = field(default_factory=dict)

    def all(self) -> list[psutil.Process]:
        """All of its processes, those that start others first."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def tell(self, number: signal.Signals) -> None:
        """Stops them or lets them go on."""
        for process in self.all():
            process.send_signal(number)

    def cpu_seconds(self) -> float:
        """Of all of its processes until now."""
        return sum(times.user + times.system for times in (one.cpu_times() for one in self.all()))

    def lines(self) -> Iterator[dict[str, Any]]:
        """Its log."""
        for log in self.folder.glob("run/log.jsonl"):
            whole, _, _ = log.read_text(encoding="utf-8").rpartition("\n")
            yield from map(json.loads, whole.splitlines())

    def turn(self, number: int, seconds: float) -> None:
        """Lets it train for some seconds and notes how far it came."""
        begin = time.time()
        self.tell(signal.SIGCONT)
        cpu = self.cpu_seconds()
        time.sleep(seconds)
        cpu = self.cpu_seconds() - cpu
        self.tell(signal.SIGSTOP)
        end = time.time()
        examples, spent = 0, 0.0
        before = None
        for line in self.lines():
            inside = begin + _SETTLING_SECONDS <= line["time"] <= end
            if inside and line["event"] == "train":
                if before is not None and before["epoch"] == line["epoch"]:
                    examples += line["examples"] - before["examples"]
                    spent += line["time"] - before["time"]
                before = line
            else:
                before = None
        if spent > seconds / 4:
            self.examples, self.seconds = self.examples + examples, self.seconds + spent
            self.rates[number] = examples / spent
            self.cpu += cpu * spent / seconds


def start(name: str, data: Path, folder: Path, settings: list[str]) -> Variant:
    """Starts one, waits for its second epoch, and stops it."""
    command = [sys.executable, str(HERE / "cluster_throughput.py"), "--one", name, "--epochs", "1000"]
    command += ["--data", str(data), "--folder", str(folder), "--set", *settings]
    with (folder.parent / f"{name}.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    variant = Variant(name, folder, process)
    while not any(line["event"] == "train" and line["epoch"] == 1 for line in variant.lines()):
        if process.poll() is not None:
            sys.exit((folder.parent / f"{name}.txt").read_text(encoding="utf-8")[-3000:])
        time.sleep(_POLL_SECONDS)
    variant.tell(signal.SIGSTOP)
    return variant


def end(variants: list[Variant]) -> None:
    """Ends all processes of all variants."""
    for variant in variants:
        for process in reversed(variant.all()):
            process.kill()
        variant.process.wait()


def main() -> None:
    """Starts both, gives them turns, prints medians and the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variant", default="1x1", help="N workers, M parameter servers, as NxM")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=40, help="of each")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn")
    parser.add_argument("--set", nargs="*", default=[], help="settings, such as training.cluster.streams=2")
    parser.add_argument("--data", type=Path, help="folder the data are kept in; a temporary one unless given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        data = options.data or Path(temporary)
        generate(data, options.rows, min(50_000, options.rows))
        variants: list[Variant] = []
        try:
            variants.append(start(ALONE, data, Path(temporary) / ALONE, options.set))
            variants.append(start(options.variant, data, Path(temporary) / options.variant, options.set))
            for number in range(options.turns):
                for variant in variants if number % 2 == 0 else variants[::-1]:
                    variant.turn(number, options.seconds)
        finally:
            end(variants)
    for one in variants:
        rates = one.rates.values()
        print(
            f"{one.name:<6}{one.examples / one.seconds:>9,.0f} examples/s (turns {min(rates):,.0f} to "
            f"{max(rates):,.0f}, {len(rates)} of {options.turns})  "
            f"CPU µs an example {1e6 * one.cpu / one.examples:.1f}"
        )
    alone, cluster = variants
    pairs = [rate / alone.rates[number] for number, rate in cluster.rates.items() if number in alone.rates]
    low, median, high = np.quantile(pairs, [0.25, 0.5, 0.75])
    print(
        f"{cluster.name} of {alone.name}: {median:.3f} in the median of {len(pairs)} neighbouring turns "
        f"(quartiles {low:.3f} and {high:.3f}); all turns together "
        f"{cluster.examples / cluster.seconds / (alone.examples / alone.seconds):.3f}"
    )


if __name__ == "__main__":
    main()
