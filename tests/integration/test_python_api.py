"""`easyrec.train` and `easyrec.load`, as a notebook uses them."""

import json
import math

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

import easyrec
from easyrec.config.loader import load_config
from easyrec.offline import NetworkPredictor
from easyrec.preparation import open_prepared, prepare
from easyrec.workflow import fit, restore_best
from tests.integration.tiny import pipeline
from tests.integration.weights import weights

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def loaded(trained):
    return easyrec.load(trained.folder.directory)


@pytest.fixture(scope="module")
def rows(trained):
    """Evaluation rows with their histories, as the data part hands them to the model."""
    return next(iter(open_prepared(trained.folder).data.eval.chunks()))


def test_training_gives_metrics_that_are_numbers(trained):
    assert trained.result.reason == "completed"
    assert {"liked/auc", "liked/log_loss", "ranking/ndcg@10"} <= trained.metrics.keys()
    assert all(math.isfinite(value) for value in trained.metrics.values())


def test_a_run_shows_itself_in_a_line(trained):
    auc = trained.metrics["liked/auc"]
    assert (
        repr(trained)
        == f"Run({str(trained.folder.directory)!r}, completed after 38 steps, liked/auc={auc:.4f})"
    )


def test_a_training_of_few_steps_says_so(trained):
    assert any(note.startswith("training took only 38 steps") for note in trained.notes)


def test_a_report_says_that_its_rows_have_chosen_the_checkpoint(trained, data, tmp_path):
    said = "on the rows that are judged here, which flatters it"
    warnings = json.loads(trained.folder.summary_path.read_text())["warnings"]
    assert any(said in text and f"best of {len(trained.result.evaluations)}" in text for text in warnings)
    assert said in (trained.folder.report / "report.md").read_text()
    assert any(said in note for note in trained.notes)
    last = easyrec.train(pipeline(data, tmp_path) | {"export": {"checkpoint": "last"}})
    assert said not in last.folder.summary_path.read_text()


def test_the_model_learns_the_taste_of_the_users(trained):
    assert trained.metrics["liked/auc"] > 0.7


def test_training_path_and_bundle_predict_the_same(trained, loaded, rows):
    prepared = open_prepared(trained.folder)
    restore_best(prepared)
    of_network = NetworkPredictor(prepared.encoder, prepared.network, 50)(rows)["liked"]
    of_bundle = loaded.predict(rows)["liked"].to_numpy()
    np.testing.assert_allclose(of_bundle, of_network, rtol=1e-5, atol=1e-6)
    assert len(np.unique(of_bundle)) > 50


def test_the_reported_metrics_are_those_of_the_bundle(trained, loaded, rows):
    from sklearn.metrics import log_loss, roc_auc_score

    label, score = np.asarray(rows["label/liked"]), loaded.predict(rows)["liked"]
    assert trained.metrics["liked/auc"] == pytest.approx(roc_auc_score(label, score), abs=1e-6)
    assert trained.metrics["liked/log_loss"] == pytest.approx(log_loss(label, score), abs=1e-5)


def test_run_and_loaded_bundle_predict_and_recommend_the_same(trained, loaded, rows):
    frame = rows.to_pandas().drop(columns="label/liked")
    pd.testing.assert_frame_equal(trained.predict(frame), loaded.predict(frame))
    first, second = trained.recommend(101, n=5), loaded.recommend(101, n=5)
    pd.testing.assert_frame_equal(first, second)
    assert list(first["position"]) == [1, 2, 3, 4, 5]
    assert first["score"].is_monotonic_decreasing
    seen = pq.read_table(trained.folder.config().data.train.path[0]).to_pandas().query("user_id == 101")
    assert not set(first["movie_id"]) & set(seen["movie_id"])


def test_a_batch_has_a_row_at_least(loaded, rows):
    for size in (0, -1):
        with pytest.raises(easyrec.EasyRecError, match=f"at least 1; got {size}"):
            loaded.predict(rows, batch_size=size)
    pd.testing.assert_frame_equal(
        loaded.predict(rows, keep="user_id"), loaded.predict(rows, keep=["user_id"])
    )


def test_the_run_holds_everything(trained):
    folder = trained.folder
    for name in ("report.json", "report.md", "report.html"):
        assert (folder.report / name).stat().st_size > 100
    summary = json.loads(folder.summary_path.read_text())
    assert summary["data"]["train"]["rows_used"] == 1200
    assert summary["data"]["eval"]["rows_used"] == 300
    assert summary["training"]["examples"] == 2 * 1200
    assert summary["metrics"] == trained.metrics
    assert summary["features"]["device"]["missing_share"] == 0
    assert {line["event"] for line in folder.logged()} == {
        "start",
        "train",
        "evaluation",
        "checkpoint",
        "end",
    }
    assert folder.config().name == "films"
    page = (folder.report / "report.html").read_text()
    assert "popularity" in page
    assert "Film " in page


def test_training_from_the_resolved_configuration_gives_the_same_run(trained, tmp_path):
    resolved = trained.folder.config_path
    assert load_config(resolved) == trained.folder.config()
    assert yaml.safe_load(resolved.read_text())["training"]["optimizer"]["dense"]["type"] == "adam"
    again = prepare(resolved, run=tmp_path / "again")
    assert fit(again).evaluations == trained.result.evaluations
    assert again.run.config_path.read_text() == resolved.read_text()
    assert weights(again.run.directory) == weights(trained.folder.directory)


def test_it_is_quiet(data, tmp_path, capfd, recwarn, caplog):
    config = pipeline(data, tmp_path, features={"movie_id": "id"}, model={"type": "logistic_regression"})
    run = easyrec.train(config)
    run.predict(pd.DataFrame({"movie_id": [1, 2]}))
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]
