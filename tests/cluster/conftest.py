"""Clusters of real processes, small and few: each is several TensorFlow programs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from easyrec.preparation import Prepared, prepare
from easyrec.training.callbacks import Callback
from tests.integration.tiny import films, pipeline

TWO = "local:workers=2,ps=2"


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    return films(tmp_path_factory.mktemp("films"), rows=3000)


@pytest.fixture(scope="session")
def make(data) -> Callable[..., Prepared]:
    """Prepares a run of the tiny pipeline in a folder, with options of `training`."""

    def run(
        output: Path,
        resume: bool = False,
        shuffle: bool = True,
        on_error: str = "fail",
        like: Path | None = None,
        **training: Any,
    ) -> Prepared:
        config = pipeline(data, like or output)
        config["data"] |= {"shuffle": shuffle, "on_error": on_error}
        config["evaluation"] |= {"ranking": False}
        config["training"] |= {
            "epochs": 2,
            "shards": {"split_batches": 2},
            "cluster": {"start_timeout": 60},
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
