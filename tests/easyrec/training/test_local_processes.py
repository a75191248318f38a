"""Processes of a cluster on one machine: those that end by themselves, and those that are ended to be started anew."""

from __future__ import annotations

import subprocess
import time

import pytest

from easyrec.training.cluster import processes
from easyrec.training.cluster.processes import LocalProcesses
from easyrec.training.cluster.roles import ClusterError, LocalCluster, local_addresses


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Processes that only sleep, and what is said of them."""

    def start(module, arguments, environment):
        pipe = subprocess.PIPE
        return subprocess.Popen(["sleep", "300"], stdin=pipe, stdout=pipe, start_new_session=True)

    monkeypatch.setattr(processes, "start", start)
    monkeypatch.setattr(processes, "_POLL_SECONDS", 0.01)
    lines = []
    with LocalProcesses(local_addresses(LocalCluster(2, 1)), tmp_path, lines.append) as found:
        yield found, lines


def wait(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_workers_are_started_anew_as_often_as_training_begins_again(made):
    found, lines = made
    for again in range(8):
        before = found.pids
        found.begin_anew()
        wait(lambda: all(found.pids[name] != before[name] for name in ("worker:0", "worker:1")))  # noqa: B023
        assert found.pids["ps:0"] == before["ps:0"]  # does not answer, but has only just been started
        assert found.lost["worker:0"] == again + 1
    found.check()
    assert len(lines) == 16
    assert all("is started anew" in line for line in lines)


def test_a_process_that_ends_again_and_again_is_given_up(made):
    found, lines = made

    def given_up() -> bool:
        subprocess.run(["kill", "-9", str(found.pids["worker:1"])], check=False, stderr=subprocess.DEVNULL)
        return found._failure is not None

    wait(given_up)
    with pytest.raises(ClusterError, match=r"worker 1 at .* was killed by SIGKILL, 6 times in a row"):
        found.check()
    assert all("was killed by SIGKILL; starting it again" in line for line in lines)
