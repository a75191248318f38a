"""How long deciding for one request takes: a holdout and four layers, each fully taken by an experiment.

    python benchmarks/ab_assignment.py

Prints microseconds a decision (processor time, median and 99th percentile), the same for GrowthBook's algorithm, and
how memory grows over a million distinct users.
"""

import statistics
import time
import tracemalloc
from typing import Any

import folder_last  # noqa: F401

from evaluation.abtest.assignment import Assigner
from evaluation.abtest.compilation import compile_assigner
from evaluation.abtest.loading import parse_experiments

LAYERS = 4
USERS = 100_000


def assigner(algorithm: str) -> Assigner:
    """A configuration with the most work a request can be."""
    experiments: dict[str, Any] = {
        f"experiment{k}": {
            "layer": f"layer{k}",
            "status": "running",
            "percent": 100,
            "algorithm": algorithm,
            "when": {"country": ["DE", "AT"]},
            "variants": {"control": {}, "other": {"overrides": {f"parameter{k}": 1}}},
        }
        for k in range(LAYERS)
    }
    layers = {f"layer{k}": {"owns": [f"parameter{k}"]} for k in range(LAYERS)}
    return compile_assigner(
        parse_experiments(
            {"version": 1, "holdout": {"percent": 1}, "layers": layers, "experiments": experiments}
        )
    )


def microseconds(one: Assigner) -> tuple[float, list[float]]:
    """Processor time of a decision on average, whatever else runs, and the time that each took by the clock."""
    requests = [{"user_id": f"user-{number}"} for number in range(USERS)]
    attributes = {"country": "DE"}
    for request in requests[:1000]:
        one.assign(request, attributes)
    begin = time.process_time()
    for request in requests:
        one.assign(request, attributes)
    processor = (time.process_time() - begin) * 1e6 / len(requests)
    clock, times = time.perf_counter_ns, []
    for request in requests:
        start = clock()
        one.assign(request, attributes)
        times.append((clock() - start) / 1000)
    return processor, times


def growth(one: Assigner) -> int:
    """Bytes that a million distinct users leave behind."""
    one.assign({"user_id": "warm"})
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(1_000_000):
        one.assign({"user_id": number})
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before


def main() -> None:
    """Measures and prints."""
    for algorithm in ("sha256-v1", "growthbook-v2"):
        processor, times = microseconds(assigner(algorithm))
        tail = statistics.quantiles(times, n=100)[98]
        print(
            f"{algorithm:14} {LAYERS} layers: processor {processor:.1f} us, "
            f"median {statistics.median(times):.1f} us, p99 {tail:.1f} us"
        )
    print(f"memory left behind by 1,000,000 distinct users: {growth(assigner('sha256-v1'))} bytes")


if __name__ == "__main__":
    main()
