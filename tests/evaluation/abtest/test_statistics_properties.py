"""What must hold for every number: duality, agreement with another library, and error rates in simulation."""

import dataclasses
import math

import numpy as np
import pytest
import tea_tasting as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_ind
from tea_tasting.aggr import Aggregates

from evaluation.abtest.analysis.judging import Judge
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.statistics.effects import compare, non_inferiority
from evaluation.abtest.statistics.moments import Moments
from evaluation.abtest.statistics.multiplicity import benjamini_hochberg, holm
from evaluation.abtest.statistics.paired import preference, sign_test
from evaluation.abtest.statistics.power import (
    Traffic,
    detectable_effect,
    mean_count,
    mean_power,
    normal_count,
    proportion_count,
)
from evaluation.abtest.statistics.proportions import newcombe, wilson
from evaluation.abtest.statistics.quantiles import QuantileMoments, compare_quantiles
from evaluation.abtest.statistics.ratio_check import independence_p, sample_ratio_p
from evaluation.abtest.statistics.sequential import (
    SpendingBounds,
    always_valid_p,
    confidence_sequence,
    normal_bound,
)

ALPHA = 0.05


def users(seed, count, *, effect=0.0):
    """Clicks and impressions of users, now and before, whose rate is their own."""
    random = np.random.default_rng(seed)
    rate = random.beta(2, 18, count)
    shown, before = 1 + random.poisson(12, count), 1 + random.poisson(8, count)
    now = random.binomial(shown, np.clip(rate * (1 + effect), 0, 1))
    return [one.astype(float) for one in (now, shown, random.binomial(before, rate), before)]


ARMS = [Moments.of_values(*users(1, 400)), Moments.of_values(*users(2, 300, effect=0.2))]


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("cuped", [False, True])
def test_intervals_and_p_values_say_the_same(alternative, alpha, cuped):
    random = np.random.default_rng(0)
    arms = [
        Moments.of_values(random.gamma(2, 1, (500, 40)), None, random.gamma(2, 1, (500, 40)))
        for _ in range(2)
    ]
    compared = compare(*arms, cuped=cuped)
    for contrast in (compared.absolute, compared.relative, compared.log_ratio, non_inferiority(*arms, 0.05)):
        low, high = contrast.interval(alpha, alternative)
        assert np.array_equal((low > 0) | (high < 0), contrast.p_value(alternative) < alpha)
    low, high = compared.relative_interval(alpha, alternative)
    assert np.array_equal((low > 0) | (high < 0), compared.log_ratio.p_value(alternative) < alpha)


SCHEDULES = [SpendingBounds([(k + 1) / 6 for k in range(looks)]) for looks in range(1, 7)]


@settings(max_examples=60, deadline=None)
@given(
    z=st.floats(-6, 6),
    alpha=st.sampled_from([0.01, 0.05, 0.1]),
    looks=st.integers(1, 6),
)
def test_duality_of_sequential_methods(z, alpha, looks):
    bounds = SCHEDULES[looks - 1]
    p_value = bounds.p_value(z, alpha)
    assert (p_value < alpha) == (abs(z) > bounds.bounds(alpha)[-1])
    arms = [Moments.of_mean(1000, 1.0, 1.0), Moments.of_mean(1000, 1 + z * math.sqrt(2 / 1000), 1.0)]
    contrast = compare(*arms).absolute
    low, high = confidence_sequence(contrast, np.float64(2000), alpha, 3000)
    assert (low > 0 or high < 0) == (always_valid_p(contrast, np.float64(2000), alpha, 3000) < alpha)


def test_sequential_p_values_are_monotone_and_one_look_is_the_ordinary_test():
    bounds = SpendingBounds([1.0])
    assert bounds.bounds(ALPHA)[0] == pytest.approx(normal_bound(ALPHA))
    three = SpendingBounds([0.3, 0.6, 1.0])
    values = [three.p_value(z, ALPHA) for z in np.linspace(0, 6, 25)]
    assert values == sorted(values, reverse=True)
    assert bounds.p_value(2.5758293, ALPHA) == pytest.approx(0.01, rel=1e-3)
    # Beyond the plan the last look spends what is left.
    assert SpendingBounds([0.5, 1.4]).bounds(ALPHA) == SpendingBounds([0.5, 1.0]).bounds(ALPHA)


@pytest.mark.parametrize("looks", [[], [0.0, 1.0], [0.5, 0.5], [0.8, 0.3]])
def test_looks_must_ascend(looks):
    with pytest.raises(ExperimentDataError, match="ascending"):
        SpendingBounds(looks)


def aggregates(columns):
    names = ["n", "d", "pn", "pd"]
    values = np.array(columns)
    cov = np.cov(values)
    return Aggregates(
        count_=values.shape[1],
        mean_=dict(zip(names, values.mean(axis=1), strict=True)),
        var_={name: cov[k, k] for k, name in enumerate(names)},
        cov_={
            tuple(sorted((a, b))): cov[i, j]
            for i, a in enumerate(names)
            for j, b in enumerate(names)
            if i < j
        },
    )


