"""Throughput and load of workers, from what their processes say of themselves."""

from __future__ import annotations

import numpy as np

from easyrec.training.cluster.dispatch import Outcome, Task
from easyrec.training.cluster.load import WorkerLoads

STAT = "7 (worker:0) S " + " ".join(["1"] * 49)


def outcome(seconds: float) -> Outcome:
    values = {
        "worker": np.array(STAT.encode(), object),
        "seconds": np.float64(seconds),
        "bytes": np.int64(1000),
    }
    return Outcome(Task(0, 0, ()), values, None, seconds)


def test_the_speed_of_a_worker_is_that_of_its_latest_splits():
    loads = WorkerLoads(1)
    loads.take(outcome(100.0), rows=1000)  # it compiled
    assert loads.report()["worker:0"]["examples_per_second"] == 10
    for _ in range(20):
        loads.take(outcome(2.0), rows=1000)
    report = loads.report()["worker:0"]
    assert report["examples_per_second"] == 500
    assert (report["examples"], report["splits"]) == (21_000, 21)
    assert loads.bytes_moved == 21_000
