"""Processes that hang in the middle of training in step on parameter servers hold nothing up for long."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from easyrec.fitting import fit
from tests.cluster.conftest import TWO, At, kill, log, processes

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
STEPS = 19  # of an epoch: 2400 rows in rounds of two batches of 64


def test_a_worker_a_server_and_the_coordinator_hang_one_after_the_other(make, tmp_path):
    prepared = make(
        tmp_path,
        epochs=5,
        checkpoints={"every_steps": 5},
        cluster={"mode": "synchronous", "split_timeout": 10, "start_timeout": 120},
    )
    watch = At(
        (lambda info: info.step >= STEPS + 3, lambda: kill("worker:1", signal.SIGSTOP)),
        (lambda info: info.step >= 2 * STEPS + 7, lambda: kill("ps:0", signal.SIGSTOP)),
        (lambda info: info.step >= 3 * STEPS + 7, lambda: kill("coordinator", signal.SIGSTOP)),
    )
    lines: list[str] = []
    result = fit(prepared, cluster=TWO, callbacks=[watch], tell=lines.append)
    assert watch.actions == []
    assert (result.reason, result.steps, result.examples) == ("completed", 5 * STEPS, 5 * 2400)
    assert [line["splits"] for line in log(prepared, "epoch")] == [19] * 5
    assert any("worker 1" in line and "does nothing" in line for line in lines)
    server, coordinator = log(prepared, "lost")
    assert server["why"].startswith("ps 0 at 127.0.0.1:")
    assert server["why"].endswith("has not answered for 10 seconds")
    assert coordinator["why"] == "the coordinator gave no sign of life for 60 seconds"
    assert processes() == {}


def test_an_interrupt_while_the_coordinator_connects_is_not_forgotten(make, tmp_path):
    def interrupt() -> None:
        deadline = time.monotonic() + 240
        while "coordinator" not in processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = fit(make(tmp_path, epochs=50), cluster="local:workers=1,ps=1")
    thread.join()
    assert result.reason == "interrupted"
    assert result.epochs == 0
    assert processes() == {}