@pytest.mark.parametrize("cuped", [False, True])
def test_ratios_with_and_without_cuped_agree_with_tea_tasting(cuped):
    first, second = users(1, 400), users(2, 300, effect=0.2)
    covariates = {"numer_covariate": "pn", "denom_covariate": "pd"} if cuped else {}
    metric = tt.RatioOfMeans("n", "d", **covariates)
    theirs = metric.analyze_aggregates(aggregates(first), aggregates(second))
    ours = compare(*ARMS, cuped=cuped)
    low, high = ours.absolute.interval()
    relative = ours.relative_interval()
    got = [
        ours.control,
        ours.treatment,
        ours.absolute.estimate,
        low,
        high,
        ours.absolute.p_value(),
        *relative,
    ]
    assert [float(one) for one in got] == pytest.approx(
        [
            theirs.control,
            theirs.treatment,
            theirs.effect_size,
            theirs.effect_size_ci_lower,
            theirs.effect_size_ci_upper,
            theirs.pvalue,
            theirs.rel_effect_size_ci_lower,
            theirs.rel_effect_size_ci_upper,
        ],
        rel=1e-9,
    )


def test_means_agree_with_scipy():
    a, b = np.random.default_rng(0).gamma(2, 1, (2, 50))
    theirs = ttest_ind(b, a, equal_var=False)
    ours = compare(Moments.of_values(a), Moments.of_values(b)).absolute
    assert float(ours.p_value()) == pytest.approx(theirs.pvalue, rel=1e-12)
    assert [float(one) for one in ours.interval()] == pytest.approx(
        list(theirs.confidence_interval()), rel=1e-9
    )


def test_moments_add_up_in_any_order():
    parts = [users(seed, 50 + seed) for seed in range(3)]
    together = Moments.of_values(*[np.concatenate(columns) for columns in zip(*parts, strict=True)])
    first, second, third = (Moments.of_values(*part) for part in parts)
    for total in (first + second + third, third + (first + second)):
        assert total.count == together.count
        assert total.mean == pytest.approx(together.mean, rel=1e-12)
        assert total.cov == pytest.approx(together.cov, rel=1e-9)
    values = np.array([np.concatenate(columns) for columns in zip(*parts, strict=True)])
    of_sums = Moments.of_sums(values.shape[1], values.sum(axis=1), values @ values.T)
    assert of_sums.cov == pytest.approx(together.cov, rel=1e-9)


def test_a_large_constant_is_no_variance():
    values = np.full(1000, 1e6 + 0.1)
    sums = np.array([values.sum(), 1000, 0, 1000])
    rows = np.stack([values, np.ones(1000), np.zeros(1000), np.ones(1000)])
    one = Moments.of_sums(1000, sums, rows @ rows.T)
    assert one.variance() == 0
    assert math.isnan(float(compare(one, one).absolute.p_value()))


def test_cuped_keeps_the_effect_and_saves_variance():
    plain, adjusted = compare(*ARMS), compare(*ARMS, cuped=True)
    assert 0.02 < float(adjusted.variance_saved) < 0.9
    assert float(adjusted.absolute.se) < float(plain.absolute.se)
    assert float(plain.variance_saved) == 0
    constant = [Moments.of_values(users(k, 50)[0]) for k in (1, 2)]
    assert float(compare(*constant, cuped=True).theta) == 0


def test_arms_without_units_or_denominators_have_no_number():
    nobody = Moments.of_values(np.zeros(0))
    assert math.isnan(float(compare(nobody, ARMS[0]).absolute.p_value()))
    unseen = Moments.of_values(np.zeros(9), np.zeros(9))
    assert math.isnan(float(compare(unseen, ARMS[0], cuped=True).absolute.estimate))


def test_false_positives_of_fixed_tests():
    # 4000 A/A experiments at once, skewed data, unequal arms, with and without CUPED, and as a ratio.
    random = np.random.default_rng(3)
    taste = random.gamma(1, 1, (4000, 450))
    now, before, shown = random.poisson(taste), random.poisson(taste), 1 + random.poisson(3, taste.shape)
    halves = [np.s_[:, :150], np.s_[:, 150:]]
    means = [Moments.of_values(now[part], None, before[part]) for part in halves]
    ratios = [Moments.of_values(now[part], shown[part], before[part], shown[part]) for part in halves]
    for arms in (means, ratios):
        for cuped in (False, True):
            rate = float((compare(*arms, cuped=cuped).absolute.p_value() < ALPHA).mean())
            assert 0.03 < rate < 0.07


