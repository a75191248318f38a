"""Names of metrics, cut-offs, and joining the table."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from evaluation import METRICS, Metric, MetricError, evaluate, get_metric, parse_metric, register_metric
from evaluation.metrics.registry import unregister_metric


def test_the_table_holds_the_promised_names() -> None:
    promised = (
        "auc pr_auc log_loss normalized_entropy accuracy precision recall f1 brier ece rmse mae r2 gauc "
        "precision@k recall@k f1@k ndcg@k hit_rate@k map@k mrr@k"
    )
    assert set(METRICS) >= set(promised.split())


def test_a_cut_off_is_parsed() -> None:
    parsed = parse_metric("ndcg@10")
    assert (parsed.metric.name, parsed.k, parsed.name) == ("ndcg@k", 10, "ndcg@10")
    assert parse_metric("auc") == (METRICS["auc"], None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ndgc@10", r"Unknown metric 'ndgc@k'; did you mean 'ndcg@k'\?"),
        ("acu", r"did you mean 'auc'\?"),
        ("ndcg@ten", "whole number of at least 1, got 'ten'"),
        ("ndcg@0", "whole number of at least 1, got '0'"),
        ("ndcg", "needs a cut-off, such as 'ndcg@10'"),
    ],
)
def test_a_wrong_name_is_explained(text: str, message: str) -> None:
    with pytest.raises(MetricError, match=message):
        parse_metric(text)


@pytest.fixture
def mean_score() -> Iterator[Metric]:
    def function(label: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float:
        return float(np.average(score, weights=weight))

    yield register_metric(Metric("mean_score", ("binary",), function, True, "mean of the score"))
    unregister_metric("mean_score")


def test_a_metric_of_ones_own_is_evaluated_with_an_interval(mean_score: Metric) -> None:
    table = pd.DataFrame({"label": [0, 1] * 20, "score": np.linspace(0, 1, 40), "user": np.arange(40) // 4})
    estimate = evaluate(table, metrics=["mean_score"], user="user")["label"].metrics["mean_score"]
    assert estimate.value == pytest.approx(0.5)
    assert estimate.low < 0.5 < estimate.high
    assert get_metric("mean_score") is mean_score


def test_registration_refuses_what_cannot_work(mean_score: Metric) -> None:
    with pytest.raises(MetricError, match="'mean_score' exists already"):
        register_metric(mean_score)
    with pytest.raises(MetricError, match="ends in '@k'"):
        register_metric(Metric("coverage", ("ranking",), np.mean, True, ""))
    with pytest.raises(MetricError, match="ends in '@k'"):
        register_metric(Metric("mean@k", ("binary",), np.mean, True, ""))
    with pytest.raises(MetricError, match="known: binary"):
        register_metric(Metric("odd", ("binry",), np.mean, True, ""))  # type: ignore[arg-type]
    with pytest.raises(MetricError, match="needs a statistic"):
        register_metric(Metric("odd", ("grouped",), np.mean, True, ""))
    with pytest.raises(MetricError, match="built in"):
        unregister_metric("auc")
