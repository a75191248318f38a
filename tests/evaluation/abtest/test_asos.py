"""Real experiments with snapshots over time (ASOS, Liu et al., 2021): 78 experiments, 99 arms, 4 metrics."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_ind_from_stats

from evaluation.abtest.analysis.judging import Judge
from evaluation.abtest.statistics.effects import compare
from evaluation.abtest.statistics.moments import Moments


@pytest.fixture(scope="module")
def snapshots(public_data):
    folder = public_data / "asos_experiments"
    table = pd.read_parquet(folder / "asos_digital_experiments_dataset.parquet")
    known = table.dropna(subset=["mean_c", "mean_t", "variance_c", "variance_t"])
    return known.sort_values("time_since_start")


def arms(rows):
    return [
        Moments.of_mean(
            *(rows[f"{name}_{side}"].to_numpy(dtype=float) for name in ("count", "mean", "variance"))
        )
        for side in "ct"
    ]


def test_every_snapshot_agrees_with_scipy(snapshots):
    rows = snapshots[(snapshots.variance_c > 0) & (snapshots.variance_t > 0)]
    assert len(rows) > 20_000
    compared = compare(*arms(rows)).absolute
    numbers = [rows[name].to_numpy(dtype=float) for name in ("mean_t", "variance_t", "count_t")]
    control = [rows[name].to_numpy(dtype=float) for name in ("mean_c", "variance_c", "count_c")]
    theirs = ttest_ind_from_stats(
        numbers[0],
        np.sqrt(numbers[1]),
        numbers[2],
        control[0],
        np.sqrt(control[1]),
        control[2],
        equal_var=False,
    )
    assert compared.statistic == pytest.approx(theirs.statistic, rel=1e-6, abs=1e-9)
    assert compared.p_value() == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)


@pytest.mark.slow
def test_looking_at_real_experiments_with_each_method(snapshots):
    found = {"naive": 0, "end": 0, "group_sequential": 0, "always_valid": 0}
    agree = total = 0
    # One arm and one metric of each of the 78 experiments, the metrics in turn.
    series = [
        (experiment, rows[(rows.variant_id == rows.variant_id.min()) & (rows.metric_id == 1 + place % 4)])
        for place, (experiment, rows) in enumerate(snapshots.groupby("experiment_id"))
    ]
    assert len(series) == 78
    for _, rows in series:
        rows = rows[(rows.count_c > 1) & (rows.count_t > 1) & (rows.variance_c > 0) & (rows.variance_t > 0)]
        if len(rows) < 5:
            continue
        rows = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, 14).round().astype(int))]
        control, treatment = arms(rows)
        comparisons = [
            compare(*(Moments(one.count[k], one.mean[k], one.cov[k]) for one in (control, treatment)))
            for k in range(len(rows))
        ]
        units = list(control.count + treatment.count)
        p_values = [float(one.absolute.p_value()) for one in comparisons]
        end = p_values[-1] < 0.05
        found["naive"] += min(p_values) < 0.05
        found["end"] += end
        total += 1
        for method in ("group_sequential", "always_valid"):
            judged = Judge(method, 0.05, 2.0, int(units[-1]), over=True).looks(comparisons, units)
            found[method] += any(one.crossed for one in judged)
            if method == "group_sequential":
                agree += any(one.crossed for one in judged) == end
    assert total > 60
    # Looking naively "finds" most; the price of the methods is what it should be on real data.
    assert found["naive"] > 1.3 * found["end"]
    assert found["always_valid"] <= found["group_sequential"] <= found["naive"]
    assert found["group_sequential"] >= 0.8 * found["end"]
    assert agree / total > 0.85
