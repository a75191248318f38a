"""One worker takes batches in order, so a cluster must learn what one machine learns, with any number of servers."""

from __future__ import annotations

import shutil
import signal

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from easyrec import workflow
from easyrec.export.bundle import Bundle
from easyrec.fitting import fit
from easyrec.preparation import open_prepared
from easyrec.training.checkpoints import CheckpointStore
from tests.cluster.conftest import DEMANDING, At, assert_close, log, weights

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
OPTIONS = {"jit_compile": True, "cluster": {"start_timeout": 120, "staleness": 1}, **DEMANDING}


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


@pytest.mark.parametrize("servers", [pytest.param(1, marks=pytest.mark.nightly), 3])
def test_resumed_on_other_servers_it_ends_like_the_run_on_one_machine(
    servers, interrupted, alone, make, tmp_path
):
    shutil.copytree(interrupted / "films", tmp_path / "films")
    prepared = make(tmp_path, resume=True, shuffle=False, like=interrupted, **OPTIONS)
    result = fit(prepared, cluster=f"local:workers=1,ps={servers}", resume=True)
    assert (result.reason, result.steps, result.examples) == ("completed", 76, 4800)
    assert log(prepared, "epoch")[-1]["splits"] == 19
    assert_close(weights(prepared), weights(alone))


def test_what_is_exported_after_it_is_what_one_machine_exports_from_the_same_weights(
    interrupted, make, tmp_path
):
    shutil.copytree(interrupted / "films", tmp_path / "films")
    before = make(tmp_path, resume=True, shuffle=False, like=interrupted, **OPTIONS)
    after = workflow.train(before.config, run=tmp_path / "films", resume=True, cluster="local:workers=1,ps=2")
    assert after.result.reason == "completed"
    shutil.move(after.folder.bundle, tmp_path / "after")
    prepared = open_prepared(after.folder)
    workflow.restore_best(prepared)
    workflow.export(prepared)
    theirs, own = Bundle.load(tmp_path / "after"), Bundle.load(after.folder.bundle)
    rows = pd.concat([chunk.to_pandas() for chunk in prepared.data.eval.chunks()], ignore_index=True)
    assert_frame_equal(theirs.predict(rows), own.predict(rows))
    user = int(rows["user_id"].iloc[0])
    assert_frame_equal(theirs.recommend(user, 5), own.recommend(user, 5))


def test_resumed_on_one_machine_it_ends_like_the_run_on_one_machine(interrupted, alone, make, tmp_path):
    shutil.copytree(interrupted / "films", tmp_path / "films")
    prepared = make(tmp_path, resume=True, shuffle=False, like=interrupted, **OPTIONS)
    result = fit(prepared, resume=True)
    assert (result.reason, result.steps, result.examples) == ("completed", 76, 4800)
    assert_close(weights(prepared), weights(alone))
