"""A cluster of roles with a network between them: a cable is pulled, and a server is lost and comes back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass

import pytest

from easyrec.fitting import fit
from tests.cluster.conftest import At, local_roles, log, tf_config

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
EPOCHS = 4
STEPS = 38  # of an epoch: 2400 rows in batches of 64


@dataclass
class Machine:
    """A machine of its own for a process: a network namespace at the other end of a cable."""

    name: str
    here: str
    there: str

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    def plug_in(self) -> None:
        self.ip("netns", "add", self.name)
        self.ip("link", "add", f"{self.name}a", "type", "veth", "peer", "name", "cable", "netns", self.name)
        self.ip("addr", "add", f"{self.here}/30", "dev", f"{self.name}a")
        self.ip("link", "set", f"{self.name}a", "up")
        self.ip("-n", self.name, "addr", "add", f"{self.there}/30", "dev", "cable")
        for device in ("cable", "lo"):
            self.ip("-n", self.name, "link", "set", device, "up")

    def cut(self) -> None:
        self.ip("-n", self.name, "link", "set", "cable", "down")

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


@pytest.fixture
def machine():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces take the rights of root and the command `ip` (iproute2)")
    number = os.getpid() % 250
    made = Machine(f"easyrec{number}", f"10.231.{number}.1", f"10.231.{number}.2")
    try:
        made.plug_in()
        yield made
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr}")
    finally:
        made.remove()


def test_a_cut_cable_and_a_lost_server_cost_no_split(machine, make, roles, tmp_path, monkeypatch):
    cluster = local_roles("chief", "worker", "ps", host=machine.here)
    cluster["worker"] += local_roles("worker", host=machine.there)["worker"]
    monkeypatch.setenv("TF_CONFIG", tf_config(cluster, "chief"))
    prepared = make(
        tmp_path,
        epochs=EPOCHS,
        checkpoints={"every_steps": 10},
        cluster={"split_timeout": 5, "start_timeout": 120},
    )
    file = prepared.run.config_path
    roles.start(file, cluster, "worker")
    inside = ("ip", "netns", "exec", machine.name)
    roles.start(file, cluster, "worker", index=1, prefix=inside)
    servers = [roles.start(file, cluster, "ps")]

    def lose_server() -> None:
        servers[0].send_signal(signal.SIGKILL)
        servers[0].wait()
        servers.append(roles.start(file, cluster, "ps"))

    watch = At(
        (lambda info: info.step >= 13, lose_server),
        (lambda info: info.step >= STEPS + 15, machine.cut),
    )
    lines = []
    result = fit(prepared, callbacks=[watch], tell=lines.append)
    assert watch.actions == []
    assert result.reason == "completed"
    assert (result.steps, result.examples) == (EPOCHS * STEPS, EPOCHS * 2400)
    epochs = log(prepared, "epoch")
    assert [line["epoch"] for line in epochs] == list(range(EPOCHS))
    assert {line["splits"] for line in epochs} == {19}
    [lost] = log(prepared, "lost")
    assert lost["step"] - lost["from_step"] <= 10 + 3 * 2  # the interval, and the splits under way
    *_, hanging = log(prepared, "hanging")  # before, a slow worker may have been taken to hang
    assert hanging["splits"]
    assert any("no answer for a long time" in line for line in lines)
    assert any(f"worker 1 at {cluster['worker'][1]} does not answer" in line for line in lines)
    assert result.evaluations[-1]["metrics"]["liked/auc"] > 0.75