def paths(seed, experiments, looks, effect=0.0):
    """z statistics at equal looks: float64 [experiments, looks]; `effect` is the mean of z at the end."""
    steps = np.random.default_rng(seed).normal(effect / looks, 1 / math.sqrt(looks), (experiments, looks))
    return steps.cumsum(axis=1) / np.sqrt(np.arange(1, looks + 1) / looks)


def test_looking_every_day():
    looks = 14
    null, real = paths(4, 20_000, looks), paths(5, 20_000, looks, effect=2.8016)
    bounds = np.array(SpendingBounds([(k + 1) / looks for k in range(looks)]).bounds(ALPHA))
    naive = float((np.abs(null) > normal_bound(ALPHA)).any(axis=1).mean())
    assert naive > 0.18  # what the bounds are for
    assert float((np.abs(null) > bounds).any(axis=1).mean()) == pytest.approx(ALPHA, abs=0.006)
    assert float((real > bounds).any(axis=1).mean()) > 0.74  # 80% without looking


@pytest.mark.parametrize("spread", [0.01, 1.0])
def test_looking_every_day_at_users_who_all_came_on_the_first(spread):
    # Their number is the planned one at once, and what they do goes on: bounds that counted users alone would be
    # crossed in up to a fifth of these experiments without a difference.
    random = np.random.default_rng(14)
    experiments, users, days = 2000, 100, 14
    tastes = [random.gamma(1 / spread, spread, (experiments, users)) for _ in range(2)]
    sums = [np.zeros((experiments, users)) for _ in range(2)]
    scores = []
    for _ in range(days):
        sums = [done + random.poisson(taste) for done, taste in zip(sums, tastes, strict=True)]
        scores.append(compare(*(Moments.of_values(one) for one in sums)).absolute.statistic)
    judge = Judge("group_sequential", ALPHA, 2.0, 2 * users, over=True, planned_days=days)
    bounds = SpendingBounds([judge.information(2 * users, day + 1) for day in range(days)]).bounds(ALPHA)
    crossed = np.abs(np.stack(scores)) > np.array(bounds)[:, None]
    assert 0.02 < float(crossed.any(axis=0).mean()) < 0.065
    # Without days, the first look with all users is the end, and the later ones decide nothing.
    assert float((np.abs(np.stack(scores)) > normal_bound(ALPHA)).any(axis=0).mean()) > 0.1
    arms = [Moments.of_values(random.normal(0, 1, 100)) for _ in range(2)]
    looks = dataclasses.replace(judge, planned_days=None).looks([compare(*arms)] * 3, [2 * users] * 3)
    assert [one.tested for one in looks] == [True, False, False]
    assert [math.isnan(one.p_value) for one in looks] == [False, True, True]


def test_always_valid_intervals_hold_at_all_times():
    random = np.random.default_rng(6)
    batches, size, experiments = 40, 50, 1500
    moments = None
    outside = np.zeros(experiments, dtype=bool)
    for _ in range(batches):
        arms = [Moments.of_values(random.exponential(1, (experiments, size))) for _ in range(2)]
        moments = arms if moments is None else [a + b for a, b in zip(moments, arms, strict=True)]
        count = moments[0].count + moments[1].count
        if count[0] < 200:
            continue
        low, high = confidence_sequence(compare(*moments).absolute, count, ALPHA, 1000)
        outside |= (low > 0) | (high < 0)
    assert float(outside.mean()) <= ALPHA


@pytest.mark.parametrize("ratio", [1.0, 0.25])
def test_the_planned_size_has_the_planned_power(ratio):
    count = math.ceil(mean_count(0.25, ratio=ratio))
    random = np.random.default_rng(7)
    arms = [
        Moments.of_values(random.normal(shift, 1, (4000, size)))
        for shift, size in ((0.0, count), (0.25, round(count * ratio)))
    ]
    rate = float((compare(*arms).absolute.p_value() < ALPHA).mean())
    assert 0.78 < rate < 0.82
    assert mean_power(0.25, count, ratio=ratio) == pytest.approx(0.8, abs=0.002)


def test_intervals_cover_a_known_effect():
    random = np.random.default_rng(8)
    control = random.gamma(2, 1, (3000, 300))
    treatment = 1.1 * random.gamma(2, 1, (3000, 300))
    compared = compare(Moments.of_values(control), Moments.of_values(treatment))
    low, high = compared.absolute.interval()
    assert 0.93 < float(((low < 0.2) & (high > 0.2)).mean()) < 0.97
    low, high = compared.relative_interval()
    assert 0.93 < float(((low < 0.1) & (high > 0.1)).mean()) < 0.97
    assert (low > -1).all()


