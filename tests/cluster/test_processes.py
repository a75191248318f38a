"""Whatever happens to the program that started a cluster, its processes end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
PROGRAM = """
import signal, sys, time
from pathlib import Path
from easyrec.training.cluster.processes import LocalProcesses
from easyrec.training.cluster.roles import LocalCluster, local_addresses, wait_for

signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background hands down that it is ignored
cluster = local_addresses(LocalCluster(1, 1))
with LocalProcesses(cluster, Path(sys.argv[1]), lambda line: None) as processes:
    wait_for(cluster.servers, 90, processes.check)
    print(*processes.pids.values(), flush=True)
    time.sleep(300)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_they_end_with_it_even_when_stopped(number, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        children = [psutil.Process(int(pid)) for pid in program.stdout.readline().split()]
        assert len(children) == 2
        assert {child.name() for child in children} == {"worker:0", "ps:0"}
        children[0].send_signal(signal.SIGSTOP)
        program.send_signal(number)
        program.wait(60)
    deadline = time.monotonic() + 30
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.1)
