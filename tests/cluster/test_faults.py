"""Workers, servers and coordinators that are lost in the middle of training, and what is left of it."""

from __future__ import annotations

import signal

import pytest

from easyrec.fitting import fit
from tests.cluster.conftest import TWO, At, kill, log, processes

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
EPOCHS = 6


class Troubled:
    """A training in which nearly everything is lost once."""

    def __init__(self, make, folder) -> None:
        self.prepared = make(
            folder,
            epochs=EPOCHS,
            checkpoints={"every_steps": 10},
            cluster={"split_timeout": 12, "start_timeout": 120},
        )
        steps = 38  # of an epoch: 2400 rows in batches of 64
        self.pids: dict[str, int] = {}

        def begin() -> None:
            self.pids = {name: process.pid for name, process in processes().items()}
            kill("worker:0")

        self.watch = At(
            (lambda info: info.step >= 3, begin),
            (lambda info: info.step >= steps + 3, lambda: kill("worker:1", signal.SIGSTOP)),
            (lambda info: info.step >= 2 * steps + 13, lambda: kill("ps:0")),
            (lambda info: info.step >= 4 * steps + 3, lambda: kill("coordinator")),
            (lambda info: info.step >= 5 * steps + 3, lambda: kill("ps:1", signal.SIGSTOP)),
        )
        self.lines: list[str] = []
        self.result = fit(self.prepared, cluster=TWO, callbacks=[self.watch], tell=self.lines.append)
        self.left = processes()


@pytest.fixture(scope="module")
def troubled(make, tmp_path_factory) -> Troubled:
    return Troubled(make, tmp_path_factory.mktemp("troubled"))


def test_training_goes_on_to_its_end(troubled):
    assert troubled.watch.actions == []
    assert troubled.result.reason == "completed"
    assert troubled.result.epochs == EPOCHS


def test_each_epoch_counts_each_split_once(troubled):
    epochs = log(troubled.prepared, "epoch")
    assert [line["epoch"] for line in epochs] == list(range(EPOCHS))
    assert {line["splits"] for line in epochs} == {19}
    assert troubled.result.examples == EPOCHS * 2400
    assert troubled.result.steps == EPOCHS * 38


def test_a_killed_worker_is_started_again_and_joins(troubled):
    assert any("worker 0" in line and "was killed by SIGKILL" in line for line in troubled.lines)
    workers = log(troubled.prepared, "train")[-1]["workers"]
    assert workers.keys() == {"worker:0", "worker:1"}
    assert all(worker["splits"] > 0 for worker in workers.values())


def test_a_worker_that_hangs_is_ended(troubled):
    assert any("worker 1" in line and "does nothing" in line for line in troubled.lines)


def test_a_lost_server_costs_no_more_than_what_came_after_the_last_checkpoint(troubled):
    lost = log(troubled.prepared, "lost")
    server, coordinator, hanging = lost
    assert "ps 0 does not answer" in server["why"]
    assert "the coordinator was killed by SIGKILL" in coordinator["why"]
    assert "ps 1" in hanging["why"]
    assert "has not answered for 12 seconds" in hanging["why"]
    for line in lost:
        assert line["step"] - line["from_step"] <= 10 + 3 * 2  # the interval, and the splits under way
        assert line["steps_again"] == line["step"] - line["from_step"]
    assert len(troubled.watch.notes) >= len(lost)
    assert "goes on from the checkpoint of step" in troubled.watch.notes[0]


def test_evaluations_are_reported_once(troubled):
    steps = [one["step"] for one in troubled.result.evaluations]
    assert steps == sorted(set(steps))
    assert len(steps) == EPOCHS


def test_the_model_is_as_good_as_one_trained_in_peace(troubled, make, tmp_path):
    peace = fit(make(tmp_path, epochs=EPOCHS))
    gap = (
        peace.evaluations[-1]["metrics"]["liked/auc"]
        - troubled.result.evaluations[-1]["metrics"]["liked/auc"]
    )
    assert abs(gap) < 0.05
    assert troubled.result.evaluations[-1]["metrics"]["liked/auc"] > 0.75


def test_no_process_is_left(troubled):
    assert troubled.left == {}
