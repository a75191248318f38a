"""Starting from a run whose vocabularies have changed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from easyrec.config import features as options
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.schema import resolved_yaml
from easyrec.errors import CheckpointError
from easyrec.features.encoder import Encoder
from easyrec.features.vocabulary import make_vocabulary
from easyrec.models.network import build_network
from easyrec.training.checkpoints import CheckpointStore, Progress
from easyrec.training.state import network_state
from easyrec.training.warm_start import match_rows, warm_start

KINDS = {"city": "string", "shop": "int", "kind": "int", "age": "float"}


def pipeline(**changes):
    features = {
        "city": {"type": "id", "side": "user", "embedding_dim": 2},
        "shop": {"type": "id", "side": "item", "embedding_dim": 2, "vocabulary": {"buckets": 5}},
        "kind": {"type": "id", "side": "item", "embedding_dim": 2, "vocabulary": {"size": 3}},
        "age": {"type": "number", "side": "user", "normalize": "none"},
    }
    features.update(changes)
    return PipelineConfig.model_validate(
        {
            "data": {"train": "unused.parquet"},
            "features": {name: feature for name, feature in features.items() if feature},
            "model": {"type": "deepfm", "hidden_units": [4], "batch_norm": True, "dropout": 0.1},
            "tasks": {"liked": {"type": "binary"}},
        }
    )


def made(cities, seed=0, **changes):
    config = pipeline(**changes)
    columns = {
        "city": cities,
        "shop": [7] * len(cities),
        "kind": [1] * len(cities),
        "age": [1.0] * len(cities),
    }
    encoder = Encoder(config, KINDS).fit([pa.table(columns)])
    config = config.model_copy(update={"training": config.training.model_copy(update={"seed": seed})})
    return config, encoder, build_network(config, encoder.schema)


def rows(network, table, kind="embedding"):
    for own, place, key in network.embeddings.places():
        if own == kind and place.name == table:
            return network.embeddings.tables[key].read(place.offset, place.offset + place.rows)
    raise KeyError(table)


@pytest.fixture
def run(tmp_path):
    """A run with cities oslo, rome, bonn (most frequent first) and linear weights that are not zero."""
    config, encoder, network = made(["oslo"] * 3 + ["rome"] * 2 + ["bonn"], seed=1)
    for table in network.embeddings.tables.values():
        table.write(0, np.random.default_rng(2).standard_normal((table.rows, table.dim)).astype(np.float32))
    (tmp_path / "config.yaml").write_text(resolved_yaml(config))
    encoder.save(tmp_path / "features")
    CheckpointStore(tmp_path / "checkpoints").save(network_state(network), Progress(step=9))
    return tmp_path, network


def test_rows_follow_their_value_into_a_vocabulary_that_grew_and_was_reordered(run):
    folder, old = run
    _, encoder, network = made(["bonn"] * 4 + ["kiel"] * 3 + ["oslo"], seed=2)
    fresh = rows(network, "city").copy()
    report = warm_start(network, encoder, folder)
    for kind in ("embedding", "linear"):
        before, now = rows(old, "city", kind), rows(network, "city", kind)
        # missing, out of vocabulary, then bonn, kiel, oslo; before: oslo, rome, bonn
        np.testing.assert_array_equal(now[[0, 1, 2, 4]], before[[0, 1, 4, 2]])
    np.testing.assert_array_equal(rows(network, "city")[3], fresh[3])
    for table in ("shop", "kind"):
        np.testing.assert_array_equal(rows(network, table), rows(old, table))
    match = report.tables["city"]
    assert (match.matched, match.new, match.dropped) == (4, 1, 1)
    for name, variable in network.named_variables().items():
        if name in report.dense_matched:
            np.testing.assert_array_equal(variable.value, old.named_variables()[name].value)
    assert not report.dense_new
    assert not report.dense_dropped
    assert report.lines()[0].endswith("step-0000000009")
    assert "table city: 4 rows matched, 1 new, 1 dropped" in report.lines()


def test_features_that_came_or_went_are_named(run):
    folder, _ = run
    _, encoder, network = made(
        ["oslo"], kind=None, land={"type": "id", "side": "user", "column": "city", "embedding_dim": 2}
    )
    report = warm_start(network, encoder, folder)
    assert report.tables["land"].matched == 0
    assert report.tables_dropped == ["kind"]
    assert "dropped: table kind" in report.lines()[-1]


def test_weights_of_another_shape_keep_their_first_values(run):
    folder, _ = run
    _, encoder, network = made(["oslo"], age=None)
    report = warm_start(network, encoder, folder)
    (reason,) = {reason for name, reason in report.dense_new.items() if "kernel" in name}
    assert reason == "shape [6, 4] here, [7, 4] there"
    assert any("linear" in name for name in report.dense_dropped)


def test_a_table_of_another_width_is_new(run):
    folder, _ = run
    wide = {"embedding_dim": 3}
    _, encoder, network = made(
        ["oslo"],
        **{
            name: {**feature.model_dump(exclude_unset=True), **wide}
            for name, feature in pipeline().features.items()
            if name != "age"
        },
    )
    report = warm_start(network, encoder, folder)
    assert all(rows(network, name).shape[1] == 3 for name in report.tables)


def test_a_checkpoint_of_a_run_can_be_named(run):
    folder, old = run
    _, encoder, network = made(["oslo"])
    report = warm_start(network, encoder, folder / "checkpoints" / "step-0000000009")
    assert report.tables["city"].matched == 3
    np.testing.assert_array_equal(rows(network, "city")[2], rows(old, "city")[2])


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_a_folder_that_is_no_run_is_refused(tmp_path, place):
    _, encoder, network = made(["oslo"])
    with pytest.raises(CheckpointError, match=r"neither the folder of a run .* nor a checkpoint"):
        warm_start(network, encoder, tmp_path / place)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (
            options.HashVocabulary(buckets=4),
            options.HashVocabulary(buckets=4),
            [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)],
        ),
        (options.HashVocabulary(buckets=4), options.HashVocabulary(buckets=3), [(0, 0)]),
        (options.IntegerVocabulary(size=1), options.IntegerVocabulary(size=2), [(0, 0), (1, 1), (2, 2)]),
        (options.IntegerVocabulary(size=1), options.HashVocabulary(buckets=2), [(0, 0)]),
        (
            options.ListVocabulary(values=["a", "b"], oov_buckets=2),
            options.ListVocabulary(values=["b", "c"], oov_buckets=2),
            [(0, 0), (1, 1), (2, 2), (4, 3)],
        ),
        (
            options.ListVocabulary(values=["a", 12], oov_buckets=2),
            options.ListVocabulary(values=["12"], oov_buckets=1),
            [(0, 0), (4, 2)],
        ),
        (None, None, [(0, 0), (1, 1)]),
    ],
)
def test_rows_that_stand_for_the_same_value(before, now, expected):
    before, now = (None if config is None else make_vocabulary("t", config) for config in (before, now))
    sizes = [2 if vocabulary is None else vocabulary.rows for vocabulary in (before, now)]
    old, new = match_rows(before, now, *sizes)
    assert list(zip(old.tolist(), new.tolist(), strict=True)) == expected


def test_buckets_of_another_number_do_not_match():
    assert [places.tolist() for places in match_rows(None, None, 5, 6)] == [[0], [0]]
