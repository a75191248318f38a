"""One worker takes batches in order, so a cluster must learn what one machine learns, with any number of servers."""

from __future__ import annotations

import shutil
import signal

import numpy as np
import pytest

from easyrec.fitting import fit
from easyrec.training.checkpoints import CheckpointStore
from tests.cluster.conftest import At, log

pytestmark = [pytest.mark.integration, pytest.mark.slow]
OPTIONS = {
    "jit_compile": True,
    "optimizer": {"embedding": "lazy_adam", "schedule": {"type": "cosine", "warmup_steps": 5}},
}


def weights(prepared) -> dict[str, np.ndarray]:
    last = CheckpointStore(prepared.run.checkpoints).latest()
    return {name: np.array(last.array(name)) for name in last.names}


def assert_close(left, right) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_allclose(left[name], right[name], rtol=2e-3, atol=2e-5, err_msg=name)


@pytest.fixture(scope="module")
def alone(make, tmp_path_factory):
    """The undisturbed run on one machine, from files."""
    prepared = make(tmp_path_factory.mktemp("alone"), shuffle=False, **OPTIONS)
    fit(prepared)
    return prepared


@pytest.fixture(scope="module")
def interrupted(make, tmp_path_factory):
    """Two servers, and Ctrl-C in the middle of the second epoch."""
    folder = tmp_path_factory.mktemp("interrupted")
    prepared = make(folder, shuffle=False, **OPTIONS)
    stop = At((lambda info: info.step > 45, lambda: signal.raise_signal(signal.SIGINT)))
    result = fit(prepared, cluster="local:workers=1,ps=2", callbacks=[stop])
    assert result.reason == "interrupted"
    assert 45 < result.steps < 60
    return folder


def test_ctrl_c_leaves_a_checkpoint_that_names_the_splits_done(interrupted):
    progress = CheckpointStore(interrupted / "films" / "checkpoints").latest().progress
    assert progress.epoch == 1
    assert progress.splits == list(range(len(progress.splits)))
    assert progress.batches == 2 * len(progress.splits)


def test_resumed_on_three_servers_it_ends_like_the_run_on_one_machine(interrupted, alone, make, tmp_path):
    shutil.copytree(interrupted / "films", tmp_path / "films")
    prepared = make(tmp_path, resume=True, shuffle=False, like=interrupted, **OPTIONS)
    result = fit(prepared, cluster="local:workers=1,ps=3", resume=True)
    assert (result.reason, result.steps, result.examples) == ("completed", 76, 4800)
    assert log(prepared, "epoch")[-1]["splits"] == 19
    assert_close(weights(prepared), weights(alone))


def test_resumed_on_one_machine_it_ends_like_the_run_on_one_machine(interrupted, alone, make, tmp_path):
    shutil.copytree(interrupted / "films", tmp_path / "films")
    prepared = make(tmp_path, resume=True, shuffle=False, like=interrupted, **OPTIONS)
    result = fit(prepared, resume=True)
    assert (result.reason, result.steps, result.examples) == ("completed", 76, 4800)
    assert_close(weights(prepared), weights(alone))
