import json

import numpy as np
import pyarrow as pa
import pytest

from easyrec.cli.main import run
from easyrec.errors import DataError, EasyRecError
from easyrec.export.bundle import Bundle
from easyrec.offline.explain import explain_run
from evaluation import EvaluationError, MetricError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def explanation(two_runs):
    return explain_run(two_runs.full, examples=4, repeats=2)


def test_features_that_matter_come_first(explanation):
    losses = {one.feature: one.loss for one in explanation.importance.features}
    assert set(losses) == {"user", "item", "kind", "price", "noise"}
    assert explanation.importance.features[0].feature in ("item", "price")
    assert losses["item"].low > 0
    assert abs(losses["noise"].value) < losses["item"].value
    assert explanation.importance.unit == "user"
    assert explanation.rows == 400


def test_contributions_add_up_to_the_prediction_of_the_bundle(explanation, two_runs):
    bundle = Bundle.load(two_runs.full)
    rows = pa.parquet.read_table(two_runs.data / "eval.parquet")
    predicted = np.sort(bundle.predict(rows)["liked"].to_numpy())
    log_odds = np.log(predicted / (1 - predicted))
    for one in explanation.attributions:
        assert one.unit == "log-odds"
        assert abs(one.gap) < 0.02
        assert np.abs(log_odds - one.prediction).min() < 1e-4
    assert explanation.attributions[0].prediction == pytest.approx(log_odds[-1], abs=1e-4)
    assert explanation.attributions[-1].prediction == pytest.approx(log_odds[0], abs=1e-4)


def test_the_command_writes_a_report(two_runs, capsys, tmp_path):
    command = ["explain", str(two_runs.full), "--rows", "100", "--examples", "1", "--repeats", "1"]
    assert run([*command, "--metric", "log_loss", "--report", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "loss of Log-loss" in printed
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["importance"][0]["metric"] == "log_loss"
    assert len(report["attributions"]) == 1
    assert "What predictions come from" in (tmp_path / "report.html").read_text()


def test_the_report_of_a_run_shows_its_explanation(two_runs, capsys, tmp_path):
    command = ["explain", str(two_runs.full), "--rows", "100", "--examples", "2", "--repeats", "1"]
    assert run(command) == 0
    assert run(["evaluate", str(two_runs.full), "--report", str(tmp_path)]) == 0
    own = json.loads((two_runs.full / "explanation" / "report.json").read_text())
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["importance"] == own["importance"]
    assert report["attributions"] == own["attributions"]
    assert report["leakage"]["checks"]


def test_an_explanation_joins_the_report_that_is_there(two_runs, capsys):
    before = {path.name: path.read_text() for path in (two_runs.poor / "report").iterdir()}
    assert run(["explain", str(two_runs.poor), "--rows", "100", "--examples", "1", "--repeats", "2"]) == 0
    after = {path.name: path.read_text() for path in (two_runs.poor / "report").iterdir()}
    own = json.loads((two_runs.poor / "explanation" / "report.json").read_text())
    content = json.loads(after["report.json"])
    assert content["importance"] == own["importance"]
    assert content["attributions"] == own["attributions"]
    assert {**content, "importance": [], "attributions": []} == json.loads(before["report.json"])
    for name in ("report.html", "report.md"):
        assert "of AUC" not in before[name].partition("explanations -->")[2].partition("explanations -->")[0]
        assert "of AUC" in after[name].partition("explanations -->")[2].partition("explanations -->")[0]
        assert after[name].partition("<!-- explanations")[0] == before[name].partition("<!-- explanations")[0]
    assert run(["explain", str(two_runs.poor), "--rows", "100", "--examples", "1", "--repeats", "2"]) == 0
    assert (two_runs.poor / "report" / "report.md").read_text() == after["report.md"]
    assert own["command"].endswith("--rows 100 --examples 1 --repeats 2")


def test_wrong_requests_are_explained(two_runs, capsys):
    with pytest.raises(DataError, match="liked"):
        explain_run(two_runs.full, task="like")
    for kind in (EasyRecError, EvaluationError, MetricError):  # whichever of the two packages one knows
        with pytest.raises(kind, match="did you mean 'auc'"):
            explain_run(two_runs.full, metric="acu")
    assert run(["explain", str(two_runs.data)]) == 2
    assert "is not a run" in capsys.readouterr().err
