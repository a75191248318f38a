"""Synchronous workers learn what one machine learns from larger batches, whatever happens to one of them."""

from __future__ import annotations

import signal

import pytest

from easyrec.fitting import fit
from tests.cluster.conftest import DEMANDING, TWO, At, assert_close, kill, log, weights

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
SYNCHRONOUS = {"mode": "synchronous", "start_timeout": 120, "split_timeout": 20}


@pytest.fixture(scope="module")
def alone(make, tmp_path_factory):
    """One machine, batches of 128."""
    prepared = make(tmp_path_factory.mktemp("alone"), shuffle=False, l2=0.001, batch_size=128, **DEMANDING)
    fit(prepared)
    return prepared


def test_two_workers_learn_what_one_machine_learns_from_batches_twice_as_large(alone, make, tmp_path):
    prepared = make(tmp_path, shuffle=False, l2=0.001, cluster=SYNCHRONOUS, **DEMANDING)
    lose = At((lambda info: info.step >= 4, lambda: kill("worker:0")))
    result = fit(prepared, cluster=TWO, callbacks=[lose])
    assert lose.actions == []
    assert (result.reason, result.steps, result.examples) == ("completed", 2 * 19, 2 * 2400)
    assert [(line["splits"], line["batches"]) for line in log(prepared, "epoch")] == [(19, 38), (19, 38)]
    assert_close(weights(prepared), weights(alone))
    # By step: where the server complains of the lost worker before the coordinator does, steps are done again.
    losses, expected = (
        {line["step"]: line["loss"] for line in log(one, "train")} for one in (prepared, alone)
    )
    assert losses == pytest.approx(expected, rel=1e-3)
    assert len(log(prepared, "train")) == len(expected) or log(prepared, "lost")


@pytest.mark.nightly
def test_three_workers_pause_between_splits_and_go_on_with_two(make, tmp_path):
    """A checkpoint falls between two splits, though the rounds of three do not."""
    prepared = make(tmp_path, cluster=SYNCHRONOUS, checkpoints={"every_steps": 3, "keep": 50})
    stop = At((lambda info: info.step >= 15, lambda: signal.raise_signal(signal.SIGINT)))
    first = fit(prepared, cluster="local:workers=3,ps=1", callbacks=[stop])
    assert first.reason == "interrupted"
    again = make(tmp_path, resume=True, cluster=SYNCHRONOUS, checkpoints={"every_steps": 3, "keep": 50})
    result = fit(again, cluster=TWO, resume=True)
    assert (result.reason, result.examples) == ("completed", 2 * 2400)
    assert [line["splits"] for line in log(again, "epoch")] == [19, 19]
