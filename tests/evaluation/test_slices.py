"""Slices: the right rows, honest p-values when there are many, and gaps between groups."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as sk
from matplotlib.figure import Figure

from evaluation import DataError, EvaluationError, evaluate_slices
from evaluation.multiplicity import benjamini_hochberg
from evaluation.slices import slices_of


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Scores tell something in countries a and b and nothing in c."""
    generator = np.random.default_rng(0)
    score = generator.random(3000)
    country = generator.choice(["a", "b", "c"], 3000)
    chance = np.where(country == "c", 0.5, score)
    return pd.DataFrame(
        {
            "label": (generator.random(3000) < chance).astype(int),
            "score": score,
            "country": country,
            "price": np.where(generator.random(3000) < 0.1, np.nan, generator.exponential(10, 3000)),
            "user": generator.integers(0, 300, 3000),
        }
    )


def test_slices_hold_the_metric_of_their_rows(table: pd.DataFrame) -> None:
    result = evaluate_slices(table, ["country", "price:4"], user="user", resamples=200)
    assert [one.value for one in result.slices[:3]] == ["a", "b", "c"]
    assert [one.column for one in result.slices].count("price") == 5
    assert result.slices[-1].value == "missing"
    for one in result.slices[:3]:
        mine = table[table["country"] == one.value]
        assert one.estimate.value == pytest.approx(sk.roc_auc_score(mine["label"], mine["score"]))
        assert one.n_rows == len(mine)
        assert one.n_units == mine["user"].nunique()
        assert one.difference.value == pytest.approx(one.estimate.value - result.overall.value)
    assert {one.value for one in result.different() if one.column == "country"} >= {"c"}
    assert sum(one.n_rows for one in result.slices if one.column == "price") == 3000
    aucs = [one.estimate.value for one in result.slices[:3]]
    gap = result.gaps["country"]
    assert gap.value == pytest.approx(max(aucs) - min(aucs))
    assert 0 < gap.low <= gap.value <= gap.high


def test_it_prints_and_draws(table: pd.DataFrame) -> None:
    result = evaluate_slices(table, ["country"], metric="log_loss", resamples=100)
    assert "country = c differs from all rows" in str(result)
    assert "Benjamini-Hochberg" in result.to_markdown()
    assert "<table>" in result._repr_html_()
    assert isinstance(result.plot(), Figure)
    json.dumps(result.to_dict(), allow_nan=False)


def test_slices_of_nothing_but_noise_are_seldom_called_different() -> None:
    generator = np.random.default_rng(1)
    false_alarms = 0
    for _ in range(30):
        score = generator.random(600)
        data = pd.DataFrame(
            {"label": generator.random(600) < score, "score": score, "group": generator.integers(0, 10, 600)}
        )
        false_alarms += bool(evaluate_slices(data, ["group"], metric="brier", resamples=400).different())
    assert false_alarms <= 6


def test_adjusted_p_values_match_the_recorded_ones(public_data: Path) -> None:
    cases = json.loads((public_data / "stats_extra_oracle.json").read_text())["cases"]
    [case] = [one for one in cases if one["id"] == "adjust_fdr_bh"]
    assert benjamini_hochberg(case["inputs"]["pvalues"]) == pytest.approx(case["expected"])
    with_nan = benjamini_hochberg([0.01, math.nan, 0.04])
    assert with_nan[[0, 2]] == pytest.approx([0.02, 0.04])
    assert math.isnan(with_nan[1])


def test_a_slice_of_one_class_has_no_value(table: pd.DataFrame) -> None:
    data = table.assign(kind=np.where(table["label"] == 1, "yes", "mixed"))
    data.loc[:200, "kind"] = "mixed"
    result = evaluate_slices(data, ["kind"], resamples=60)
    yes = next(one for one in result.slices if one.value == "yes")
    assert math.isnan(yes.estimate.value)
    assert yes.estimate.note == "all labels are of one class"
    assert math.isnan(yes.adjusted_p)


