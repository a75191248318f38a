"""The commands that look at a finished run."""

import json
import shutil

import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import easyrec

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def copied(trained, tmp_path_factory):
    """A copy of the run that a test may write to."""
    return shutil.copytree(trained.folder.directory, tmp_path_factory.mktemp("copy") / "films")


def test_evaluate_measures_the_bundle_as_training_did(trained, copied, cli, tmp_path):
    outcome = cli("evaluate", copied, "--report", tmp_path / "again")
    assert outcome.code == 0, outcome.err
    assert "popularity" in outcome.out
    before = json.loads((trained.folder.report / "report.json").read_text())
    after = json.loads((tmp_path / "again" / "report.json").read_text())
    auc = [report["evaluation"]["tasks"]["liked"]["metrics"]["auc"]["value"] for report in (before, after)]
    assert auc[0] == pytest.approx(auc[1], abs=1e-6)
    assert f"report  {tmp_path / 'again' / 'report.html'}" in outcome.out


def test_evaluate_on_other_rows(copied, data, cli, tmp_path):
    rows = pd.read_parquet(data / "eval.parquet")
    rows[:100].to_csv(tmp_path / "some.csv", index=False)
    outcome = cli("evaluate", copied, "--data", tmp_path / "some.csv", "--report", tmp_path / "some")
    assert outcome.code == 0, outcome.err
    report = json.loads((tmp_path / "some" / "report.json").read_text())
    assert report["evaluation"]["tasks"]["liked"]["n_rows"] == 100


def test_predict_then_evaluate_the_predictions(trained, copied, data, cli, tmp_path):
    rows = pd.read_parquet(data / "eval.parquet")
    rows["clicked"] = (rows["rating"] >= 4).astype(int)
    rows.to_parquet(tmp_path / "rows.parquet")
    predicted = cli(
        "predict", copied, "--data", tmp_path / "rows.parquet", "--output", tmp_path / "out.csv",
        "--keep", "user_id=who,clicked",
    )  # fmt: skip
    assert predicted.code == 0, predicted.err
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table.columns) == ["who", "clicked", "liked"]
    outcome = cli(
        "evaluate", "--predictions", tmp_path / "out.csv", "--label", "clicked", "--score", "liked",
        "--user", "who", "--report", tmp_path / "judged",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    report = json.loads((tmp_path / "judged" / "report.json").read_text())
    [task] = report["evaluation"]["tasks"].values()
    assert task["metrics"]["auc"]["value"] == pytest.approx(roc_auc_score(table["clicked"], table["liked"]))
    assert (tmp_path / "judged" / "report.md").is_file()


def test_export_writes_the_same_model_again(trained, copied, data, cli):
    before = easyrec.load(copied)
    outcome = cli("export", copied, "--checkpoint", "last")
    assert outcome.code == 0, outcome.err
    after = easyrec.load(copied)
    frame = pd.read_parquet(data / "eval.parquet")
    if trained.result.best_step == trained.result.steps:
        pd.testing.assert_frame_equal(before.predict(frame), after.predict(frame))
    assert after.manifest.metrics.keys() == before.manifest.metrics.keys()


def test_recommend_by_title(copied, cli):
    outcome = cli("recommend", copied, "--user", 101, "-n", 3)
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("Film ") == 3
    unknown = cli("recommend", copied, "--user", 99999, "-n", 3)
    assert unknown.code == 0
    assert "popular" in unknown.err


def test_a_run_without_its_data_still_predicts_and_recommends(copied, trained):
    moved = copied.with_name("moved")
    shutil.copytree(copied / "bundle", moved)
    bundle = easyrec.load(moved)
    assert len(bundle.recommend(101, n=5)) == 5


@pytest.mark.parametrize("command", ["evaluate", "export", "recommend"])
def test_what_is_no_run_is_refused(command, refused, tmp_path):
    more = ["--user", "1"] if command == "recommend" else []
    assert "nowhere" in refused(command, tmp_path / "nowhere", *more)


def test_evaluate_needs_one_thing_to_judge(refused, copied, tmp_path):
    assert "either" in refused("evaluate")
    assert "either" in refused("evaluate", copied, "--predictions", tmp_path / "x.csv")
    assert "x.csv" in refused("evaluate", "--predictions", tmp_path / "x.csv")
