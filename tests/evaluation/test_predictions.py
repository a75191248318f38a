"""`evaluate`: tables of every kind, tasks, messages and printed forms."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.metrics as sk
from matplotlib.figure import Figure

from evaluation import DataError, EvaluationError, MetricError, TaskColumns, evaluate, gauc, ndcg, ranked_rows


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    score = generator.random(400)
    classes = generator.dirichlet(np.ones(3), 400)
    return pd.DataFrame(
        {
            "user": [f"u{number}" for number in generator.integers(0, 40, 400)],
            "label": (generator.random(400) < score).astype(int),
            "score": score,
            "weight": generator.random(400),
            "stars": np.round(score * 4 + 1),
            "stars_score": score * 4 + 1 + generator.normal(0, 0.3, 400),
            "kind": generator.integers(0, 3, 400),
            "p0": classes[:, 0],
            "p1": classes[:, 1],
            "p2": classes[:, 2],
            "p": list(classes),
        }
    )


TASKS = {
    "liked": TaskColumns("binary", "label", "score"),
    "stars": TaskColumns("regression", "stars", "stars_score"),
    "kind": TaskColumns("multiclass", "kind", ["p0", "p1", "p2"]),
}


def sources(table: pd.DataFrame, folder: Path) -> dict[str, Any]:
    plain = table.drop(columns="p")
    plain.to_parquet(folder / "p.parquet")
    plain.to_csv(folder / "p.csv", index=False)
    plain.to_csv(folder / "p.tsv", index=False, sep="\t")
    with gzip.open(folder / "p.csv.gz", "wt") as file:
        plain.to_csv(file, index=False)
    return {
        "pandas": plain,
        "shuffled index": plain.set_index(np.arange(len(plain))[::-1]),
        "arrow": pa.Table.from_pandas(plain),
        "dictionary": pa.table({**plain, "user": pa.array(plain["user"]).dictionary_encode()}),
        "mapping": {name: plain[name].to_numpy() for name in plain},
        "parquet": folder / "p.parquet",
        "csv": str(folder / "p.csv"),
        "tsv": folder / "p.tsv",
        "csv.gz": folder / "p.csv.gz",
    }


def test_every_kind_of_table_gives_the_same_numbers(table: pd.DataFrame, tmp_path: Path) -> None:
    results = {
        name: evaluate(source, tasks=TASKS, user="user", weight="weight", resamples=50).to_dict()
        for name, source in sources(table, tmp_path).items()
    }
    expected = results.pop("pandas")
    for name, result in results.items():
        assert result == expected, name


def test_values_are_those_of_scikit_learn(table: pd.DataFrame) -> None:
    result = evaluate(table, tasks=TASKS, weight="weight", intervals=False)
    expected = sk.roc_auc_score(table["label"], table["score"], sample_weight=table["weight"])
    assert result.value("auc", "liked") == pytest.approx(expected)
    assert result.value("r2", "stars") == pytest.approx(
        sk.r2_score(table["stars"], table["stars_score"], sample_weight=table["weight"])
    )
    assert not result["liked"].metrics["auc"].has_interval
    assert "gauc" not in result["liked"].metrics


def test_a_column_of_lists_is_a_score_per_class(table: pd.DataFrame) -> None:
    by_list = {"kind": TaskColumns("multiclass", "kind", "p")}
    frames = [table, pa.Table.from_pandas(table)]
    by_column = evaluate(table, tasks={"kind": TASKS["kind"]}, resamples=50)
    for frame in frames:
        found = evaluate(frame, tasks=by_list, resamples=50)["kind"]
        assert found.metrics == by_column["kind"].metrics
        rates = [[(one.precision, one.recall) for one in some.classes] for some in (found, by_column["kind"])]
        assert rates[0] == rates[1]


def test_intervals_hold_the_value_and_widen_when_rows_of_a_user_agree() -> None:
    generator = np.random.default_rng(5)
    mood = generator.random(60)
    user = np.repeat(np.arange(60), 20)
    label = (generator.random(1200) < mood[user]).astype(int)
    frame = pd.DataFrame({"user": user, "label": label, "score": np.full(1200, 0.5)})
    by_user = evaluate(frame, user="user", metrics=["brier", "log_loss", "accuracy"])["label"].metrics
    by_row = evaluate(frame, metrics=["accuracy"])["label"].metrics
    width = {
        name: one.high - one.low for name, one in (("user", by_user["accuracy"]), ("row", by_row["accuracy"]))
    }
    assert by_user["accuracy"].low < by_user["accuracy"].value < by_user["accuracy"].high
    assert width["user"] > 2 * width["row"]


def test_very_many_rows_are_drawn_in_random_groups() -> None:
    generator = np.random.default_rng(2)
    frame = pd.DataFrame({"label": generator.integers(0, 2, 60_000), "score": np.full(60_000, 0.5)})
    result = evaluate(frame, metrics=["accuracy"], resamples=400)
    one = result["label"].metrics["accuracy"]
    expected = 2 * 1.96 * 0.5 / math.sqrt(60_000)
    assert one.high - one.low == pytest.approx(expected, rel=0.2)
    assert "60,000 rows in 20,000 random groups" in str(result)


def test_default_columns_and_task_type(table: pd.DataFrame) -> None:
    assert evaluate(table[["label", "score"]], intervals=False)["label"].type == "binary"
    stars = pd.DataFrame({"label": table["stars"], "score": table["stars_score"]})
    assert evaluate(stars, intervals=False)["label"].type == "regression"


def test_scores_that_are_no_probabilities_leave_out_what_needs_them(table: pd.DataFrame) -> None:
    logits = table.assign(score=np.log(table["score"] / (1 - table["score"])))
    result = evaluate(logits, intervals=False)["label"]
    thresholded = {"accuracy", "precision", "recall", "f1"}  # at 0.5, which is not in the middle of logits
    assert {"log_loss", "normalized_entropy", "brier", "ece", *thresholded} == set(result.left_out)
    assert evaluate(logits, metrics=["accuracy"], intervals=False).value("accuracy") < 1
    assert result.metrics["auc"].value == pytest.approx(sk.roc_auc_score(table["label"], table["score"]))
    assert "Left out log_loss" in str(evaluate(logits, intervals=False))
    with pytest.raises(MetricError, match="'log_loss' needs probabilities"):
        evaluate(logits, metrics=["log_loss"])


def test_one_class_is_reported_with_its_reason() -> None:
    frame = pd.DataFrame({"label": [0, 0, 0], "score": [0.1, 0.2, 0.3], "user": [1, 2, 3]})
    result = evaluate(frame, user="user")
    estimate = result["label"].metrics["auc"]
    assert math.isnan(estimate.value)
    assert estimate.note == "all labels are of one class"
    assert result["label"].curves is None
    assert "all labels are of one class" in str(result)
    assert (
        json.loads(json.dumps(result.to_dict(), allow_nan=False))["tasks"]["label"]["metrics"]["auc"]["value"]
        is None
    )


def test_the_printed_forms_show_values_intervals_and_users(table: pd.DataFrame) -> None:
    result = evaluate(table, tasks=TASKS, user="user")
    for text in (str(result), result.to_markdown(), result._repr_html_()):
        assert "95 % interval" in text
        assert "percentile bootstrap over 40 users" in text
        assert "liked (binary)" in text
        assert f"{result.value('auc', 'liked'):.3f}" in text
    assert json.dumps(result.to_dict(), allow_nan=False)
    assert result.to_dict()["schema"] == "easyrec.evaluation/1"


def test_metrics_can_be_chosen_by_task(table: pd.DataFrame) -> None:
    result = evaluate(table, tasks=TASKS, metrics={"liked": ["auc"], "stars": ["mae"]}, intervals=False)
    assert list(result["liked"].metrics) == ["auc"]
    assert list(result["stars"].metrics) == ["mae"]
    assert "log_loss" in result["kind"].metrics


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"user": "usr"}, DataError, r"no column 'usr'; did you mean 'user'\?"),
        ({"tasks": {}}, DataError, "nothing to evaluate"),
        (
            {"tasks": {"a": TaskColumns("binary", "stars", "score")}},
            DataError,
            r"Task 'a' .* must be 0 or 1, got",
        ),
        ({"tasks": {"a": TaskColumns("binry", "label", "score")}}, DataError, "did you mean 'binary'"),  # type: ignore[arg-type]
        (
            {"tasks": {"a": TaskColumns("binary", "label", "user")}},
            DataError,
            "must hold numbers, got text such as 'u",
        ),
        ({"metrics": ["acc"]}, MetricError, "Unknown metric 'acc'"),
        (
            {"metrics": ["rmse"]},
            MetricError,
            "does not fit task 'label', which is binary; it is for: regression",
        ),
        ({"metrics": ["gauc"]}, MetricError, "needs a user column"),
        ({"metrics": ["ndcg@10"]}, MetricError, "given a user or session column"),
        ({"metrics": ["coverage@10"], "user": "user"}, MetricError, "accuracy metrics"),
        ({"metrics": {"lable": ["auc"]}}, MetricError, "did you mean 'label'"),
        ({"metrics": "auc"}, MetricError, "must be a list of names"),
        ({"resamples": 3}, EvaluationError, "resamples must be at least 40"),
        ({"weight": "neg"}, DataError, "weight must not be negative"),
    ],
)
def test_wrong_requests_are_explained(table: pd.DataFrame, arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate(table.assign(neg=-1.0), **arguments)


def test_missing_columns_and_rows_are_explained(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'label' missing.*did you mean 'lable'"):
        evaluate(pd.DataFrame({"lable": [1], "score": [0.5]}))
    with pytest.raises(DataError, match="no rows"):
        evaluate(pd.DataFrame({"label": [], "score": []}, dtype=float))
    with pytest.raises(DataError, match="There is no file"):
        evaluate(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="must be a pandas DataFrame"):
        evaluate(7)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="column 'user' has a missing value in row 1"):
        evaluate(pd.DataFrame({"label": [1, 0], "score": [0.5, 0.4], "user": ["a", None]}), user="user")
    arrow = pa.table({"label": pa.array([True, None, False]), "score": [0.1, 0.2, 0.3]})
    with pytest.raises(DataError, match=r"label has a missing value .* in row 1"):
        evaluate(arrow)
    with pytest.raises(DataError, match="lists of one length, got 2 values in row 0 and 1 in row 1"):
        evaluate(
            pa.table({"y": [0, 1], "p": [[0.5, 0.5], [1.0]]}),
            tasks={"y": TaskColumns("multiclass", "y", "p")},
        )
    with pytest.raises(DataError, match="Column 'score' has 1 rows but column 'label' has 2"):
        evaluate({"label": [0, 1], "score": [0.5]})


def test_broken_files_are_explained(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.table({"label": [0, 1], "score": [0.2, 0.7]}), whole)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"broken.parquet cannot be read as Parquet"):
        evaluate(broken)
    text = tmp_path / "p.csv"
    text.write_text("label,score\n0,0.1\n1,0.2,9\n")
    with pytest.raises(DataError, match=r"p\.csv cannot be read"):
        evaluate(text)
    text.write_text("label,score\n0,high\n1,low\n")
    with pytest.raises(DataError, match="must hold numbers, got text such as 'high'"):
        evaluate(text)


def test_several_tasks_need_a_name_for_one_value(table: pd.DataFrame) -> None:
    with pytest.raises(KeyError, match="several tasks"):
        evaluate(table, tasks=TASKS, intervals=False).value("auc")


def test_sessions_have_an_auc_of_their_own_and_users_are_drawn(table: pd.DataFrame) -> None:
    generator = np.random.default_rng(4)
    data = table.assign(visit=generator.integers(0, 3, len(table)))  # numbers that every user has again
    names = ["session_auc", "session_auc_by_positives", "session_auc_uniform"]
    result = evaluate(data, user="user", session="visit", metrics=[*names, "ndcg@3"], resamples=60)
    pair = data["user"].astype(str) + "/" + data["visit"].astype(str)
    for name, weighting in zip(names, ("count", "positives", "uniform"), strict=True):
        one = result["label"].metrics[name]
        assert one.value == pytest.approx(gauc(data["label"], data["score"], pair, weighting=weighting))
        assert one.low < one.value < one.high
    assert result.unit == "user"
    assert result["label"].metrics["ndcg@3"].value == pytest.approx(
        ndcg(ranked_rows(data["label"], data["score"], pair, length=3), 3), rel=0.05
    )
    assert any("not comparable" in note for note in result["label"].notes)
    alone = evaluate(data, session="visit", intervals=False)
    assert alone.unit == "session"
    assert "session_auc" in alone["label"].metrics


def test_duplicated_rows_are_counted_and_the_policy_is_chosen() -> None:
    data = pd.DataFrame(
        {"label": [1, 0, 1, 0], "score": [0.9, 0.2, 0.1, 0.6], "user": list("aabb"), "item": [1, 2, 1, 1]}
    )
    keep = evaluate(data, user="user", item="item", intervals=False)["label"]
    assert "1 rows repeat a user and item of another row; all are kept." in keep.notes
    assert keep.n_rows == 4
    for policy, kept in (("first", [0, 1, 2]), ("last", [0, 1, 3])):
        result = evaluate(data, user="user", item="item", duplicates=policy, intervals=False)["label"]  # type: ignore[arg-type]
        expected = data.iloc[kept]
        assert result.n_rows == 3
        assert result.score_mean == pytest.approx(expected["score"].mean())
    with pytest.raises(DataError, match=r"row 3 \(counting from 0\)"):
        evaluate(data, user="user", item="item", duplicates="error", intervals=False)
    with pytest.raises(EvaluationError, match="did you mean 'first'"):
        evaluate(data, user="user", item="item", duplicates="frist")  # type: ignore[arg-type]
    with pytest.raises(EvaluationError, match="needs a user and an item column"):
        evaluate(data, duplicates="first")


def test_the_interval_of_a_biased_metric_holds_its_value() -> None:
    generator = np.random.default_rng(0)
    for _ in range(10):
        score = generator.random(150)
        data = pd.DataFrame({"label": generator.random(150) < score, "score": score})
        result = evaluate(data, metrics=["ece", "best_f1"], resamples=100)["label"]
        for one in result.metrics.values():
            assert 0 <= one.low <= one.value <= one.high


def test_decisions_are_counted_at_half_and_at_the_best_threshold(table: pd.DataFrame) -> None:
    result = evaluate(table, intervals=False)["label"]
    assert set(result.decisions) == {"default", "best"}
    assert result.decisions["default"].f1 == pytest.approx(result.metrics["f1"].value)
    assert result.decisions["best"].f1 == pytest.approx(result.metrics["best_f1"].value)
    assert result.to_dict()["decisions"]["best"]["threshold"] == result.decisions["best"].threshold


def test_curves_are_drawn_by_name(table: pd.DataFrame) -> None:
    result = evaluate(table, tasks=TASKS, intervals=False)
    for kind in ("roc", "precision_recall", "calibration", "scores", "gain", "lift"):
        assert isinstance(result["liked"].plot(kind), Figure)  # type: ignore[arg-type]
    with pytest.raises(MetricError, match="did you mean 'roc'"):
        result["liked"].plot("rok")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no curves"):
        result["stars"].plot()


def test_the_lift_of_a_perfect_order_is_one_over_the_share_of_positives() -> None:
    data = pd.DataFrame({"label": [1] * 25 + [0] * 75, "score": np.linspace(1, 0, 100)})
    curves = evaluate(data, intervals=False)["label"].curves
    assert curves is not None
    place = curves.share_taken.index(0.25)
    assert curves.share_found[place] == 1.0
    assert curves.share_taken[-1] == curves.share_found[-1] == 1.0
