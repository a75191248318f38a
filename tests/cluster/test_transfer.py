"""Several batches at once, and rows and gradients in half the bytes: every split once, and about the same model."""

import pytest

from easyrec.fitting import fit
from tests.cluster.conftest import TWO, log

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]


def test_in_streams_and_in_bfloat16_it_still_learns_from_every_split_once(make, tmp_path):
    moved, measured = {}, {}
    for name, cluster in {
        "plain": {"streams": 1},
        "short": {"streams": 3, "transfer": "bfloat16"},
    }.items():
        folder = tmp_path / name
        prepared = make(folder, cluster={"start_timeout": 60, **cluster})
        result = fit(prepared, cluster=TWO)
        assert (result.reason, result.steps, result.examples) == ("completed", 76, 4800)
        assert [line["splits"] for line in log(prepared, "epoch")] == [19, 19]
        moved[name] = log(prepared, "train")[-1]["bytes_moved"] / log(prepared, "train")[-1]["step"]
        measured[name] = log(prepared, "evaluation")[-1]["liked/auc"]
    assert 0.45 < moved["short"] / moved["plain"] < 0.9
    # Six batches at once are a sixth of all there are in an epoch here, so some are computed with old rows; how many,
    # the machine decides.
    assert measured["plain"] > 0.75
    assert measured["short"] - 0.5 > 0.5 * (measured["plain"] - 0.5)
