import json
import shlex
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import easyrec
from easyrec.cli.main import run
from easyrec.errors import EasyRecError
from easyrec.offline.comparison import compare_runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def comparison(two_runs):
    return compare_runs(two_runs.poor, two_runs.full, resamples=200)


def test_the_difference_is_that_of_the_bundles_on_the_evaluation_rows(comparison, two_runs):
    rows = pd.read_parquet(two_runs.data / "eval.parquet")
    auc = {}
    for name in ("full", "poor"):
        predictions = easyrec.load(two_runs.data / "runs" / name).predict(rows)
        auc[name] = roc_auc_score(rows["liked"], predictions["liked"])
    one = comparison["liked/auc"]
    assert one.paired.difference.value == pytest.approx(auc["full"] - auc["poor"], abs=1e-6)
    assert one.verdict == "better"
    assert comparison.unit == "user"


def test_ranked_lists_are_those_of_each_report(comparison, two_runs):
    for name, run_folder in (("model", two_runs.full), ("reference", two_runs.poor)):
        report = json.loads((run_folder / "report" / "report.json").read_text())
        reported = report["ranking"]["models"]["model"]["ndcg@5"]["value"]
        assert getattr(comparison["ranking/ndcg@5"], name).value == pytest.approx(reported)


def test_a_gate_decides_the_exit_code(two_runs, capsys, tmp_path):
    command = ["compare", str(two_runs.full), str(two_runs.poor), "--resamples", "60"]
    assert run([*command, "--gate", "liked/auc:-0.001", "--output", str(tmp_path / "c.json")]) == 1
    printed = capsys.readouterr().out
    assert "FAILED  liked/auc changed by −" in printed
    saved = json.loads((tmp_path / "c.json").read_text())
    assert saved["gates"][0]["passed"] is False
    assert saved["metrics"]["liked/auc"]["verdict"] == "worse"
    assert run([*command, "--gate", "liked/auc:-0.9", "--gate", "liked/log_loss:9"]) == 0
    assert "passed  liked/auc" in capsys.readouterr().out


def test_runs_are_put_side_by_side(two_runs, capsys):
    assert run(["compare", str(two_runs.poor), str(two_runs.full), "--metric", "liked/auc"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:2] == ["1", "full"]
    assert lines[3].split()[:2] == ["2", "poor"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gate", "auc"], "METRIC:CHANGE"),
        (["--gate", "liked/acu:0"], "did you mean 'auc'"),
        (["--gate", "like/auc:0"], "did you mean 'liked/auc'"),
        (["--metric", "liked/acu"], "did you mean 'liked/auc'"),
    ],
)
def test_wrong_options_are_explained(two_runs, capsys, options, message):
    assert run(["compare", str(two_runs.full), str(two_runs.poor), "--resamples", "40", *options]) == 2
    assert message in capsys.readouterr().err


def test_one_run_is_too_few(two_runs, capsys):
    assert run(["compare", str(two_runs.full)]) == 2
    assert "give two runs" in capsys.readouterr().err


def test_other_rows_are_refused(two_runs, tmp_path):
    other = pd.read_parquet(two_runs.data / "eval.parquet")
    other["liked"] = 1 - other["liked"]
    other.to_parquet(tmp_path / "other.parquet")
    same = compare_runs(two_runs.full, two_runs.poor, data=[str(tmp_path / "other.parquet")], resamples=40)
    assert same["liked/auc"].reference.value < 0.5  # both on the other rows
    moved = tmp_path / "moved"
    shutil.copytree(two_runs.poor, moved)
    config = (moved / "config.yaml").read_text()
    (moved / "config.yaml").write_text(config.replace("eval.parquet", "fewer.parquet"))
    other[:300].to_parquet(two_runs.data / "fewer.parquet")
    with pytest.raises(EasyRecError, match=r"do not have the same evaluation rows \(400 and 300\).*--data"):
        compare_runs(two_runs.full, moved, resamples=40)
    with pytest.raises(EasyRecError, match="is not a run"):
        compare_runs(two_runs.full, two_runs.data / "nothing", resamples=40)


def test_the_report_shows_baselines_data_and_leakage(two_runs):
    report = json.loads((two_runs.full / "report" / "report.json").read_text())
    task = report["evaluation"]["tasks"]["liked"]
    assert set(task["baselines"]) == {"constant", "item_rate"}
    train = pd.read_parquet(two_runs.data / "train.parquet")
    evaluated = pd.read_parquet(two_runs.data / "eval.parquet")
    mean = train["liked"].mean()
    groups = train.groupby("item")["liked"].agg(["sum", "count"])
    rates = evaluated["item"].map((groups["sum"] + 10 * mean) / (groups["count"] + 10)).fillna(mean)
    expected = np.mean((rates - evaluated["liked"]) ** 2)
    assert task["baselines"]["item_rate"]["metrics"]["brier"]["value"] == pytest.approx(expected, rel=1e-6)
    assert report["data"]["evaluation"]["rows used"] == 400
    [slices] = report["slices"]
    assert {one["column"] for one in slices["slices"]} == {
        "user's training rows",
        "item's training rows",
    }
    assert sum(one["n_rows"] for one in slices["slices"]) == 800
    assert {one["severity"] for one in report["leakage"]["findings"]} <= {"note"}
    assert {"popularity", "recent_popularity", "co_occurrence", "last_item", "random"} <= set(
        report["ranking"]["models"]
    )


def test_the_command_in_a_report_makes_it_again_even_if_a_part_fails(two_runs, capsys, monkeypatch):
    def broken(*_):
        raise TypeError("times of two kinds")

    monkeypatch.setattr("easyrec.reports.look_for_leakage", broken)
    report = json.loads((two_runs.poor / "report" / "report.json").read_text())
    command = shlex.split(report["command"])
    assert command[0] == "easyrec"
    assert run(command[1:]) == 0
    assert "the report is without signs of leakage: TypeError: times of two kinds" in capsys.readouterr().err
    folder = two_runs.poor.with_name("poor-again") / "report"
    again = json.loads((folder / "report.json").read_text())
    assert (
        again["evaluation"]["tasks"]["liked"]["metrics"] == report["evaluation"]["tasks"]["liked"]["metrics"]
    )
    assert again["ranking"]["models"] == report["ranking"]["models"]
    assert again["leakage"] is None
    assert any("without signs of leakage" in note for note in again["notes"])
    assert "without signs of leakage" in (folder / "report.html").read_text()


def test_a_report_on_other_rows_is_about_those_rows(two_runs, tmp_path, capsys):
    seen = pd.read_parquet(two_runs.data / "train.parquet")[:200]
    seen.to_parquet(tmp_path / "seen.parquet")
    other, folder = str(tmp_path / "seen.parquet"), str(tmp_path / "report")
    assert run(["evaluate", str(two_runs.full), "--data", other, "--report", folder]) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["summary"]["evaluation rows"] == report["data"]["evaluation"]["rows used"] == 200
    assert report["data"]["training"]["rows used"] == 1100
    assert any(one["severity"] == "leak" and one["share"] == 1 for one in report["leakage"]["findings"])
    assert report["verdicts"][0].startswith("Signs of leakage")
    assert report["importance"] == []
    assert shlex.split(report["command"])[1:] == [
        "evaluate", str(two_runs.full), "--data", other, "--report", folder
    ]  # fmt: skip
