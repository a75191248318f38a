"""Whole experiments simulated from logs to verdicts, many times: do the promises hold through the whole analysis?

The formulas alone are simulated thousands of times in test_statistics_properties.py, in every run of the tests. This
takes about a second an experiment, so it runs where EASYREC_SIMULATIONS names how many: `make simulations`.
"""

import math
import os

import pytest

from evaluation.abtest.analysis.engines import duckdb_connection
from evaluation.abtest.analysis.run import Logs, analyze
from evaluation.abtest.analysis.tables import open_events, open_exposures

COUNT = int(os.environ.get("EASYREC_SIMULATIONS", "0"))
LIFT = 0.1
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not COUNT, reason="EASYREC_SIMULATIONS names no number of experiments; see `make simulations`"
    ),
]


def analyzed(one):
    one.write()
    with duckdb_connection("500MB", threads=1) as connection:
        tables = [
            open_exposures(connection, one.folder / "exposures"),
            open_events(connection, one.folder / "events"),
        ]
        return analyze(one.config, "din", Logs(*tables))


@pytest.fixture(scope="module", params=[0.0, LIFT])
def results(request, simulated):
    """Analyses of experiments with one lift, of users of their own each."""
    settings = {"users": 1000, "days": 6, "lift": request.param, "planned_n": 1000}
    return request.param, [analyzed(simulated(seed=seed, **settings)) for seed in range(COUNT)]


def within(count, share, reach=3.3):
    """The range in which a share of so many experiments lies in all but one of a thousand cases."""
    error = reach * math.sqrt(share * (1 - share) / count)
    return share - error - 0.5 / count, share + error + 0.5 / count


def test_what_is_said_of_the_goal(results):
    lift, found = results
    words = [one.metric("ctr").conclusion for one in found]
    if lift:
        right = sum(word == "better" for word in words)
        assert "worse" not in words  # no significant result has the wrong sign
        assert right / len(found) > 0.5
    else:
        low, high = within(COUNT, 0.05)
        assert low <= sum(word in ("better", "worse") for word in words) / COUNT <= high


def test_intervals_cover_the_true_effect(results):
    lift, found = results
    covered = [one.metric("ctr").relative.low <= lift <= one.metric("ctr").relative.high for one in found]
    # At least: the bound of the last of several looks is wider than that of one look.
    assert sum(covered) / COUNT >= within(COUNT, 0.95)[0]


def test_alarms_without_a_fault(results):
    _, found = results
    red = [check.key for one in found for check in one.checks if check.status == "red"]
    # Each of eight tests raises the alarm in one of a thousand experiments.
    assert len(red) / COUNT <= within(COUNT, 0.008)[1], red
