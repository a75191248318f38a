"""Replicas in step: R of them learn what one machine learns from batches R times as large."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest

from easyrec.layers.normalization import BatchNormalization, synchronized_batch_norm
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

kind, folder, jit, norm = sys.argv[1], sys.argv[2], sys.argv[3] == "jit", sys.argv[4] == "norm"
if kind == "mirrored":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    replicas = Replicas(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]), 2, 0, 2)
elif kind == "multi_worker":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    replicas = Replicas(strategy, 2, task, 1, task == 0)
size = 32 if kind == "local" else 16
options = {"optimizer": {"embedding": "adagrad"}, "synchronized_batch_norm": norm}
config = pipeline(epochs=2, batch_size=size, jit_compile=jit, **options)
model = config.model.model_copy(update={"dropout": 0.0, "batch_norm": norm})
embedding = config.embedding.model_copy(update={"l2": 0.01})
config = config.model_copy(update={"model": model, "embedding": embedding})
count = 216 if norm else 200  # of the last step, one replica has fewer rows, or none
options = {"rows": count, "schema": SCHEMA}
if kind == "local":
    trainer = Trainer(network(config), config.training, folder, **options)
else:
    trainer = ReplicaTrainer(network(config), config.training, folder, replicas=replicas, **options)
result = trainer.fit(MemoryStream(rows(count=count), size))
state = {v.name: np.concatenate([np.atleast_1d(p) for p in v.read()]).tolist() for v in training_state(trainer.step)}
with open(os.path.join(folder, f"{kind}.json"), "w") as file:
    json.dump({"state": state, "steps": result.steps, "examples": result.examples}, file)
"""


def start(
    kind: str, folder: Path, jit: bool, norm: bool, environment: dict[str, str] | None = None
) -> subprocess.Popen:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind, str(folder), "jit" if jit else "plain", "norm" if norm else ""],
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


@pytest.fixture(
    scope="module", params=[pytest.param(False, marks=pytest.mark.nightly), True], ids=["plain", "batch_norm"]
)
def norm(request) -> bool:
    """Whether there is batch normalisation, over all replicas together."""
    return request.param


@pytest.fixture(scope="module")
def local(norm, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("local")
    return outcome(start("local", folder, False, norm), "local", folder)


@pytest.mark.slow
def test_two_devices_of_one_machine(local, norm, tmp_path):
    assert_same(outcome(start("mirrored", tmp_path, True, norm), "mirrored", tmp_path), local)


@pytest.mark.slow
def test_two_processes(local, norm, tmp_path):
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    processes = []
    for index in range(2):
        task = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})}
        processes.append(start("multi_worker", tmp_path / str(index), False, norm, task))
    try:
        found = [outcome(one, "multi_worker", tmp_path / str(index)) for index, one in enumerate(processes)]
    finally:
        for one in processes:
            one.kill()
    assert found[0] == found[1]
    assert_same(found[0], local)
    assert (tmp_path / "0" / "checkpoints").is_dir()
    assert not (tmp_path / "1" / "checkpoints").exists()


def test_positions_that_a_mask_leaves_out_do_not_count():
    """What each replica gets, when the other's sums are added by hand, is what one batch of both gets."""
    random = np.random.default_rng(0)
    values = random.normal(3.0, 2.0, [6, 4, 5]).astype("float32")
    mask = (random.random([6, 4]) < 0.6).astype("float32")
    whole = keras.layers.BatchNormalization()
    expected = whole(values, training=True, mask=mask)
    parts = []
    for own, other in ((slice(0, 2), slice(2, 6)), (slice(2, 6), slice(0, 2))):
        layer = BatchNormalization()
        mean = (values * mask[..., None]).sum((0, 1)) / mask.sum()
        sums = iter(
            [
                [mask[other].sum(), (values * mask[..., None])[other].sum((0, 1))],
                [(mask[..., None] * (values - mean) ** 2)[other].sum((0, 1))],
            ]
        )
        with synchronized_batch_norm(partial(_added, sums)):
            parts.append(layer(values[own], training=True, mask=mask[own]))
        np.testing.assert_allclose(layer.moving_mean, whole.moving_mean, rtol=1e-5)
        np.testing.assert_allclose(layer.moving_variance, whole.moving_variance, rtol=1e-5)
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=1e-4, atol=1e-5)


def _added(others: Iterator[list], mine: list) -> list:
    return [one + other for one, other in zip(mine, next(others), strict=True)]
