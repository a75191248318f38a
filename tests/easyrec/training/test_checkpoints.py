"""Checkpoints are whole or not there: kill -9, a full disk, damage, other models."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from easyrec.errors import CheckpointError
from easyrec.training import checkpoints
from easyrec.training.array_files import Variable
from easyrec.training.checkpoints import CheckpointStore, Progress, open_checkpoint, restore


def state(**arrays: np.ndarray) -> list[Variable]:
    def variable(name: str, array: np.ndarray) -> Variable:
        def write(values: np.ndarray) -> None:
            array[...] = values

        def read():
            yield from (
                (array[start : start + 2] for start in range(0, len(array), 2)) if array.ndim else [array]
            )

        return Variable(name, array.shape, array.dtype, read, write)

    return [variable(name, array) for name, array in arrays.items()]


def example() -> dict[str, np.ndarray]:
    return {
        "embedding/user id": np.arange(10, dtype=np.float32).reshape(5, 2),
        "seeds": np.array([1, 2], np.uint32),
        "step": np.array(7, np.int64),
        "empty": np.zeros((0, 3), np.float32),
    }


def monitor(value: float, higher: bool = True) -> dict:
    return {"metric": "liked/auc", "value": value, "higher_is_better": higher}


def test_a_state_comes_back_as_it_was_written(tmp_path):
    arrays = example()
    progress = Progress(step=12, epoch=1, batches=3, examples=99, seed=5, metrics={"liked/auc": 0.7})
    saved = CheckpointStore(tmp_path).save(state(**arrays), progress)
    assert saved.path.name == "step-0000000012"
    fresh = {name: np.zeros_like(array) for name, array in arrays.items()}
    found = open_checkpoint(saved.path)
    restore(found, state(**fresh))
    for name, array in arrays.items():
        np.testing.assert_array_equal(fresh[name], array)
        np.testing.assert_array_equal(np.load(saved.path / found.manifest["arrays"][name]["file"]), array)
    assert found.progress == progress


def test_the_latest_and_the_best_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for step, value in enumerate([0.5, 0.9, 0.7, float("nan"), 0.8], 1):
        store.save(state(**example()), Progress(step=step, monitor=monitor(value)))
    assert [checkpoint.step for checkpoint in store.all()] == [2, 4, 5]
    assert store.best().step == 2
    assert store.latest().step == 5
    assert [store.choose(which).step for which in ("best", "last", "4", 2)] == [2, 5, 4, 2]


def test_best_can_mean_smallest_and_the_earliest_of_equals(tmp_path):
    store = CheckpointStore(tmp_path, keep=9)
    for step, value in enumerate([0.5, 0.3, 0.3], 1):
        store.save(state(**example()), Progress(step=step, monitor=monitor(value, higher=False)))
    assert store.best().step == 2


def test_a_step_saved_again_replaces_the_first_only_when_it_is_whole(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path)
    store.save(state(**example()), Progress(step=7, epoch=0))
    before = set(tmp_path.iterdir())
    seen = []
    prune = CheckpointStore._prune

    def look(self):
        seen.append(before <= set(tmp_path.iterdir()))
        prune(self)

    monkeypatch.setattr(CheckpointStore, "_prune", look)
    for epoch in (1, 2):
        store.save(state(**example()), Progress(step=7, epoch=epoch, monitor=monitor(0.5)))
    assert seen[0]
    (only,) = store.all()
    assert only.progress.epoch == 2
    assert store.best().path == store.latest().path == only.path


def test_without_an_evaluation_the_best_is_the_latest(tmp_path):
    store = CheckpointStore(tmp_path)
    assert store.best() is None
    for step in (1, 2):
        store.save(state(**example()), Progress(step=step))
    assert store.best().step == 2


@pytest.mark.parametrize(
    ("which", "message"), [("bets", "'bets'; give `best`, `last`"), ("7", "one of the steps 1, 2")]
)
def test_a_checkpoint_that_is_not_there_is_named(tmp_path, which, message):
    store = CheckpointStore(tmp_path)
    with pytest.raises(CheckpointError, match="no complete checkpoint; train first"):
        store.choose(which)
    for step in (1, 2):
        store.save(state(**example()), Progress(step=step))
    with pytest.raises(CheckpointError, match=message):
        store.choose(which)


def test_one_changed_byte_is_refused_naming_the_file_and_changes_nothing(tmp_path):
    saved = CheckpointStore(tmp_path).save(state(**example()), Progress(step=1))
    victim = saved.path / "seeds.npy"
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    fresh = {name: np.zeros_like(array) for name, array in example().items()}
    with pytest.raises(CheckpointError, match=r"seeds\.npy: its content has changed.*sha256"):
        restore(open_checkpoint(saved.path), state(**fresh))
    assert not any(array.any() for array in fresh.values())


@pytest.mark.parametrize(
    "content", [None, "{", "[]", '{"format": 1}', '{"format": 1, "arrays": {"a": {"file": "gone.npy"}}}']
)
def test_half_a_checkpoint_is_passed_over(tmp_path, content):
    store = CheckpointStore(tmp_path)
    store.save(state(**example()), Progress(step=1))
    half = tmp_path / "step-0000000002"
    half.mkdir()
    if content is not None:
        (half / "manifest.json").write_text(content)
    assert store.latest().step == 1
    with pytest.raises(CheckpointError):
        open_checkpoint(half)


def test_a_format_of_the_future_is_refused(tmp_path):
    saved = CheckpointStore(tmp_path).save(state(**example()), Progress(step=1))
    (saved.path / "manifest.json").write_text(json.dumps({**saved.manifest, "format": 99}))
    with pytest.raises(CheckpointError, match="format 99, this version reads 1"):
        open_checkpoint(saved.path)


def test_a_checkpoint_of_another_model_is_refused_with_the_differences(tmp_path):
    saved = CheckpointStore(tmp_path).save(state(**example()), Progress(step=1))
    other = example()
    other["more"] = other.pop("seeds")
    other["embedding/user id"] = np.zeros((6, 2), np.float32)
    with pytest.raises(CheckpointError) as caught:
        restore(saved, state(**other))
    for part in (
        "3 differences",
        "more: not in the checkpoint",
        "seeds: not in this model",
        "shape [6, 2] here, [5, 2]",
    ):
        assert part in str(caught.value)


def test_names_that_files_cannot_have_or_that_collide(tmp_path):
    arrays = {
        name: np.array([index]) for index, name in enumerate(["a/b", "a__b", "A__B", "ä ö/ü", "x" * 300])
    }
    saved = CheckpointStore(tmp_path).save(state(**arrays), Progress(step=1))
    fresh = {name: np.array([-1]) for name in arrays}
    restore(saved, state(**fresh))
    assert fresh == arrays


def test_a_full_disk_is_a_clear_error_and_leaves_the_one_before(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path)
    store.save(state(**example()), Progress(step=1))
    written = []

    def full(stream, variable):
        written.append(variable.name)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return checkpoints_write(stream, variable)

    checkpoints_write = checkpoints.write_array
    monkeypatch.setattr(checkpoints, "write_array", full)
    with pytest.raises(
        CheckpointError, match=r"No space left on device.*is whole: .*step-0000000001.*--resume"
    ):
        store.save(state(**example()), Progress(step=2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000001"]
    restore(store.latest(), state(**example()))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_that_is_really_full(tmp_path):
    with Path("/dev/full").open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space left"):
        checkpoints.write_array(stream, state(**example())[0])


WRITER = """
import sys, numpy as np
sys.path.insert(0, {root!r})
from easyrec.training.array_files import Variable
from easyrec.training.checkpoints import CheckpointStore, Progress
array = np.zeros((64, 4096), np.float32)
variables = [Variable(f"a{{i}}", array.shape, array.dtype, lambda: iter([array]), None) for i in range(20)]
store, step = CheckpointStore({folder!r}, keep=2), 0
while True:
    step += 1
    array[:] = step
    store.save(variables, Progress(step=step))
    print(step, flush=True)
"""


def test_kill_9_while_writing_leaves_whole_checkpoints_only(tmp_path):
    code = WRITER.format(root=str(Path(checkpoints.__file__).parents[2]), folder=str(tmp_path))
    random = np.random.default_rng(0)
    steps = 0
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
            for _ in range(2):
                assert process.stdout.readline()
            time.sleep(random.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
            process.wait()
        store = CheckpointStore(tmp_path)
        found = store.all()
        assert found
        for checkpoint in found:
            checkpoint.verify()
            assert (checkpoint.array("a7") == checkpoint.step).all()
        steps += found[-1].step
    assert steps >= 8
    store.save(state(**example()), Progress(step=10**6))
    assert not list(tmp_path.glob(".writing-*"))
