"""The Open Bandit sample: real logs of two policies on the same shop in the same week.

The data are in the source distribution of the PyPI package obp 0.5.7 (`pip download obp==0.5.7 --no-deps --no-binary
obp`). Unpack it and name its folder `obp/dataset/obd` in EASYREC_OPEN_BANDIT.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evaluation.off_policy import LoggedActions, estimate_value


@pytest.fixture(scope="module")
def open_bandit() -> Path:
    folder = os.environ.get("EASYREC_OPEN_BANDIT")
    if folder is None or not Path(folder).is_dir():
        pytest.skip("the Open Bandit sample is not here; name its folder in EASYREC_OPEN_BANDIT")
    return Path(folder)


@pytest.mark.parametrize(("campaign", "n_items"), [("all", 80), ("men", 34), ("women", 46)])
def test_the_uniform_policy_is_judged_from_the_logs_of_the_other(
    open_bandit: Path, campaign: str, n_items: int
) -> None:
    other = pd.read_csv(open_bandit / "bts" / campaign / f"{campaign}.csv")
    uniform = pd.read_csv(open_bandit / "random" / campaign / f"{campaign}.csv")
    propensity = other["propensity_score"].to_numpy()
    logs = LoggedActions.of(other["click"], propensity, np.full(len(other), 1 / n_items))
    result = estimate_value(logs, min_effective_share=0.0, resamples=400)
    truth = uniform["click"].mean()
    one = result.estimates["snips"].estimate
    spread = 2 * np.sqrt(truth / len(uniform))
    assert one.low - spread <= truth <= one.high + spread
    assert result.logged.value == pytest.approx(other["click"].mean())
    assert 0 < result.support.effective_rows < len(other)
    # A policy judged from its own logs earns what it earned.
    own = LoggedActions.of(uniform["click"], uniform["propensity_score"], uniform["propensity_score"])
    assert estimate_value(own, ["ips", "snips"], resamples=40).value("snips") == pytest.approx(truth)
