"""Metrics of predicted values against scikit-learn, at their edges too."""

import math

import numpy as np
import pytest
import sklearn.metrics as sk
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from evaluation import mae, mape, r2, rmse
from evaluation.metrics.regression import r2_statistic
from evaluation.metrics.rows import Rows


def test_a_real_model_is_judged_as_scikit_learn_judges_it() -> None:
    data, target = load_diabetes(return_X_y=True)
    predicted = Ridge().fit(data[:300], target[:300]).predict(data[300:])
    weight = np.random.default_rng(0).random(len(predicted))
    truth = target[300:]
    for ours, theirs in (
        (rmse, sk.root_mean_squared_error),
        (mae, sk.mean_absolute_error),
        (r2, sk.r2_score),
        (mape, sk.mean_absolute_percentage_error),
    ):
        assert ours(truth, predicted, weight) == pytest.approx(theirs(truth, predicted, sample_weight=weight))


def test_rows_of_label_0_have_no_relative_error() -> None:
    assert mape([0.0, 2.0, -4.0], [5.0, 1.0, -5.0]) == pytest.approx((0.5 + 0.25) / 2)
    assert math.isnan(mape([0.0, 0.0], [1.0, 2.0]))


def test_blocks_of_rows_add_up_to_the_r2_of_all() -> None:
    generator = np.random.default_rng(1)
    label = 1e6 + generator.normal(size=400)
    rows = Rows(label, label + generator.normal(0, 0.3, 400), generator.random(400))
    statistic = r2_statistic(float(label[0]))
    zeros = np.zeros(200, np.int64)
    halves = [Rows(*(part[at] for part in rows)) for at in (slice(0, 200), slice(200, 400))]
    sums = sum(statistic.sums(half, zeros, 1) for half in halves)
    assert float(statistic.finish(sums)[0]) == pytest.approx(r2(*rows), rel=1e-6)
