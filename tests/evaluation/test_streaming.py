"""A long file judged in blocks gives what the same table gives at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation import (
    DataError,
    EvaluationError,
    TaskColumns,
    compact,
    evaluate,
    infer_task,
    order_scan,
    predictions,
    streaming,
)

N = 6000


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    score = np.round(generator.beta(2, 5, N), 3)
    score[generator.random(N) < 0.3] = 0.25  # very many ties
    stars = np.round(generator.normal(3, 1, N), 1)
    return pd.DataFrame(
        {
            "label": (generator.random(N) < score).astype(int),
            "score": score,
            "user": generator.integers(0, 300, N),
            "name": [f"u{one}" for one in generator.integers(0, 300, N)],
            "weight": generator.choice([0.5, 1.0, 2.0], N),
            "stars": stars,
            "stars_score": stars + generator.normal(size=N),
        }
    )


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (compact, "BATCH_ROWS", 512),
        (order_scan, "_BLOCK_ROWS", 700),
        (streaming, "_USER_BLOCK_ROWS", 900),
        (predictions, "STREAMED_ROWS", 1000),
    ):
        monkeypatch.setattr(module, name, value)


TASKS = {
    "clicked": TaskColumns("binary", "label", "score"),
    "stars": TaskColumns("regression", "stars", "stars_score"),
}


@pytest.mark.parametrize("options", [{}, {"user": "user"}, {"user": "name", "weight": "weight"}], ids=str)
def test_the_metrics_are_those_of_the_whole_table(
    frame: pd.DataFrame, tmp_path: Path, small_blocks: None, options: Any
) -> None:
    frame.to_parquet(tmp_path / "p.parquet", row_group_size=1500)
    metrics: Any = None
    if "user" in options:
        metrics = {
            "clicked": [
                "auc",
                "pr_auc",
                "best_f1",
                "ece",
                "gauc",
                "gauc_uniform",
                "grouped_log_loss",
                "ndcg@3",
            ],
            "stars": ["rmse", "r2", "mape"],
        }
    blocks = evaluate(tmp_path / "p.parquet", tasks=TASKS, metrics=metrics, resamples=400, **options)
    whole = evaluate(frame, tasks=TASKS, metrics=metrics, resamples=400, **options)
    assert blocks.unit == whole.unit
    assert blocks.n_units == whole.n_units
    for task, result in whole.tasks.items():
        assert blocks[task].n_rows == N
        assert blocks[task].label_mean == pytest.approx(result.label_mean)
        for name, one in result.metrics.items():
            if name == "xauc":
                assert "all pairs of rows" in blocks[task].left_out["xauc"]
                continue
            other = blocks[task].metrics[name]
            tolerance = 0.02 if name == "ndcg@3" else 1e-9  # its ties are ordered at random
            assert other.value == pytest.approx(one.value, rel=tolerance), name
            assert other.high - other.low == pytest.approx(one.high - one.low, rel=0.35, abs=1e-4), name
            assert other.low <= other.value <= other.high
        if task == "clicked":
            assert blocks[task].decisions == pytest.approx(result.decisions) or (
                blocks[task].decisions["best"].f1 == pytest.approx(result.decisions["best"].f1)
            )
            assert [note for note in blocks[task].notes if "gauc" in note] == [
                note for note in result.notes if "gauc" in note
            ]


def test_constant_scores_and_float32(tmp_path: Path, small_blocks: None) -> None:
    generator = np.random.default_rng(1)
    table = pa.table(
        {
            "label": generator.integers(0, 2, 3000),
            "score": np.full(3000, 0.5, np.float32),
            "user": np.arange(3000) % 7,
        }
    )
    pq.write_table(table, tmp_path / "p.parquet")
    result = evaluate(tmp_path / "p.parquet", user="user", resamples=50)["label"]
    assert result.metrics["auc"].value == 0.5
    assert result.metrics["gauc"].value == 0.5
    assert result.metrics["pr_auc"].value == pytest.approx(result.label_mean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": np.nan}, r"in the rows from 4,?\d+ on.*score has a missing value .* in row"),
        ({"label": 2}, "label of a binary task must be 0 or 1, got 2"),
        ({"user": None}, "column 'user' has a missing value in row"),
        ({"weight": -1.0}, "weight must not be negative, got -1"),
    ],
    ids=["score", "label", "user", "weight"],
)
def test_bad_rows_are_named(
    frame: pd.DataFrame, tmp_path: Path, small_blocks: None, change: dict[str, Any], message: str
) -> None:
    bad = frame.copy()
    for name, value in change.items():
        bad.loc[4242, name] = value
    bad.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(DataError, match=message):
        evaluate(
            tmp_path / "p.parquet",
            tasks={"c": TASKS["clicked"]},
            user="user",
            weight="weight",
            intervals=False,
        )


def test_what_blocks_cannot_do_is_refused(frame: pd.DataFrame, tmp_path: Path, small_blocks: None) -> None:
    frame.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(EvaluationError, match="judged in blocks, without sessions"):
        evaluate(tmp_path / "p.parquet", session="user")
    with pytest.raises(DataError, match="is multiclass; a file of more than"):
        evaluate(
            tmp_path / "p.parquet", tasks={"kind": TaskColumns("multiclass", "label", ["score", "score"])}
        )


def test_the_task_is_inferred_and_columns_are_looked_up(
    frame: pd.DataFrame, tmp_path: Path, small_blocks: None
) -> None:
    frame.to_parquet(tmp_path / "p.parquet")
    assert infer_task(tmp_path / "p.parquet").type == "binary"
    assert infer_task(tmp_path / "p.parquet", "stars", "stars_score").type == "regression"
    with pytest.raises(DataError, match="did you mean 'label'"):
        infer_task(tmp_path / "p.parquet", "lable")
    with pytest.raises(DataError, match="did you mean 'user'"):
        evaluate(tmp_path / "p.parquet", user="usr")
