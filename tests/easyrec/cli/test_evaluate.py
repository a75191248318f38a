import json

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
        (["--label", "clicket"], 1, "clicked"),
        (["--label", "clicked", "--score", ","], 2, "--score names no column"),
        (["--label", "name"], 1, "must hold numbers"),
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
