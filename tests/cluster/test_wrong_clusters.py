"""Clusters that cannot work are refused in words that name the role and its address; nothing else is printed."""

from __future__ import annotations

import re
import signal
import socket
import time

import pytest

from easyrec.errors import DataError
from easyrec.fitting import fit
from easyrec.preparation import prepare_shards
from easyrec.training.cluster.roles import ClusterError, Role, wait_for
from tests.cluster.conftest import COMMAND, local_roles, tf_config

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
OLD = f"""
from easyrec.startup import start_tensorflow
start_tensorflow()
import easyrec.training.cluster.server as server
now = server.versions()
server.versions = lambda: {{**now, "easyrec": "0.0.1"}}
{COMMAND}
"""
HANGS = f"""
from easyrec.startup import start_tensorflow
start_tensorflow()
import os, signal
import easyrec.training.strategy as strategy
meet = strategy.meet
def meet_and_hang(*arguments):
    meet(*arguments)
    os.kill(os.getpid(), signal.SIGSTOP)
strategy.meet = meet_and_hang
{COMMAND}
"""
OLD_STEP = OLD.replace("cluster.server as server", "cluster.meeting as server")


@pytest.fixture(scope="module")
def file(make, tmp_path_factory):
    """A configuration, for roles that need nothing else."""
    return make(tmp_path_factory.mktemp("configuration")).run.config_path


def last_words(process) -> str:
    out, _ = process.communicate(timeout=120)
    assert "Traceback" not in out
    assert out.startswith("error: ")
    return out


def test_a_malformed_description(file, roles):
    cluster = {"chief": ["here:1"], "worker": ["there"], "ps": ["here:2"]}
    process = roles.start(file, cluster, "worker")
    out = last_words(process)
    assert process.returncode == 2
    assert "TF_CONFIG: the address of worker 0 is `host:port`, got 'there'" in out
    assert "Example:" in out


@pytest.mark.parametrize(
    "jobs", [("chief", "worker", "ps"), ("worker", "worker")], ids=["servers", "in step"]
)
def test_a_port_in_use(jobs, file, roles):
    cluster = local_roles(*jobs)
    address = cluster["worker"][0]
    with socket.socket() as taken:
        taken.bind(("", int(address.rpartition(":")[2])))
        taken.listen()
        process = roles.start(file, cluster, "worker")
        out = last_words(process)
    assert process.returncode == 1
    assert f"worker 0 at {address}: port" in out
    assert "cannot be used: Address already in use" in out


def test_a_process_in_step_that_never_appears(file, roles):
    cluster = local_roles("worker", "worker")
    process = roles.start(file, cluster, "worker", "--set", "training.cluster.start_timeout=1")
    assert f"after 1 seconds there is no answer from worker 1 at {cluster['worker'][1]}" in last_words(
        process
    )


def test_processes_in_step_of_different_versions(file, roles):
    cluster = local_roles("worker", "worker")
    processes = [
        roles.start(file, cluster, "worker", "--run", str(file.parent.parent / "step"), index=0),
        roles.start(
            file, cluster, "worker", "--run", str(file.parent.parent / "step"), index=1, program=OLD_STEP
        ),
    ]
    for process in processes:
        out = last_words(process)
        assert f"worker 1 at {cluster['worker'][1]} runs easyrec 0.0.1" in out
        assert f"worker 0 at {cluster['worker'][0]} runs easyrec" in out


@pytest.mark.parametrize("hanging", [0, 1])
def test_a_process_in_step_that_hangs_while_all_connect(hanging, file, roles, tmp_path):
    cluster = local_roles("worker", "worker")
    options = ("--run", str(tmp_path / "films"), "--set", "training.cluster.start_timeout=20")
    programs = {index: HANGS if index == hanging else COMMAND for index in range(2)}
    processes = [
        roles.start(file, cluster, "worker", *options, index=index, program=program)
        for index, program in programs.items()
    ]
    out = last_words(processes[1 - hanging])
    assert processes[1 - hanging].returncode in (1, -signal.SIGKILL)  # still meeting, or already connecting
    assert f"worker {hanging} at {cluster['worker'][hanging]}" in out.partition("Is the process")[0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_process_in_step_that_is_lost(number, lost, make, roles, tmp_path):
    file = make(tmp_path / "of", epochs=500).run.config_path
    cluster = local_roles("worker", "worker")
    run = tmp_path / "films"
    processes = [roles.start(file, cluster, "worker", "--run", str(run), index=index) for index in range(2)]
    deadline = time.monotonic() + 240
    while not (run / "checkpoints").is_dir() or len(list((run / "checkpoints").glob("step-*"))) < 2:
        assert all(process.poll() is None for process in processes), [
            process.stdout.read() for process in processes
        ]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    processes[lost].send_signal(number)
    out, _ = processes[1 - lost].communicate(timeout=240)
    assert processes[1 - lost].returncode == 1
    assert "Traceback" not in out
    assert f"error: worker {lost} at {cluster['worker'][lost]} was lost (" in out
    assert "after step" in out
    assert not re.search(r"^[IWE]\d{4} ", out, re.MULTILINE)  # TensorFlow's own pages about it
    assert "with --resume" in out


def test_a_role_that_never_appears(make, tmp_path, monkeypatch):
    cluster = local_roles("chief", "worker", "ps")
    monkeypatch.setenv("TF_CONFIG", tf_config(cluster, "chief"))
    prepared = make(tmp_path, cluster={"start_timeout": 0.3})
    expected = f"no answer from worker 0 at {cluster['worker'][0]}, ps 0 at {cluster['ps'][0]}"
    with pytest.raises(ClusterError, match=expected):
        fit(prepared)


def test_somebody_else_at_the_address_of_a_role():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        role = Role("ps", 0, f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(ClusterError, match=f"ps 0 at {role.address} \\(somebody listens there"):
            wait_for([role], 0.1)


def test_workers_of_another_version_or_with_other_shards(make, roles, tmp_path, monkeypatch):
    cluster = local_roles("chief", "worker", "ps")
    [elsewhere] = local_roles("worker")["worker"]
    (tmp_path / "shards").mkdir()
    monkeypatch.chdir(tmp_path)
    # The same path everywhere, and yet another folder in each process.
    prepared = make(tmp_path / "run", shards={"path": "/proc/self/cwd/shards"})
    roles.start(prepared.run.config_path, cluster, "ps")
    roles.start(prepared.run.config_path, cluster, "worker", program=OLD)
    roles.start(prepared.run.config_path, {**cluster, "worker": [elsewhere]}, "worker", cwd="/")

    monkeypatch.setenv("TF_CONFIG", tf_config(cluster, "chief"))
    with pytest.raises(
        ClusterError, match=rf"worker 0 at {cluster['worker'][0]} runs easyrec 0\.0\.1, the chief"
    ):
        fit(prepared)
    monkeypatch.setenv("TF_CONFIG", tf_config({**cluster, "worker": [elsewhere]}, "chief"))
    with pytest.raises(
        ClusterError, match=f"worker 0 at {elsewhere} cannot read the shards at /proc/self/cwd"
    ):
        fit(prepared)


def test_shards_that_were_prepared_from_another_configuration(make, tmp_path):
    shards = {"path": str(tmp_path / "shards")}
    prepare_shards(make(tmp_path / "one", shards=shards).config, run=tmp_path / "one" / "films")
    other = make(tmp_path / "other", shards=shards, batch_size=32)
    with pytest.raises(DataError, match=r"prepared from something else; different: .*batch_size"):
        fit(other, cluster="local")
