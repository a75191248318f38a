"""A run that starts from another one, with vocabularies that have grown and a feature that is new."""

import json

import numpy as np
import pandas as pd
import pytest

import easyrec
from easyrec.errors import CheckpointError
from easyrec.preparation import prepare
from easyrec.training.checkpoints import CheckpointStore
from easyrec.training.state import network_state
from easyrec.workflow import fit
from tests.integration.tiny import pipeline

pytestmark = pytest.mark.integration

MODEL = {
    "features": {"user_id": "id", "movie_id": "id", "genres": {"type": "tags", "separator": "|"}},
    "model": {"type": "fm"},
}


@pytest.fixture(scope="module")
def first(data, tmp_path_factory):
    """A run on the older half of the rows."""
    folder = tmp_path_factory.mktemp("first")
    rows = pd.read_parquet(data / "train.parquet")
    rows[rows["movie_id"] <= 25][:400].to_parquet(folder / "train.parquet")
    config = pipeline(data, folder, **MODEL)
    config["data"] |= {
        "train": str(folder / "train.parquet"),
        "tables": {"item": str(data / "movies.parquet")},
    }
    return easyrec.train(config)


def later(data, first, output, **changes):
    config = pipeline(data, output, **MODEL) | {"name": "later"} | changes
    config["training"] |= {"warm_start": str(first.folder.directory), "epochs": 1, "seed": 9}
    return config


def test_rows_are_matched_by_value_where_the_vocabulary_grew(data, first, tmp_path):
    prepared = prepare(later(data, first, tmp_path))
    before = CheckpointStore(first.folder.checkpoints).choose("best")
    now = {
        variable.name: np.concatenate(list(variable.read())) for variable in network_state(prepared.network)
    }
    old_rows, new_rows = before.array("embedding/movie_id"), now["embedding/movie_id"]
    assert len(new_rows) > len(old_rows)
    old = pd.read_parquet(first.folder.features / "vocabularies" / "movie_id.parquet")["value"].tolist()
    new = prepared.encoder.vocabulary("movie_id").values.to_pylist()
    matched = 0
    for place, value in enumerate(new):
        if value in old:
            np.testing.assert_array_equal(new_rows[place + 2], old_rows[old.index(value) + 2])
            matched += 1
    assert 20 <= matched < len(new)
    assert any("movie_id" in note and f"{len(new) - matched} new" in note for note in prepared.notes)


def test_a_warm_start_is_ahead_of_a_cold_one_and_is_reported(data, first, tmp_path, cli):
    config = later(data, first, tmp_path)
    config["training"] |= {"max_steps": 1}
    warm = easyrec.train(config)
    cold = fit(prepare(config, ["training.warm_start=null", "name=cold"]))
    assert warm.metrics["liked/auc"] > cold.evaluations[-1]["metrics"]["liked/auc"] + 0.05
    warnings = json.loads(warm.folder.summary_path.read_text())["warnings"]
    assert any(text.startswith("warm start from") for text in warnings)
    assert len(warm.recommend(101, n=3)) == 3

    away = first.folder.directory.rename(tmp_path / "away")  # the other run is needed no longer
    try:
        assert cli("export", warm.folder.directory).code == 0
    finally:
        away.rename(first.folder.directory)


def test_a_source_that_is_no_run_is_refused_before_anything_is_written(data, first, tmp_path):
    config = later(data, first, tmp_path)
    config["training"] |= {"warm_start": str(tmp_path)}
    with pytest.raises(CheckpointError, match="neither the folder of a run"):
        easyrec.train(config)
    assert not (tmp_path / "later").exists()