def test_rare_values_and_equal_quantiles_are_joined() -> None:
    many = slices_of(np.arange(30).repeat(2), "x")
    assert len(many) == 21
    assert many["all others"].sum() == 20
    tied = slices_of(np.array([1.0] * 90 + [2.0] * 10), "x", 4)
    assert sum(rows.sum() for rows in tied.values()) == 100
    assert slices_of(np.array([3.0, 3.0]), "x", 4).keys() == {"3"}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"by": []}, EvaluationError, "not empty"),
        ({"by": ["contry"]}, DataError, "did you mean 'country'"),
        ({"by": ["country:3"]}, DataError, "does not hold numbers"),
        ({"by": ["price:1"]}, EvaluationError, "at least 2"),
        ({"by": ["country"], "task": "liked"}, EvaluationError, "Say which task"),
    ],
)
def test_wrong_requests_are_explained(table: pd.DataFrame, arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate_slices(table, resamples=50, **arguments)


def test_dates_are_cut_and_written_as_dates() -> None:
    dates = pd.Series(pd.date_range("2024-01-01", periods=10))
    dates[3] = pd.NaT
    parts = slices_of(dates, "day", 2)
    first, second, _ = parts
    assert first.startswith("2024-01-01")
    assert "to 2024-01-10" in second
    assert parts["missing"].sum() == 1
    assert sum(rows.sum() for rows in parts.values()) == 10


def test_the_gap_of_slices_that_are_alike_is_seldom_called_more_than_chance() -> None:
    called = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        score = generator.random(400)
        table = {
            "label": (generator.random(400) < score).astype(int),
            "score": score,
            "group": generator.integers(0, 5, 400),
        }
        gap = evaluate_slices(table, ["group"], resamples=100, seed=seed).gaps["group"]
        called += gap.low > 0
        assert gap.low <= gap.value <= gap.high
    assert called <= 9  # 3 expected; 9 or more in one case of a thousand


def test_slices_of_a_few_users_are_shown_and_not_compared() -> None:
    generator = np.random.default_rng(2)
    rows = pd.DataFrame({"label": generator.normal(size=400), "user": np.arange(400) // 8})
    rows["score"] = rows["label"] + generator.normal(size=400)
    rows["genre"] = np.where(rows["user"] < 4, "rare", np.where(rows["user"] % 2, "a", "b"))
    rows.loc[rows["user"] < 4, "score"] = rows["label"]  # no error at all
    result = evaluate_slices(rows, ["genre"], user="user", metric="rmse", resamples=200)
    rare = result.slices[-1]
    assert (rare.value, rare.n_units, rare.estimate.value) == ("rare", 4, 0.0)
    assert math.isnan(rare.p_value)
    assert not rare.estimate.has_interval
    assert not rare.difference.has_interval
    assert "fewer than 10" in rare.estimate.note
    assert not any(one.value == "rare" for one in result.different())
    kept = [one.estimate.value for one in result.slices[:2]]
    assert result.gaps["genre"].value == pytest.approx(max(kept) - min(kept))
    assert "adjusted for the 2 slices" in result.method()
    assert "fewer than 10 users" in result.method()


def test_the_gap_of_two_slices_is_their_difference_with_its_interval(table: pd.DataFrame) -> None:
    two = table[table["country"] != "b"]
    result = evaluate_slices(two, ["country"], user="user")
    gap = result.gaps["country"]
    halves = [two[two["country"] == name] for name in ("a", "c")]
    difference = np.subtract(*(sk.roc_auc_score(half["label"], half["score"]) for half in halves))
    variance = sum(  # Hanley and McNeil, 1982: an interval from a formula, for the width only
        auc * (1 - auc) / min(half["label"].sum(), (1 - half["label"]).sum())
        for half in halves
        if (auc := sk.roc_auc_score(half["label"], half["score"]))
    )
    assert gap.value == pytest.approx(difference)
    assert gap.high - gap.value == pytest.approx(gap.value - gap.low)
    assert gap.high - gap.value == pytest.approx(1.96 * math.sqrt(variance), rel=0.4)


def test_a_value_that_fills_a_part_is_a_slice_of_its_own() -> None:
    found = slices_of(np.array([0.0] * 70 + list(range(1, 31))), "orders", 4)
    assert int(found["0"].sum()) == 70
    assert all(
        name.startswith("above 0 to") or rows[70:].any() for name, rows in found.items() if name != "0"
    )
    assert np.stack(list(found.values())).sum(axis=0).tolist() == [1] * 100
    top = slices_of(np.array([1.0, 2.0, 3.0] + [9.0] * 9), "stars", 4)
    assert int(top["9"].sum()) == 9
    assert np.stack(list(top.values())).sum(axis=0).tolist() == [1] * 12
