"""Replicas in step: R of them learn what one machine learns from batches R times as large."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from easyrec.training.cluster.roles import free_ports

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, os, sys
import numpy as np
import tensorflow as tf
from easyrec.training.replicas import Replicas, ReplicaTrainer
from easyrec.training.trainer import Trainer
from easyrec.training.state import training_state
from small_pipeline import SCHEMA, MemoryStream, network, pipeline, rows

kind, folder, jit = sys.argv[1], sys.argv[2], sys.argv[3] == "jit"
if kind == "mirrored":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    replicas = Replicas(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]), 2, 0, 2)
elif kind == "multi_worker":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    replicas = Replicas(strategy, 2, task, 1, task == 0)
size = 32 if kind == "local" else 16
config = pipeline(epochs=2, batch_size=size, jit_compile=jit, optimizer={"embedding": "adagrad"})
model = config.model.model_copy(update={"dropout": 0.0, "batch_norm": False})
config = config.model_copy(update={"model": model})
options = {"rows": 200, "schema": SCHEMA}
if kind == "local":
    trainer = Trainer(network(config), config.training, folder, **options)
else:
    trainer = ReplicaTrainer(network(config), config.training, folder, replicas=replicas, **options)
result = trainer.fit(MemoryStream(rows(), size))
state = {v.name: np.concatenate([np.atleast_1d(p) for p in v.read()]).tolist() for v in training_state(trainer.step)}
with open(os.path.join(folder, f"{kind}.json"), "w") as file:
    json.dump({"state": state, "steps": result.steps, "examples": result.examples}, file)
"""


def start(kind: str, folder: Path, jit: bool, environment: dict[str, str] | None = None) -> subprocess.Popen:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind, str(folder), "jit" if jit else "plain"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}", **(environment or {})},
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen, kind: str, folder: Path) -> dict:
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors[-3000:]
    return json.loads((folder / f"{kind}.json").read_text())


def assert_same(left: dict, right: dict) -> None:
    assert (left["steps"], left["examples"]) == (right["steps"], right["examples"])
    assert left["state"].keys() == right["state"].keys()
    for name, value in left["state"].items():
        np.testing.assert_allclose(value, right["state"][name], rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("local")
    return outcome(start("local", folder, False), "local", folder)


@pytest.mark.slow
def test_two_devices_of_one_machine(local, tmp_path):
    assert_same(outcome(start("mirrored", tmp_path, True), "mirrored", tmp_path), local)


@pytest.mark.slow
def test_two_processes(local, tmp_path):
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    processes = []
    for index in range(2):
        task = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})}
        processes.append(start("multi_worker", tmp_path / str(index), False, task))
    try:
        found = [outcome(one, "multi_worker", tmp_path / str(index)) for index, one in enumerate(processes)]
    finally:
        for one in processes:
            one.kill()
    assert found[0] == found[1]
    assert_same(found[0], local)
    assert (tmp_path / "0" / "checkpoints").is_dir()
    assert not (tmp_path / "1" / "checkpoints").exists()
