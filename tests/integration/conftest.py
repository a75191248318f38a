"""A tiny run that many tests look at, and the command line in this process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import easyrec
import evaluation.report.layout
from easyrec.cli.main import run as run_command
from tests.integration.tiny import films, pipeline


@pytest.fixture(scope="module", autouse=True)
def _quick_pages():
    """Pages without drawings: they take longer than a tiny training, and have tests of their own, elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation.report.layout, "inline_svg", lambda figure, name, label: "<svg></svg>")
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """The films as Parquet tables."""
    return films(tmp_path_factory.mktemp("films"))


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory) -> easyrec.Run:
    """A finished run of the tiny pipeline. Tests must not change its folder."""
    return easyrec.train(pipeline(data, tmp_path_factory.mktemp("runs")))


@dataclass(frozen=True)
class Outcome:
    """What a command line did."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys) -> Callable[..., Outcome]:
    """Runs a command line in this process."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run_command([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def refused(cli) -> Callable[..., str]:
    """Runs a command line that must end with one readable error, and gives the error."""

    def run(*arguments: object, code: int = 2) -> str:
        outcome = cli(*arguments)
        assert outcome.code == code, outcome.err
        assert len(re.findall("^error: ", outcome.err, re.MULTILINE)) == 1, outcome.err
        assert "internal error" not in outcome.err
        assert "Traceback" not in outcome.err
        return outcome.err

    return run


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of 4 MiB; only root can make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount a small file system")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
