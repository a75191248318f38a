"""A role shares the cores of its machine with others there, and says which versions it runs."""

import json
import os
import sys

import pytest
import tensorflow as tf

from easyrec.training.cluster.roles import Cluster, Role
from easyrec.training.cluster.server import DESCRIPTION, describe, share_cores
from easyrec.versions import versions

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


@pytest.mark.skipif(sys.platform != "linux", reason="made for Linux")
def test_a_role_says_which_versions_it_runs_in_a_file_that_nobody_else_can_take():
    try:
        for _ in range(2):
            describe()
            described = json.loads(tf.io.read_file(DESCRIPTION).numpy())
        assert described == {**versions(), "pid": os.getpid()}
    finally:
        os.close(int(DESCRIPTION.rpartition("/")[2]))
    with pytest.raises(tf.errors.NotFoundError):
        tf.io.read_file(DESCRIPTION)
