"""Slates under the position-based model: unbiased where the model holds, in a world of three items and two places."""

from itertools import permutations

import numpy as np
import pytest

from evaluation import DataError
from evaluation.off_policy import LoggedSlates, estimate_slate_value

ITEMS, PLACES = 3, 2
EXAMINED = np.array([1.0, 0.4])
APPEAL = np.array([0.8, 0.5, 0.2])
SLATES = np.array(list(permutations(range(ITEMS), PLACES)))
LOGGING = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
TARGET = np.array([0.1, 0.1, 0.1, 0.1, 0.3, 0.3])


def marginals(policy: np.ndarray) -> np.ndarray:
    """Chance of item i at place j, [items, places]."""
    table = np.zeros((ITEMS, PLACES))
    for slate, chance in zip(SLATES, policy, strict=True):
        table[slate, range(PLACES)] += chance
    return table


TRUE_VALUE = sum(
    chance * (APPEAL[slate] * EXAMINED).sum() for slate, chance in zip(SLATES, TARGET, strict=True)
)


def draw(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    shown = SLATES[generator.choice(len(SLATES), rows, p=LOGGING)]
    return shown, (generator.random(shown.shape) < APPEAL[shown] * EXAMINED).astype(float)


@pytest.mark.parametrize("by_examination", [False, True])
@pytest.mark.parametrize("name", ["ips", "snips"])
def test_the_value_is_found(name: str, by_examination: bool) -> None:
    errors, covered = [], 0
    before, after = marginals(LOGGING), marginals(TARGET)
    for seed in range(80):
        shown, clicks = draw(seed, 400)
        places = np.arange(PLACES)
        slates = (
            LoggedSlates.by_position(clicks, before[shown], after[shown], EXAMINED)
            if by_examination
            else LoggedSlates.of(clicks, before[shown, places], after[shown, places])
        )
        one = estimate_slate_value(slates, level=0.9, resamples=100, seed=seed).estimates[name].estimate
        errors.append(one.value - TRUE_VALUE)
        covered += int(one.low <= TRUE_VALUE <= one.high)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(len(errors)) + 0.005
    assert covered / 80 > 0.78


def test_examination_matches_more() -> None:
    shown, clicks = draw(0, 500)
    before, after = marginals(LOGGING), marginals(TARGET)
    places = np.arange(PLACES)
    plain = estimate_slate_value(
        LoggedSlates.of(clicks, before[shown, places], after[shown, places]), resamples=40
    )
    pooled = estimate_slate_value(
        LoggedSlates.by_position(clicks, before[shown], after[shown], EXAMINED), resamples=40
    )
    assert pooled.support.effective_rows > plain.support.effective_rows
    assert plain.logged.value == pytest.approx(clicks.sum(axis=1).mean())


def test_bad_slates_and_little_support_are_explained() -> None:
    with pytest.raises(DataError, match="above 0 for items that were shown, got 0 in row 0"):
        LoggedSlates.of([[1.0, 0.0]], [[0.0, 0.5]], [[0.5, 0.5]])
    with pytest.raises(DataError, match=r"target has shape \(1, 1\) but reward has \(1, 2\)"):
        LoggedSlates.of([[1.0, 0.0]], [[0.5, 0.5]], [[0.5]])
    with pytest.raises(DataError, match="one number above 0 for each of the 2 positions"):
        LoggedSlates.by_position([[1.0, 0.0]], np.ones((1, 2, 2)) / 2, np.ones((1, 2, 2)) / 2, [1.0])
    propensity = np.full((100, 1), 0.9)
    propensity[0] = 0.0001
    result = estimate_slate_value(
        LoggedSlates.of(np.ones((100, 1)), propensity, np.full((100, 1), 0.5)), resamples=40
    )
    assert "a few slates would decide" in result.refused["ips"]
