"""Plans keep their word in simulation, and A/A tests find no difference where there is none."""

import math

import numpy as np
import pytest

from evaluation.abtest.analysis.engines import duckdb_connection
from evaluation.abtest.analysis.history import bucket_sums, history_of, inflation, plan
from evaluation.abtest.analysis.null_splits import simulate_null
from evaluation.abtest.analysis.planning_text import null_text, plan_text
from evaluation.abtest.analysis.run import questions_of
from evaluation.abtest.analysis.tables import open_events
from evaluation.abtest.analysis.values import moments, snapshot
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.statistics.moments import Moments
from evaluation.abtest.statistics.sequential import SpendingBounds

DAY = 86_400.0


@pytest.fixture(scope="module")
def past(simulated):
    """Past events, read as history."""
    one = simulated(users=3000, days=8, seed=9).write()
    with duckdb_connection("500MB", threads=2) as connection:
        config = one.config.experiments["din"]
        history = history_of(
            config,
            questions_of(one.config, config),
            open_events(connection, one.folder / "events"),
            "user_id",
        )
        yield config, history


def test_the_plan(past):
    config, history = past
    result = plan(history, config, 0.5, mde=0.05)
    ctr = result.metrics[0]
    assert ctr.name == "ctr"
    assert result.left_out == ["latency_p95"]
    assert 0.15 < ctr.value < 0.25
    assert 0 < ctr.variance_saved < 1
    # The closed form with the plan's own numbers: two halves of `needed` units.
    reach = 1.959964 + 0.841621
    expected = result.inflation * reach**2 * 4 * (ctr.sd / (0.05 * ctr.value)) ** 2
    assert ctr.needed == pytest.approx(expected, rel=1e-5)
    seen = {days: effect for days, _, effect in ctr.table}
    assert seen[28] < seen[7]
    text = plan_text(result, config)
    assert f"planned_n: {math.ceil(ctr.needed)}" in text
    assert "latency_p95" in text
    without = plan(history, config, 0.5)
    assert math.isnan(without.metrics[0].needed)


def test_unequal_arms_need_more(past):
    config, history = past
    variants = dict(config.variants)
    variants["control"] = variants["control"].model_copy(update={"weight": 9})
    uneven = config.model_copy(update={"variants": variants})
    even, odd = (plan(history, one, 1.0, mde=0.05).metrics[0].needed for one in (config, uneven))
    assert odd / even == pytest.approx((1 / 0.9 + 1 / 0.1) / 4)


def test_the_planned_size_has_its_power_when_everyone_looks_every_day():
    looks, effect = 14, 0.3
    factor = inflation(0.05, 0.8, 2.0, looks)
    assert 1 < factor < 1.2
    count = math.ceil(factor * 2 * (1.959964 + 0.841621) ** 2 / effect**2)
    random = np.random.default_rng(0)
    step = np.array_split(np.arange(count), looks)
    bounds = SpendingBounds([(place + 1) / looks for place in range(looks)]).bounds(0.05)
    crossed = np.zeros(3000, dtype=bool)
    arms = [random.normal(mean, 1, (3000, count)) for mean in (0, effect)]
    for place, bound in enumerate(bounds):
        seen = step[place][-1] + 1
        gap = arms[1][:, :seen].mean(axis=1) - arms[0][:, :seen].mean(axis=1)
        crossed |= np.abs(gap) / math.sqrt(2 / seen) > bound
    assert 0.775 < crossed.mean() < 0.825


def test_no_difference_is_found_in_splits_of_past_users(past):
    config, history = past
    result = simulate_null(history, config, runs=400)
    assert [one.name for one in result.metrics] == ["ctr", "revenue", "conversion", "sessions"]
    for one in result.metrics:
        assert 0.02 < one.false_positives < 0.085, one
        assert 0.9 < one.error_ratio < 1.1, one
    assert result.ratio_alarms <= 0.01
    assert "400 splits" in null_text(result)
    assert simulate_null(history, config, runs=50) == simulate_null(history, config, runs=50)
    with pytest.raises(ExperimentDataError, match="at least"):
        simulate_null(history, config, runs=0)


def test_sums_by_bucket_are_those_of_all_units(past):
    _, history = past
    units, sums = bucket_sums(history)
    assert units.sum() == history.values.table.counts["units"]
    assert (units > 0).sum() > 2000  # of 3,000 units, few share one of the 10,000 buckets
    wide, end = snapshot(history.values)
    for name, by_variant in moments(history.values, wide, end, history.metrics).items():
        [whole] = by_variant.values()
        assert sums[name].everybody.count == whole.count
        assert sums[name].everybody.mean == pytest.approx(whole.mean)
        assert sums[name].everybody.cov == pytest.approx(whole.cov)


def test_what_cannot_be_planned(past):
    config, history = past
    with pytest.raises(ExperimentDataError, match="0% of the traffic"):
        plan(history, config, 0.0)


def test_moments_of_nothing_do_not_plan():
    assert math.isnan(float(Moments.of_values(np.zeros(0)).value()))
