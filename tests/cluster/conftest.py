"""Clusters of real processes, small and few: each is several TensorFlow programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

from easyrec.preparation import Prepared, prepare
from easyrec.training.callbacks import Callback
from easyrec.training.checkpoints import CheckpointStore
from easyrec.training.cluster.roles import free_ports
from tests.integration.tiny import films, pipeline

TWO = "local:workers=2,ps=2"
DEMANDING = {
    "accumulate": 2,
    "optimizer": {
        "embedding": "lazy_adam",
        "schedule": {"type": "cosine", "warmup_steps": 5},
        "clip_norm": 0.5,
        "clip_embedding_norm": 0.01,
    },
}
"""Options of training with state that must not get lost, or be counted otherwise, on a cluster."""


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """The films, and words about them, each with a weight."""
    folder = films(tmp_path_factory.mktemp("films"), rows=3000)
    movies = pd.read_parquet(folder / "movies.parquet")
    movies["words"] = [f"long={item % 5}|{'old' if item % 2 else 'new'}=0.5" for item in movies["movie_id"]]
    movies.to_parquet(folder / "movies.parquet", index=False)
    return folder


@pytest.fixture(scope="session")
def make(data) -> Callable[..., Prepared]:
    """Prepares a run of the tiny pipeline in a folder, with options of `training`."""

    def run(
        output: Path,
        resume: bool = False,
        shuffle: bool = True,
        on_error: str = "fail",
        like: Path | None = None,
        l2: float = 0.0,
        storage: str = "float32",
        words: bool = True,
        **training: Any,
    ) -> Prepared:
        config = pipeline(data, like or output)
        config["embedding"] |= {"l2": l2, "storage": storage}
        if words:
            config["features"] |= {"words": {"type": "tags", "separator": "|", "weight_separator": "="}}
        config["data"] |= {"shuffle": shuffle, "on_error": on_error}
        config["evaluation"] |= {"ranking": False}
        config["training"] |= {
            "epochs": 2,
            "shards": {"split_batches": 2},
            "cluster": {"start_timeout": 120},
            **training,
        }
        return prepare(config, run=output / "films", resume=resume)

    return run


class At(Callback):
    """Does something once, as soon as a condition on a step holds."""

    def __init__(self, *actions: tuple[Callable[[Any], bool], Callable[[], None]]) -> None:
        self.actions = list(actions)
        self.notes: list[str] = []

    def on_step(self, info):
        if self.actions and self.actions[0][0](info):
            self.actions.pop(0)[1]()

    def on_note(self, text):
        self.notes.append(text)


ROOT = Path(__file__).parents[2]
COMMAND = "from easyrec.cli.main import main; main()"


def tf_config(cluster: dict[str, list[str]], job: str, index: int = 0) -> str:
    """The value of `TF_CONFIG` for one role."""
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def local_roles(*jobs: str, host: str = "127.0.0.1") -> dict[str, list[str]]:
    """Addresses by job, one for each time that a job is named."""
    cluster: dict[str, list[str]] = {}
    for job, port in zip(jobs, free_ports(len(jobs)), strict=True):
        cluster.setdefault(job, []).append(f"{host}:{port}")
    return cluster


class Roles(ExitStack):
    """Processes that run `easyrec train` with a `TF_CONFIG` each; those that are left at the end are killed."""

    def start(
        self,
        file: Path,
        cluster: dict[str, list[str]],
        job: str,
        *arguments: str,
        index: int = 0,
        program: str = COMMAND,
        prefix: tuple[str, ...] = (),
        **options: Any,
    ) -> subprocess.Popen:
        """Starts a role.

        Args:
            file: The configuration.
            cluster: Addresses by job.
            job: Of the role.
            *arguments: More for the command.
            index: Of the role.
            program: Python that runs the command.
            prefix: A command that runs it.
            **options: Of the process.
        """
        process = self.enter_context(
            subprocess.Popen(
                [*prefix, sys.executable, "-c", program, "train", str(file), *arguments],
                env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CONFIG": tf_config(cluster, job, index)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                **options,
            )
        )
        self.callback(process.kill)
        return process


@pytest.fixture
def roles():
    with Roles() as made:
        yield made


def processes() -> dict[str, psutil.Process]:
    """The processes of this test's clusters, by the names of their roles; the coordinator is called python."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
            name = "coordinator" if "cluster.coordinate" in line else child.name()
            if "easyrec.training.cluster" in line:
                found[name] = child
        except psutil.Error:
            continue
    return found


def kill(name: str, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(processes()[name].pid, number)


def log(prepared: Prepared, event: str) -> list[dict[str, Any]]:
    return [line for line in prepared.run.logged() if line["event"] == event]


def checkpoint(prepared: Prepared) -> dict[str, Any]:
    last = max((prepared.run.checkpoints).glob("step-*"))
    return json.loads((last / "manifest.json").read_text())


def weights(prepared: Prepared) -> dict[str, np.ndarray]:
    """All arrays of the latest checkpoint, optimizer slots included."""
    last = CheckpointStore(prepared.run.checkpoints).latest()
    return {name: np.array(last.array(name)) for name in last.names}


def assert_close(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_allclose(left[name], right[name], rtol=2e-3, atol=2e-5, err_msg=name)
