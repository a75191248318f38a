"""Constant and item rates: learned from training rows, or without a row telling its own label."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from evaluation import DataError, evaluate, rate_baselines
from evaluation.rates import rates_of_counts


def test_rates_of_training_rows_are_smoothed_means() -> None:
    found = rate_baselines(
        [0, 1, 1], ["a", "b", "new"], train_label=[1, 1, 0, 0], train_item=["a", "a", "a", "b"], strength=2.0
    )
    assert found["constant"] == pytest.approx([0.5] * 3)
    assert found["item_rate"] == pytest.approx([(2 + 1) / 5, (0 + 1) / 3, 0.5])
    sums = {"a": (2.0, 3.0), "b": (0.0, 1.0)}
    assert rates_of_counts(["a", "b", "new"], sums, 2.0) == pytest.approx(found["item_rate"])


def test_without_training_rows_no_row_tells_its_own_label() -> None:
    generator = np.random.default_rng(0)
    label = generator.integers(0, 2, 4000).astype(float)
    every_row_an_item = rate_baselines(label, np.arange(4000))["item_rate"]
    assert abs(np.corrcoef(every_row_an_item, label)[0, 1]) < 0.1
    popular = generator.random(20)
    item = generator.integers(0, 20, 4000)
    liked = (generator.random(4000) < popular[item]).astype(float)
    assert np.corrcoef(rate_baselines(liked, item)["item_rate"], popular[item])[0, 1] > 0.95


def test_only_half_of_the_training_columns_is_refused() -> None:
    with pytest.raises(DataError, match="without train_item"):
        rate_baselines([0, 1], ["a", "b"], train_label=[1])


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    generator = np.random.default_rng(1)
    quality, item = generator.random(30), generator.integers(0, 30, 2000)
    taste = generator.random(2000)
    chance = 0.5 * quality[item] + 0.5 * taste
    return pd.DataFrame(
        {
            "label": (generator.random(2000) < chance).astype(int),
            "score": chance,
            "item": item,
            "user": generator.integers(0, 100, 2000),
            "known": quality[item],
        }
    )


def test_baselines_stand_beside_the_model(table: pd.DataFrame) -> None:
    task = evaluate(table, user="user", item="item", resamples=100)["label"]
    assert list(task.baselines) == ["constant", "item_rate"]
    assert task.baselines["constant"].metrics["auc"].value == 0.5
    assert task.baselines["constant"].metrics["normalized_entropy"].value == pytest.approx(1)
    rate = task.baselines["item_rate"]
    assert 0.5 < rate.metrics["auc"].value < task.metrics["auc"].value
    gap = rate.differences["auc"]
    assert gap.difference.value == pytest.approx(task.metrics["auc"].value - rate.metrics["auc"].value)
    assert gap.is_significant
    assert "item_rate" in str(task.baseline_table().to_text())
    assert not evaluate(table, intervals=False)["label"].baselines
    assert not evaluate(table, baselines={}, resamples=40)["label"].baselines


def test_given_predictions_of_a_baseline_are_used(table: pd.DataFrame) -> None:
    task = evaluate(table, item="item", baselines={"label": {"item_rate": "known"}}, resamples=40)["label"]
    assert task.baselines["item_rate"].metrics["brier"].value == pytest.approx(
        ((table["known"] - table["label"]) ** 2).mean()
    )


def test_a_multi_class_task_has_the_shares_of_its_classes() -> None:
    generator = np.random.default_rng(2)
    data: Any = {"label": generator.integers(0, 3, 90), "score": list(generator.dirichlet(np.ones(3), 90))}
    task = evaluate(pd.DataFrame(data), resamples=40)["label"]
    shares = np.bincount(data["label"]) / 90
    expected = -np.log(shares[data["label"]]).mean()
    assert task.baselines["constant"].metrics["log_loss"].value == pytest.approx(expected)
