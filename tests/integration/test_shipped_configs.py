"""Every configuration in `feature_configs` trains as it is, from files to a bundle."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import easyrec
from easyrec.config.loader import load_config
from easyrec.data.dataset import open_dataset
from easyrec.export.files import predict_files
from easyrec.workflow import fit, prepare
from tests.integration import shipped
from tests.integration.weights import weights

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FOLDER = Path(__file__).parents[2] / "feature_configs"
CONFIGS = sorted(FOLDER.glob("*.yaml"))
TRAINED_AGAIN = ("census_mmoe", "criteo_dcn_v2", "movielens_din")
SMALL = [
    "training.batch_size=64",
    "training.max_steps=4",
    "training.log_every=2",
    "training.jit_compile=false",
    "evaluation.resamples=0",
]


@pytest.fixture(scope="module")
def tables(movielens, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    shipped.write_movielens(movielens, folder)
    shipped.write_criteo(folder)
    shipped.write_census(FOLDER / "census_mmoe.yaml", folder)
    return folder


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_trains_end_to_end(path, tables, tmp_path):
    run = easyrec.train(path, [*shipped.overrides_for(path, tables), *SMALL, f"output={tmp_path}"])
    config, folder = run.folder.config(), run.folder

    assert run.result.steps == 4
    assert {name.split("/")[0] for name in run.metrics} >= set(config.tasks) - {
        name for name, task in config.tasks.items() if task.type == "retrieval"
    }
    # Precision is undefined as long as nothing is predicted positive.
    undefined = {name for name, value in run.metrics.items() if not math.isfinite(value)}
    assert not {name for name in undefined if not name.endswith("/precision")}
    if config.data.keys.user is not None:
        assert run.metrics["ranking/ndcg@10"] >= 0
    for name in ("report.json", "report.md", "report.html"):
        assert (folder.report / name).stat().st_size > 1000
    assert folder.summary_path.is_file()

    rows = next(iter(open_dataset(config, cache=folder.prepared).bind(config).eval.chunks()))
    predictions = run.predict(rows)
    assert list(predictions.columns) == list(config.tasks)
    assert np.isfinite(predictions.to_numpy()).all()
    assert (predictions.std() > 0).all()

    if config.data.train.options:  # files are read as those of training were, here without a header
        predicted = predict_files(run.bundle, config.data.train.path, tmp_path / "predicted.csv")
        assert predicted.rows >= json.loads(folder.summary_path.read_text())["data"]["train"]["rows_used"]

    assert load_config(folder.config_path) == config
    if path.stem in TRAINED_AGAIN:
        again = prepare(folder.config_path, run=tmp_path / "again")
        result = fit(again)
        assert result.evaluations == run.result.evaluations
        assert weights(again.run.directory) == weights(folder.directory)


def test_the_tables_are_as_hard_as_the_real_ones(tables):
    criteo = pq.read_table(tables / "criteo" / "train.parquet")
    assert criteo["I1"].null_count > 0
    assert pa.compute.min(criteo["I1"]).as_py() < 0
    assert criteo["C26"].null_count > 0


def test_a_shipped_configuration_trains_compiled_from_the_command_line(tables, tmp_path, cli):
    path = FOLDER / "criteo_deepfm.yaml"
    overrides = [
        *shipped.overrides_for(path, tables),
        *SMALL,
        f"output={tmp_path}",
        "training.jit_compile=true",
    ]
    outcome = cli("train", path, *(part for override in overrides for part in ("--set", override)))
    assert outcome.code == 0, outcome.err
    assert "label" in outcome.out
    assert "auc" in outcome.out
    assert f"bundle  {tmp_path / 'criteo-deepfm' / 'bundle'}" in outcome.out
    assert "reading the data ..." in outcome.err
