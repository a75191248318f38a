"""A disk that is full when a checkpoint is due."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest

from easyrec.errors import EasyRecError
from easyrec.fitting import fit
from easyrec.training.checkpoints import CheckpointStore
from tests.cluster.conftest import At, log, processes

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
ONE = "local:workers=1,ps=1"
OPTIONS = {"checkpoints": {"every_steps": 5, "keep": 1}}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a few megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes the rights of root")
    path = tmp_path / "small"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(path)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"file systems cannot be mounted here: {done.stderr}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_training_ends_with_a_word_and_goes_on_when_there_is_room(small_disk, make):
    prepared = make(small_disk, **OPTIONS)
    filler = small_disk / "filler"

    def fill() -> None:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    watch = At((lambda info: info.step > 10, fill))
    with pytest.raises(EasyRecError, match=r"cannot be written.*No space left on device.*--resume"):
        fit(prepared, cluster=ONE, callbacks=[watch])
    assert processes() == {}
    kept = CheckpointStore(prepared.run.checkpoints).latest()
    kept.verify()
    assert kept.step >= 5, "at least the checkpoint before the one that the disk had no room for"

    filler.unlink()
    again = make(small_disk, resume=True, **OPTIONS)
    result = fit(again, cluster=ONE, resume=True)
    assert (result.reason, result.steps, result.examples) == ("completed", 76, 4800)
    assert [line["splits"] for line in log(again, "epoch")] == [19, 19]
