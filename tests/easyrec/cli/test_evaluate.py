import json
import shlex

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error

from easyrec.cli.main import run


@pytest.fixture
def judge(tmp_path, capsys):
    """Judges a table from the command line; gives the metrics of its task."""

    def evaluate(table, *options):
        table.to_parquet(tmp_path / "scored.parquet")
        scored, report = str(tmp_path / "scored.parquet"), str(tmp_path / "report")
        code = run(["evaluate", "--predictions", scored, "--report", report, *options])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        assert str(tmp_path / "report" / "report.html") in captured.out
        report = json.loads((tmp_path / "report" / "report.json").read_text())
        [task] = report["evaluation"]["tasks"].values()
        return task["type"], {name: metric["value"] for name, metric in task["metrics"].items()}

    return evaluate


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_clicks(judge, random):
    table = pd.DataFrame({"label": random.integers(0, 2, 50), "score": random.random(50)})
    kind, metrics = judge(table)
    assert kind == "binary"
    assert metrics["auc"] == pytest.approx(roc_auc_score(table["label"], table["score"]))
    table = table.rename(columns={"label": "clicked", "score": "p"}).assign(who=random.integers(0, 5, 50))
    kind, named = judge(table, "--label", "clicked", "--score", "p", "--user", "who")
    assert named["auc"] == metrics["auc"]
    assert "gauc" in named


def test_ratings(judge, random):
    table = pd.DataFrame({"stars": random.integers(1, 6, 50), "predicted": random.random(50) * 5})
    kind, metrics = judge(table, "--label", "stars", "--score", "predicted")
    assert kind == "regression"
    assert metrics["rmse"] == pytest.approx(root_mean_squared_error(table["stars"], table["predicted"]))


def test_classes(judge, random):
    table = pd.DataFrame(random.dirichlet([1, 1, 1], 50), columns=["a", "b", "c"])
    table["kind"] = random.integers(0, 3, 50)
    kind, metrics = judge(table, "--label", "kind", "--score", "a,b, c")
    assert kind == "multiclass"
    assert metrics["log_loss"] == pytest.approx(log_loss(table["kind"], table[["a", "b", "c"]]))


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--label", "clicket"], 2, "clicked"),
        (["--label", "clicked", "--score", ","], 2, "--score names no column"),
        (["--label", "name"], 2, "must hold numbers"),
    ],
)
def test_columns_that_do_not_fit_are_named(tmp_path, capsys, options, code, message):
    table = pd.DataFrame({"clicked": [0, 1], "score": [0.1, 0.7], "name": ["a", "b"]})
    table.to_csv(tmp_path / "scored.csv", index=False)
    done = run(
        ["evaluate", "--predictions", str(tmp_path / "scored.csv"), "--report", str(tmp_path), *options]
    )
    error = capsys.readouterr().err
    assert done == code
    assert message in error
    assert "internal error" not in error


def test_slices_metrics_and_duplicates(judge, random, tmp_path):
    table = pd.DataFrame(
        {
            "label": random.integers(0, 2, 200),
            "score": random.random(200),
            "who": random.integers(0, 10, 200),
            "what": random.integers(0, 15, 200),
            "visit": random.integers(0, 4, 200),
            "country": random.choice(["a", "b"], 200),
            "price": random.random(200),
        }
    )
    options = [
        "--user",
        "who",
        "--session",
        "visit",
        "--item",
        "what",
        "--slice",
        "country",
        "--slice",
        "price:2",
    ]
    _, metrics = judge(table, *options, "--metric", "ndcg@3", "--metric", "auc", "--metric", "session_auc")
    assert set(metrics) == {"ndcg@3", "auc", "session_auc"}
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [one["column"] for one in report["slices"][0]["slices"]] == [
        "country",
        "country",
        "price",
        "price",
    ]
    assert f"--slice country --slice price:2 --report {tmp_path / 'report'}" in report["command"]
    assert any("repeat a user and item" in note for note in report["evaluation"]["tasks"]["label"]["notes"])
    judge(table, *options[:2], "--item", "what", "--duplicates", "last")
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["evaluation"]["tasks"]["label"]["n_rows"] == len(table.drop_duplicates(["who", "what"]))


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--duplicates", "some"], 2, "--duplicates must be one of keep, first, last, error"),
        (["--duplicates", "first"], 2, "needs a user and an item column"),
        (["--slice", "contry"], 2, "no column 'contry'"),
        (["--metric", "acu"], 2, "did you mean 'auc'"),
        (["--metric", "rmse"], 2, "does not fit task 'label', which is binary"),
        (["--level", "2"], 2, "level must be between 0 and 1"),
        (["--resamples", "-1"], 2, "resamples must be at least 40"),
        (["--classes", "a,b"], 2, "names the classes of a multi-class task, but 'label' is binary"),
    ],
)
def test_wrong_options_are_explained(tmp_path, capsys, options, code, message):
    pd.DataFrame({"label": [0, 1] * 5, "score": np.linspace(0, 1, 10)}).to_csv(
        tmp_path / "t.csv", index=False
    )
    given = ["evaluate", "--predictions", str(tmp_path / "t.csv"), "--report", str(tmp_path / "r")]
    assert run([*given, *options]) == code
    assert message in capsys.readouterr().err


