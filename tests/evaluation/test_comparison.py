"""Two models on the same rows: paired differences, gates, and many reports side by side."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn.metrics as sk
from matplotlib.figure import Figure

from evaluation import (
    DataError,
    EvaluationError,
    Gate,
    TaskColumns,
    compare,
    evaluate,
    gauc,
    judge_gates,
    leaderboard,
    parse_gate,
    write_report,
)


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """A reference and a better model of the same 60 users."""
    generator = np.random.default_rng(0)
    truth = generator.normal(size=1500)
    label = (generator.random(1500) < 1 / (1 + np.exp(-truth))).astype(int)
    keys = {"user": generator.integers(0, 60, 1500), "row": np.arange(1500), "label": label}

    def scored(noise: float) -> pd.DataFrame:
        return pd.DataFrame({**keys, "score": 1 / (1 + np.exp(-truth - generator.normal(0, noise, 1500)))})

    return scored(1.5), scored(0.3)


def test_differences_are_those_of_the_metrics_and_the_better_model_wins(tables: Any) -> None:
    reference, model = tables
    result = compare(reference, model, user="user", resamples=300)
    one = result["label/auc"]
    expected = sk.roc_auc_score(model["label"], model["score"]) - sk.roc_auc_score(
        reference["label"], reference["score"]
    )
    assert one.paired.difference.value == pytest.approx(expected)
    assert one.verdict == "better"
    assert one.paired.p_value < 0.05
    assert one.paired.win_rate > 0.6 > 0.4 > one.paired.loss_rate
    assert result["label/log_loss"].verdict == "better"
    assert result["label/log_loss"].paired.difference.value < 0 < result["label/log_loss"].paired.win_rate
    assert result["label/gauc"].paired.difference.value == pytest.approx(
        gauc(model["label"], model["score"], model["user"])
        - gauc(reference["label"], reference["score"], reference["user"])
    )


def test_a_paired_interval_is_narrower_than_two_unpaired_ones(tables: Any) -> None:
    reference, _ = tables
    near = reference.assign(score=np.clip(reference["score"] + 0.001, 0, 1))
    one = compare(reference, near, user="user", metrics=["brier"], resamples=200)["label/brier"]
    paired = one.paired.difference.high - one.paired.difference.low
    assert paired < 0.1 * (one.model.high - one.model.low)


def test_a_model_is_no_different_from_itself(tables: Any) -> None:
    result = compare(tables[0], tables[0], user="user", resamples=100)
    for one in result.metrics.values():
        assert one.paired.difference.value == 0
        assert one.verdict == "no clear difference"
        assert one.paired.p_value == 1


def test_win_rates_are_of_users(tables: Any) -> None:
    reference, model = tables
    one = compare(reference, model, user="user", metrics=["log_loss"], resamples=40)["label/log_loss"]
    losses = [
        {
            user: sk.log_loss(part["label"], part["score"], labels=[0, 1])
            for user, part in table.groupby("user")
        }
        for table in tables
    ]
    won = np.mean([losses[1][user] < losses[0][user] for user in losses[0]])
    assert one.paired.win_rate == pytest.approx(won)


def test_rows_are_matched_by_key_and_other_rows_refused(tables: Any) -> None:
    reference, model = tables
    shuffled = model.sample(frac=1, random_state=1)
    with pytest.raises(DataError, match=r"not of the same rows: 'label' is .* Match them by their keys"):
        compare(reference, shuffled)
    with pytest.raises(DataError, match="1,500 rows but the model 1,499"):
        compare(reference, model[:-1])
    matched = compare(reference, shuffled, on=["row"], user="user", metrics=["auc"], resamples=50)
    plain = compare(reference, model, user="user", metrics=["auc"], resamples=50)
    assert matched["label/auc"].paired.difference == plain["label/auc"].paired.difference
    with pytest.raises(DataError, match="The model lacks 1 rows of the reference"):
        compare(reference, shuffled[:-1], on=["row"])
    with pytest.raises(DataError, match="several rows of the same user"):
        compare(reference, shuffled, on=["user"])


def test_two_score_columns_of_one_arrow_table(tables: Any) -> None:
    both = pa.table({"y": tables[0]["label"], "a": tables[0]["score"], "b": tables[1]["score"]})
    result = compare(
        both,
        both,
        tasks={"clicked": TaskColumns("binary", "y", "a")},
        model_tasks={"clicked": TaskColumns("binary", "y", "b")},
        names=("old", "new"),
        resamples=50,
    )
    assert result["clicked/auc"].verdict == "better"
    assert "old" in str(result)
    assert "<table>" in result._repr_html_()
    assert "| clicked/auc |" in result.to_markdown()
    assert isinstance(result.plot(), Figure)
    assert result.to_dict()["metrics"]["clicked/auc"]["verdict"] == "better"


@pytest.fixture(scope="module")
def comparison(tables: Any) -> Any:
    return compare(tables[1], tables[0], user="user", metrics=["auc", "log_loss"], resamples=200)


@pytest.mark.parametrize(
    ("text", "strict", "passed"),
    [
        ("label/auc:-0.001", False, False),
        ("label/auc:-0.5", False, True),
        ("label/auc:-0.5", True, True),
        ("label/log_loss:0.001", False, False),
        ("label/log_loss:5", True, True),
    ],
)
def test_a_worse_model_is_held_against_the_limit(
    comparison: Any, text: str, strict: bool, passed: bool
) -> None:
    [result] = judge_gates(comparison, [parse_gate(text, is_strict=strict)])
    assert result.passed is passed
    assert "accepted" in result.reason


def test_a_strict_gate_asks_for_the_whole_interval(comparison: Any) -> None:
    gap = comparison["label/auc"].paired.difference
    between = (gap.low + gap.value) / 2
    assert judge_gates(comparison, [Gate("label/auc", between)])[0].passed
    assert not judge_gates(comparison, [Gate("label/auc", between, is_strict=True)])[0].passed


def test_an_undefined_metric_does_not_pass() -> None:
    table = pd.DataFrame({"label": [1] * 6, "score": [0.5] * 6})
    comparison = compare(table, table, metrics=["auc"], resamples=40)
    [result] = judge_gates(comparison, [Gate("label/auc", -1.0)])
    assert not result.passed
    assert math.isnan(comparison["label/auc"].paired.difference.value)


@pytest.mark.parametrize("text", ["auc", ":0.1", "label/auc:", "label/auc:low", "label/auc:nan"])
def test_a_gate_is_written_in_one_way(text: str) -> None:
    with pytest.raises(EvaluationError, match="METRIC:CHANGE"):
        parse_gate(text)


def test_an_unknown_metric_is_refused(comparison: Any) -> None:
    with pytest.raises(EvaluationError, match="did you mean 'label/auc'"):
        judge_gates(comparison, [Gate("label/acu", 0)])


@pytest.fixture(scope="module")
def reports(tables: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    named = {"plain": tables[0], "better": tables[1], "part": tables[1][:700]}
    for name, table in named.items():
        result = evaluate(table, metrics=["auc", "log_loss"], resamples=40)
        write_report(folder / name, title=name, evaluation=result)
    return {name: folder / name for name in named}


def test_the_best_comes_first_and_other_rows_are_noted(reports: dict[str, Path]) -> None:
    board = leaderboard(reports)
    assert board.metric == "label/auc"
    assert [one.name for one in board.entries].index("better") < [one.name for one in board.entries].index(
        "plain"
    )
    assert "plain" in board.notes[0]
    assert "700 label rows" in board.notes[0]
    lowest_first = leaderboard({name: reports[name] for name in ("plain", "better")}, "label/log_loss")
    assert [one.name for one in lowest_first.entries] == ["better", "plain"]
    assert len(lowest_first.notes) == 1
    assert "label/log_loss" in str(lowest_first)
    assert board.to_dict()["entries"][0]["metrics"]["label/auc"]["value"] is not None


def test_reports_that_cannot_be_read_are_explained(reports: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="did you mean 'label/auc'"):
        leaderboard(reports, "label/acu")
    with pytest.raises(DataError, match="cannot be read as a report"):
        leaderboard({"x": tmp_path})
    (tmp_path / "report.json").write_text("[]")
    with pytest.raises(DataError, match="is no report"):
        leaderboard({"x": tmp_path})
