"""Between epochs and every so many steps a cluster measures, keeps the best and stops as one machine does."""

from __future__ import annotations

import pytest

from easyrec.fitting import fit
from easyrec.training.checkpoints import CheckpointStore
from tests.cluster.conftest import log

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
OPTIONS = {
    "epochs": 5,
    "evaluate_every": 10,
    "early_stopping": {"metric": "liked/log_loss", "patience": 2, "min_delta": 0.08},
    "checkpoints": {"metric": "liked/log_loss", "keep": 2},
}


@pytest.mark.parametrize("mode", ["asynchronous", "synchronous"])
def test_evaluations_the_best_checkpoint_and_the_early_end_are_those_of_one_machine(mode, make, tmp_path):
    bounds = {"mode": mode, "start_timeout": 120} | ({"staleness": 1} if mode == "asynchronous" else {})
    alone = make(tmp_path / "alone", shuffle=False, **OPTIONS)
    here = fit(alone)
    prepared = make(tmp_path / "cluster", shuffle=False, cluster=bounds, **OPTIONS)
    there = fit(prepared, cluster="local:workers=1,ps=1")

    assert here.reason == "early_stopping"
    assert (there.reason, there.steps, there.epochs) == (here.reason, here.steps, here.epochs)
    assert (there.best_step, there.monitor) == (here.best_step, "liked/log_loss")
    steps = [10, 20, 30, 38, 40, 50]
    assert [one["step"] for one in there.evaluations] == [one["step"] for one in here.evaluations]
    assert [one["step"] for one in there.evaluations][: len(steps)] == steps[: len(there.evaluations)]
    for one, other in zip(there.evaluations, here.evaluations, strict=True):
        assert one["metrics"].keys() == other["metrics"].keys()
        for name, value in one["metrics"].items():
            assert value == pytest.approx(other["metrics"][name], abs=2e-3), name
    stores = [CheckpointStore(one.run.checkpoints) for one in (alone, prepared)]
    assert stores[0].best().step == stores[1].best().step
    assert [line["step"] for line in log(prepared, "evaluation")] == [
        one["step"] for one in there.evaluations
    ]
