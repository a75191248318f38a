"""Which rule fires, and the second computation of every effect."""

import math
from dataclasses import replace

import numpy as np
import pytest

from evaluation.abtest.analysis import second_opinion as module
from evaluation.abtest.analysis.results import Check, Interval, MetricResult
from evaluation.abtest.analysis.second_opinion import second_opinion
from evaluation.abtest.analysis.verdict import decide, overall
from evaluation.abtest.statistics.moments import Moments

GOAL = MetricResult(
    "ctr", "goal", "higher", "b", 500, 500, 0.1, 0.11, Interval(0.01), Interval(0.1, 0.05, 0.15)
)
BETTER, WORSE = replace(GOAL, conclusion="better"), replace(GOAL, conclusion="worse")
FLAT = replace(GOAL, conclusion="no difference shown", detectable=0.04)
GUARD = replace(GOAL, metric="latency", role="guardrail", conclusion="holds", margin=0.02)


def word(*results, days=14.0, over=True, method="group_sequential"):
    one = decide("b", results, days=days, min_days=7, over=over, method=method)
    return one.word, one.rule


@pytest.mark.parametrize(
    ("results", "settings", "expected"),
    [
        ([BETTER, GUARD], {}, ("ship", "goal got better")),
        ([BETTER, GUARD], {"over": False}, ("ship", "goal got better")),
        ([BETTER], {"days": 6.9}, ("running", "too few days")),
        ([BETTER, replace(GUARD, conclusion="broken")], {}, ("do not ship", "guardrail broken")),
        (
            [BETTER, replace(GUARD, conclusion="not shown")],
            {},
            ("inconclusive", "guardrail not shown to hold"),
        ),
        (
            [BETTER, replace(GUARD, conclusion="not shown")],
            {"over": False},
            ("running", "planned size not reached"),
        ),
        ([BETTER, WORSE], {}, ("do not ship", "goal got worse")),
        ([WORSE], {"over": False}, ("do not ship", "goal got worse")),
        ([FLAT], {}, ("inconclusive", "no difference at the planned size")),
        ([FLAT], {"over": False}, ("running", "planned size not reached")),
        ([FLAT], {"over": False, "method": "fixed"}, ("running", "end not reached")),
        ([GUARD], {}, ("inconclusive", "no goal")),
        ([replace(GOAL, note="fewer than 100 units in an arm")], {}, ("inconclusive", "nothing to show")),
        ([replace(GOAL, note="fewer than 100 units")], {"over": False}, ("running", "nothing to show")),
    ],
)
def test_rules(results, settings, expected):
    assert word(*results, **settings) == expected


def test_an_inconclusive_verdict_says_what_would_have_been_seen():
    one = decide("b", [FLAT], days=14, min_days=7, over=True, method="fixed")
    assert "4.0% or more would have been seen" in one.sentence


def test_the_experiment_gets_the_verdict_of_its_best_variant_unless_a_check_is_red():
    better = replace(BETTER, variant="c", relative=Interval(0.3))
    verdicts = [
        decide(name, [one], days=14, min_days=7, over=True, method="fixed")
        for name, one in (("b", BETTER), ("c", better))
    ]
    best = overall(verdicts, [], [BETTER, better])
    assert (best.word, best.variant) == ("ship", "c")
    assert "looks better than it is" in best.sentence
    red = Check("sample_ratio", "sample ratio", "red", "", "", "Look for a crash.")
    broken = overall(verdicts, [red], [BETTER, better])
    assert (broken.word, broken.rule) == ("broken", "sample_ratio")
    assert broken.sentence == "The data cannot be trusted; red: sample ratio. Look for a crash."


def arms(seed):
    random = np.random.default_rng(seed)
    before = random.gamma(2, 1, (2, 300))
    return [
        Moments.of_values(one + random.normal(0, 1, 300), 1 + random.poisson(2, 300), one) for one in before
    ]


def test_effects_are_computed_twice(monkeypatch):
    pairs = {f"m{seed}": (*arms(seed), bool(seed % 2)) for seed in range(4)}
    pairs["constant"] = (*[Moments.of_values(np.ones(50))] * 2, False)
    check = second_opinion(pairs)
    assert (check.status, check.finding) == ("green", "4 of 4 effects agree with tea-tasting")
    assert second_opinion({}).status == "skipped"
    real = module._theirs
    monkeypatch.setattr(module, "_theirs", lambda *args: [1.00001 * one for one in real(*args)])
    check = second_opinion(pairs)
    assert check.status == "red"
    assert "not: m0, m1, m2, m3" in check.finding
    assert math.isnan(GOAL.p_value)
