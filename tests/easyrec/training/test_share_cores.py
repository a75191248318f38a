"""Threads of a role: the cores of its machine divided by the roles there, unless the environment says otherwise."""

import os

import pytest

from easyrec.training.cluster.roles import Cluster, Role
from easyrec.training.cluster.server import share_cores

INTRA, INTER = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (("[::1]:1", "[::1]:2"), "2"),
        (("[::1]:1", "other:1"), "3"),
        (tuple(f"[::1]:{i}" for i in range(9)), "1"),
    ],
)
def test_roles_on_one_machine_share_its_cores(workers, expected, monkeypatch):
    for name in (INTRA, INTER):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    share_cores(Cluster({"worker": workers, "ps": ("[::1]:100",)}, Role("worker", 0, workers[0])))
    assert os.environ[INTRA] == expected
    assert int(os.environ[INTER]) > 6


def test_what_the_environment_says_stays(monkeypatch):
    monkeypatch.setenv(INTRA, "5")
    monkeypatch.setenv(INTER, "7")
    share_cores(Cluster({"worker": ("a:1",), "ps": ("b:1",)}, Role("worker", 0, "a:1")))
    assert (os.environ[INTRA], os.environ[INTER]) == ("5", "7")
