"""GAUC against a plain loop over users."""

import math
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation import DataError, MetricError, gauc, grouped_auc, grouped_log_loss


def slow_gauc(label: Any, score: Any, group: Any, weight: Any, weighting: str) -> tuple[float, int]:
    total = counted = 0.0
    skipped = 0
    for user in np.unique(group):
        mine = group == user
        y, w = label[mine], weight[mine]
        if len(np.unique(y[w > 0])) < 2:
            skipped += 1
            continue
        share = {"count": w.sum(), "positives": (w * y).sum(), "uniform": 1.0}[weighting]
        total += share * sk.roc_auc_score(y, score[mine], sample_weight=w)
        counted += share
    return (total / counted if counted else math.nan), skipped


@pytest.mark.parametrize("weighting", ["count", "positives", "uniform"])
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 1), st.integers(0, 4), st.sampled_from("abc"), st.sampled_from([0.0, 1.0, 2.5])
        ),
        min_size=1,
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_matches_a_loop_over_users(weighting: Any, rows: list[tuple[int, int, str, float]]) -> None:
    label, score, group, weight = (np.array(column) for column in zip(*rows, strict=True))
    weight[0] = 1.0
    expected, skipped = slow_gauc(label, score / 4, group, weight, weighting)
    result = grouped_auc(label, score / 4, group, weight, weighting=weighting)
    assert result.value == pytest.approx(expected, nan_ok=True)
    assert result.n_skipped == skipped
    assert result.n_groups == len(np.unique(group))


def test_users_with_one_class_do_not_count() -> None:
    label = [1, 0, 1, 1, 0]
    score = [0.9, 0.1, 0.2, 0.8, 0.5]
    assert gauc(label, score, ["u", "u", "v", "v", "w"]) == 1.0
    assert grouped_auc(label, score, ["u", "u", "v", "v", "w"]).n_skipped == 2


def test_no_user_with_both_classes_is_nan() -> None:
    assert math.isnan(gauc([1, 0], [0.5, 0.4], [1, 2]))


def test_missing_user_and_unknown_weighting_are_refused() -> None:
    with pytest.raises(DataError, match="group has a missing value in row 1"):
        gauc([1, 0], [0.5, 0.4], ["a", None])
    with pytest.raises(MetricError, match="did you mean 'count'"):
        gauc([1, 0], [0.5, 0.4], [1, 1], weighting="counts")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="group has 3 rows but the label has 2"):
        gauc([1, 0], [0.5, 0.4], [1, 1, 1])


def test_grouped_log_loss_is_the_mean_over_users() -> None:
    generator = np.random.default_rng(0)
    label, score = generator.integers(0, 2, 200), generator.random(200)
    group, weight = generator.integers(0, 30, 200), generator.choice([0.0, 1.0, 2.0], 200)
    expected = [
        sk.log_loss(
            label[group == one], score[group == one], sample_weight=weight[group == one], labels=[0, 1]
        )
        for one in np.unique(group)
        if weight[group == one].any()
    ]
    assert grouped_log_loss(label, score, group, weight) == pytest.approx(np.mean(expected))
    with pytest.raises(DataError, match=r"probability in \[0, 1\]"):
        grouped_log_loss([0, 1], [0.5, 2.0], [1, 1])
