"""Off-policy estimators against closed forms, and their bias and coverage where the true value is known."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation import DataError, EvaluationError
from evaluation.off_policy import LoggedActions, estimate_value

ACTIONS = 4


def test_six_rows_in_closed_form(public_data: Path) -> None:
    cases = json.loads((public_data / "stats_extra_oracle.json").read_text())["cases"]
    [case] = [one for one in cases if one["id"] == "ope_six_rows"]
    given, expected = case["inputs"], case["expected"]
    logs = LoggedActions.of(
        given["reward"],
        given["pscore"],
        given["pi_e"],
        predicted=given["q_hat_logged_action"],
        baseline=given["v_hat"],
    )
    result = estimate_value(logs, clip=given["clip"], resamples=40)
    for name in ("ips", "snips", "dm", "dr", "clipped_ips"):
        assert result.value(name) == pytest.approx(expected[name]), name
    assert result.support.effective_rows == pytest.approx(expected["ess"])
    weight = np.array(given["pi_e"]) / np.array(given["pscore"])
    corrected = np.where(weight <= 1.5, weight, 0) * (
        np.array(given["reward"]) - given["q_hat_logged_action"]
    )
    assert result.value("switch_dr") == pytest.approx(np.mean(given["v_hat"] + corrected))
    assert "replay is for policies that choose one action" in result.refused["replay"]


class World:
    """Contexts with known rewards, a logging policy that prefers some actions, and a new policy that prefers others."""

    def __init__(self, seed: int, rows: int, users: int | None = None) -> None:
        generator = np.random.default_rng(seed)
        self.context = generator.integers(0, 3, rows)
        reward = np.array([[0.1, 0.5, 0.3, 0.7], [0.6, 0.2, 0.4, 0.3], [0.3, 0.3, 0.8, 0.1]])
        logging = np.array([[0.4, 0.3, 0.2, 0.1], [0.25] * 4, [0.1, 0.2, 0.3, 0.4]])
        target = np.array([[0.1, 0.2, 0.2, 0.5], [0.5, 0.1, 0.3, 0.1], [0.1, 0.1, 0.7, 0.1]])
        self.logging, self.target = logging[self.context], target[self.context]
        self.true_value = float((reward * target).sum(axis=1).mean())
        chosen = (self.logging.cumsum(axis=1) < generator.random(rows)[:, None]).sum(axis=1)
        self.action = np.minimum(chosen, ACTIONS - 1)
        self.user = None if users is None else generator.integers(0, users, rows)
        chance = reward[self.context, self.action]
        self.reward = (generator.random(rows) < chance).astype(float)
        self.model = np.clip(reward[self.context] + 0.15, 0, 1)  # a reward model that is wrong

    def logs(self) -> LoggedActions:
        return LoggedActions.of(
            self.reward,
            self.logging[np.arange(len(self.action)), self.action],
            self.target,
            action=self.action,
            logging=self.logging,
            predicted=self.model,
            user=self.user,
        )


@pytest.mark.parametrize("name", ["ips", "snips", "dr", "switch_dr"])
def test_weighted_estimators_are_unbiased_and_their_intervals_cover(name: str) -> None:
    values, covered, errors = [], 0, []
    for seed in range(120):
        world = World(seed, 500)
        one = (
            estimate_value(world.logs(), [name], level=0.9, resamples=120, seed=seed).estimates[name].estimate
        )
        values.append(one.value)
        covered += one.low <= world.true_value <= one.high
        errors.append(one.value - world.true_value)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(len(errors)) + 0.002
    assert 0.82 <= covered / 120 <= 0.97


def test_the_direct_method_has_the_bias_of_its_model_and_doubly_robust_has_not() -> None:
    gaps = {"dm": [], "dr": [], "ips": []}  # type: dict[str, list[float]]
    for seed in range(60):
        world = World(seed, 500)
        result = estimate_value(world.logs(), list(gaps), resamples=40)
        for name, values in gaps.items():
            values.append(result.value(name) - world.true_value)
    assert np.mean(gaps["dm"]) == pytest.approx(0.13, abs=0.03)
    assert abs(np.mean(gaps["dr"])) < 0.015
    assert np.std(gaps["dr"]) < np.std(gaps["ips"])


def test_clipping_lowers_variance_and_value() -> None:
    plain, clipped = [], []
    for seed in range(60):
        result = estimate_value(World(seed, 300).logs(), ["ips", "clipped_ips"], clip=1.5, resamples=40)
        plain.append(result.value("ips"))
        clipped.append(result.value("clipped_ips"))
    assert np.std(clipped) < np.std(plain)
    assert np.mean(clipped) < np.mean(plain)


def test_intervals_resample_users() -> None:
    generator = np.random.default_rng(0)
    mood = np.repeat(generator.integers(0, 2, 40), 25).astype(float)  # rewards of a user are all alike
    user = np.repeat(np.arange(40), 25)
    chance = np.full(1000, 0.5)
    by_row = estimate_value(LoggedActions.of(mood, chance, chance), ["ips"], resamples=200)
    by_user = estimate_value(LoggedActions.of(mood, chance, chance, user=user), ["ips"], resamples=200)
    width = [
        one.estimates["ips"].estimate.high - one.estimates["ips"].estimate.low for one in (by_row, by_user)
    ]
    assert width[1] > 3 * width[0]


def test_replay_keeps_the_rows_where_both_agree() -> None:
    generator = np.random.default_rng(1)
    action = generator.integers(0, 4, 2000)
    reward = (generator.random(2000) < np.array([0.2, 0.4, 0.6, 0.8])[action]).astype(float)
    target = np.zeros((2000, 4))
    target[:, 3] = 1.0
    result = estimate_value(
        LoggedActions.of(reward, np.full(2000, 0.25), target, action=action), resamples=60
    )
    assert result.value("replay") == pytest.approx(reward[action == 3].mean())
    assert result.value("snips") == pytest.approx(reward[action == 3].mean())
    assert "no predicted rewards" in result.refused["dr"]
    assert "Not computed" in str(result)


class TestSupport:
    def test_few_effective_rows_are_refused(self) -> None:
        propensity = np.full(200, 0.9)
        propensity[0] = 0.001
        result = estimate_value(LoggedActions.of(np.ones(200), propensity, np.full(200, 0.5)), resamples=40)
        assert set(result.refused) >= {"ips", "snips", "clipped_ips"}
        assert "a few rows would decide" in result.refused["ips"]
        assert result.support.max_weight == pytest.approx(500)
        with pytest.raises(KeyError, match="a few rows would decide"):
            result.value("ips")
        allowed = estimate_value(
            LoggedActions.of(np.ones(200), propensity, np.full(200, 0.5)),
            ["ips"],
            min_effective_share=0,
            resamples=40,
        )
        assert allowed.value("ips") > 1

    def test_actions_that_are_never_logged_are_refused(self) -> None:
        logging = np.tile([0.5, 0.5, 0.0], (100, 1))
        target = np.tile([0.4, 0.4, 0.2], (100, 1))
        logs = LoggedActions.of(
            np.ones(100), np.full(100, 0.5), target, action=np.arange(100) % 2, logging=logging
        )
        result = estimate_value(logs, resamples=40)
        assert result.support.unsupported == pytest.approx(0.2)
        assert "never logged 20.0% of the time" in result.refused["ips"]
        assert "20.0 %" in str(result.support)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"propensity": [0.5, 0.0]}, "propensity must be above 0, got 0 in row 1"),
        ({"propensity": [0.5, 1.5]}, r"probabilities in \[0, 1\], got 1.5"),
        ({"target": [0.5]}, "target has 1 rows but there are 2 rewards"),
        ({"target": [[0.5, 0.5], [0.5, 0.5]]}, "say with action= which one was logged"),
        (
            {"target": [[0.5, 0.4], [0.5, 0.5]], "action": [0, 1]},
            "must sum to 1 over the actions, got 0.9 in row 0",
        ),
        (
            {"target": [[0.5, 0.5], [0.5, 0.5]], "action": [0, 2]},
            "has 2 actions but action 2 was logged in row 1",
        ),
        ({"reward": [1.0, np.nan]}, "reward has a missing value"),
        (
            {"target": [[0.5, 0.5]] * 2, "action": [0, 1], "logging": [[0.9, 0.1]] * 2},
            "propensity is 0.5 but logging gives the logged action 0.9 in rows 0, 1",
        ),
    ],
)
def test_bad_logs_are_explained(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "reward": [1.0, 0.0],
        "propensity": [0.5, 0.5],
        "target": [0.5, 0.5],
        **arguments,
    }
    with pytest.raises(DataError, match=message):
        LoggedActions.of(given.pop("reward"), given.pop("propensity"), given.pop("target"), **given)


def test_wrong_requests_are_explained() -> None:
    logs = LoggedActions.of([1.0, 0.0], [0.5, 0.5], [0.5, 0.5])
    with pytest.raises(EvaluationError, match="did you mean 'snips'"):
        estimate_value(logs, ["snip"])
    with pytest.raises(EvaluationError, match="clip must be above 0"):
        estimate_value(logs, clip=0)