def test_non_inferiority():
    random = np.random.default_rng(9)
    good = Moments.of_values(random.normal(10, 1, 5000))
    worse = Moments.of_values(random.normal(9, 1, 5000))
    same = non_inferiority(good, Moments.of_values(random.normal(10, 1, 5000)), 0.02)
    assert float(same.p_value("greater")) < 0.001
    harmed = non_inferiority(good, worse, 0.02)
    assert float(harmed.p_value("greater")) > 0.999
    assert float(harmed.p_value("less")) < 0.001
    lower = non_inferiority(good, worse, 0.02, higher_is_better=False)  # latency went down
    assert float(lower.p_value("greater")) < 0.001


def test_false_passes_of_non_inferiority_at_its_margin():
    random = np.random.default_rng(10)
    arms = [Moments.of_values(random.normal(mean, 2, (4000, 200))) for mean in (10, 9.5)]
    rate = float((non_inferiority(*arms, 0.05).p_value("greater") < ALPHA).mean())
    assert 0.03 < rate < 0.07


def test_rates_with_few_events_stay_inside_and_cover():
    assert float(wilson(0, 20)[0]) == pytest.approx(0, abs=1e-12)
    random = np.random.default_rng(11)
    first, second = random.binomial(60, 0.03, 20_000), random.binomial(60, 0.08, 20_000)
    low, high = newcombe(first, 60, second, 60)
    assert (low >= -1).all()
    assert (high <= 1).all()
    assert float(((low < 0.05) & (high > 0.05)).mean()) > 0.93


def test_alarms_of_the_sample_ratio():
    counts = np.random.default_rng(12).binomial(10_000, 0.5, 4000)
    alarms = sum(sample_ratio_p([one, 10_000 - one], [1, 1]) < 0.001 for one in counts)
    assert alarms <= 0.003 * 4000
    assert sample_ratio_p([5, 0], [1, 0]) == 1
    assert sample_ratio_p([5, 1], [1, 0]) == 0
    with pytest.raises(ExperimentDataError, match="do not fit"):
        sample_ratio_p([1, 2, 3], [1, 1])


def test_independence():
    assert independence_p(np.array([[50, 50], [50, 50]])) == 1
    assert independence_p(np.array([[90, 10], [10, 90]])) < 1e-20
    assert independence_p(np.array([[90, 10], [0, 0]])) == 1


def test_quantiles_over_simulated_users():
    random = np.random.default_rng(13)
    wrong = 0
    for _ in range(300):
        arms = []
        for _ in range(2):
            values = np.sort(random.exponential(1, 2000))
            se = math.sqrt(0.9 * 0.1 / 2000)
            low, high = np.quantile(values, [0.9 - 1.96 * se, 0.9 + 1.96 * se])
            arms.append(QuantileMoments(float(np.quantile(values, 0.9)), float(low), float(high), 2000))
        wrong += float(compare_quantiles(*arms)[0].p_value()) < ALPHA
    assert wrong / 300 < 0.09


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_adjusted_p_values_are_in_the_same_order_and_never_smaller(p_values):
    for adjusted in (holm(p_values), benjamini_hochberg(p_values)):
        assert all(b >= a - 1e-15 for a, b in zip(p_values, adjusted, strict=True))
        assert all(0 <= one <= 1 for one in adjusted)
        order = np.argsort(p_values, kind="stable")
        assert (np.diff(np.array(adjusted)[order]) >= -1e-15).all()


def test_missing_p_values_take_no_part():
    assert holm([0.01, math.nan, 0.04])[0] == pytest.approx(0.02)
    assert math.isnan(holm([0.01, math.nan])[1])


def test_planning():
    assert normal_count(0.1) == pytest.approx(mean_count(0.1), rel=0.01)
    assert proportion_count(0.1, 0.01) == pytest.approx(proportion_count(0.11, -0.01), rel=1e-9)
    assert detectable_effect(1) == math.inf
    traffic = Traffic((100.0, 50.0, 50.0))
    assert (traffic.total(2), traffic.days(150), traffic.days(10**9)) == (150, 2, None)
    assert traffic.total(5) == pytest.approx(200 + 2 * 200 / 3)
    for wrong in (
        lambda: mean_count(0),
        lambda: mean_count(0.1, power=0.01),
        lambda: proportion_count(0.9, 0.2),
    ):
        with pytest.raises(ExperimentDataError):
            wrong()


def test_preferences():
    random = np.random.default_rng(14)
    scores = np.clip(random.normal(0.1, 0.4, 2000), -1, 1)
    one = preference(scores)
    low, high = one.contrast.interval()
    assert low < 0.1 < high
    assert one.wins_a + one.wins_b + one.ties == 2000
    assert one.sign_p == sign_test(one.wins_a, one.wins_b) < 0.001
    assert sign_test(0, 0) == 1
    with pytest.raises(ExperimentDataError, match="between -1 and 1"):
        preference(np.array([0.0, 2.0]))
    with pytest.raises(ExperimentDataError, match="at least two"):
        preference(np.array([0.0]))