def test_options_of_tables_do_not_fit_runs(tmp_path, capsys):
    for option in ("--level", "--resamples", "--duplicates", "--user", "--label", "--task", "--classes"):
        assert run(["evaluate", str(tmp_path), option, "7" if option != "--level" else "0.9"]) == 2
        assert f"{option}: for --predictions only" in capsys.readouterr().err
    assert run(["evaluate", str(tmp_path), "--slice", "age"]) == 2
    assert "--slice: for --predictions only" in capsys.readouterr().err


def test_several_tasks_types_and_classes(random, tmp_path, capsys):
    shares = random.dirichlet([1, 1], 80)
    table = pd.DataFrame({"p_no": shares[:, 0], "p_yes": shares[:, 1], "stars": random.integers(1, 3, 80)})
    table["bought"] = np.where(random.random(80) < table["p_yes"], "yes", "no")
    table["clicked"] = random.integers(0, 2, 80)
    table.to_csv(tmp_path / "scored.csv", sep=";", index=False)
    options = [
        *("--label", "bought", "--score", "p_no,p_yes", "--label", "clicked", "--score", "p_yes"),
        *("--label", "stars", "--score", "p_no", "--slice", "clicked", "--report", str(tmp_path / "r")),
    ]
    assert run(["evaluate", "--predictions", str(tmp_path / "scored.csv"), *options]) == 0
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    tasks = report["evaluation"]["tasks"]
    assert {name: task["type"] for name, task in tasks.items()} == {
        "bought": "multiclass",
        "clicked": "binary",
        "stars": "regression",
    }
    assert [one["task"] for one in report["slices"]] == ["bought", "clicked", "stars"]
    assert report["versions"]["easyrec"]
    options += ["--metric", "rmse", "--metric", "auc", "--metric", "brier"]
    assert run(["evaluate", "--predictions", str(tmp_path / "scored.csv"), *options]) == 0
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert {name: list(task["metrics"]) for name, task in report["evaluation"]["tasks"].items()} == {
        "bought": ["auc"],
        "clicked": ["auc", "brier"],
        "stars": ["rmse"],
    }
    assert (
        run(["evaluate", "--predictions", str(tmp_path / "scored.csv"), *options[:-6], "--metric", "rmse"])
        == 0
    )
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert list(report["evaluation"]["tasks"]) == ["stars"]
    before = (tmp_path / "r" / "report.html").read_text()
    command = shlex.split(report["command"])
    assert run(command[1:]) == 0
    assert (tmp_path / "r" / "report.html").read_text() == before
    capsys.readouterr()
    typed = ["--task", "binary", "--label", "stars", "--score", "p_no"]
    assert run(["evaluate", "--predictions", str(tmp_path / "scored.csv"), *typed]) == 2
    assert "label of a binary task must be 0 or 1, got 2 in row" in capsys.readouterr().err


def test_slices_and_metrics_are_of_the_same_rows_with_the_same_interval(judge, random, tmp_path):
    table = pd.DataFrame(
        {
            "label": random.integers(0, 2, 300),
            "score": random.random(300),
            "who": random.integers(0, 30, 300),
            "what": random.integers(0, 5, 300),
            "country": random.choice(["a", "b"], 300),
        }
    )
    judge(table, "--user", "who", "--item", "what", "--duplicates", "first", "--slice", "country")
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    task = report["evaluation"]["tasks"]["label"]
    assert sum(one["n_rows"] for one in report["slices"][0]["slices"]) == task["n_rows"] < 300
    assert report["slices"][0]["overall"] == task["metrics"]["auc"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--label", "a", "--label", "b"], "--label is given 2 times and --score 1 times"),
        (["--label", "a", "--label", "a", "--score", "p", "--score", "q"], "names a column twice"),
        (["--task", "binry"], "'binry'"),
        (["--task", "binary", "--task", "binary"], "--task is given 2 times for 1 labels"),
    ],
)
def test_wrong_tasks_are_explained(tmp_path, capsys, options, message):
    pd.DataFrame({"label": [0, 1], "score": [0.1, 0.7]}).to_csv(tmp_path / "t.csv", index=False)
    assert run(["evaluate", "--predictions", str(tmp_path / "t.csv"), *options]) == 2
    assert message in capsys.readouterr().err
