"""Drift: figures by hand, references from a bundle's files, and what the service reports."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from easyrec.config.pipeline import PipelineConfig
from easyrec.features.state import FittedState, save
from serving.operations.drift import (
    ENOUGH,
    FREQUENT,
    BucketReference,
    CategoryReference,
    DriftMonitor,
    MeanReference,
    references,
    stability_index,
)

CITIES = [f"c{n}" for n in range(30)]
COUNTS = np.array([10, 5, *range(300, 0, -10)])  # missing, unseen, then the cities by frequency


def model(folder, **changes):
    """What is read of a served model, with features fitted on three columns of the user."""
    features = {
        "city": {"type": "id", "side": "user"},
        "age": {"type": "number", "side": "user"},
        "income": {"type": "number", "side": "user", "buckets": 4},
        "spent": {"type": "number", "side": "user", "normalize": "log1p"},
        "item_id": {"type": "id", "side": "item"},
    }
    config = PipelineConfig.model_validate(
        {
            "data": {"train": "x", "keys": {"user": "user_id", "item": "item_id"}},
            "features": features,
            "model": "deepfm",
            "tasks": {"click": {"type": "binary"}},
        }
    )
    fitted = {
        "age": {"state": {"offset": 40.0, "scale": 0.1}},
        "income": {"state": {"boundaries": [10.0, 20.0, 30.0]}},
        "spent": {"state": {"offset": 0.0, "scale": 1.0}},
        "city": {"state": {}},
    }
    state = FittedState(
        {},
        fitted | changes,
        {"city": (pa.array(CITIES, pa.large_string()), None)},
        {"city": COUNTS},
    )
    save(folder / "features", state)
    return SimpleNamespace(
        manifest=SimpleNamespace(keys={"user": "user_id"}),
        folder=folder,
        config=config,
        name="films",
        version="1",
        user_columns=["city", "age", "income", "spent"],
    )


def test_the_index_is_that_of_the_formula():
    found, expected = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    assert stability_index(found, expected) == pytest.approx(
        (0.5 - 0.25) * np.log(0.5 / 0.25) + (0.5 - 0.75) * np.log(0.5 / 0.75)
    )
    assert stability_index(expected, expected) == 0
    assert np.isfinite(stability_index(np.array([1.0, 0.0]), np.array([0.0, 1.0])))


def test_references_come_from_the_files_of_the_bundle(tmp_path):
    found = references(model(tmp_path))
    assert found.keys() == {"city", "age", "income"}  # nothing is known of a log1p number, nor of items
    city = found["city"]
    assert city.shares.sum() == pytest.approx(1)
    assert city.shares[0] == pytest.approx(10 / COUNTS.sum())
    assert city.shares[1] == pytest.approx(5 / COUNTS.sum())
    assert city.shares[2] == pytest.approx(300 / COUNTS.sum())
    assert city.frequent == FREQUENT
    assert city.shares[-1] == pytest.approx(COUNTS[2 + FREQUENT :].sum() / COUNTS.sum())
    assert (found["age"].mean, found["age"].deviation) == (40.0, 10.0)


def test_rare_values_share_a_bin_and_the_key_of_the_user_is_not_watched(tmp_path):
    films = model(tmp_path)
    few = np.array([0, 0, 900, *([1] * 29)])
    save(
        tmp_path / "features",
        FittedState({}, {}, {"city": (pa.array(CITIES, pa.large_string()), None)}, {"city": few}),
    )
    city = references(films)["city"]
    assert city.frequent == 1
    assert len(city.shares) == 4
    assert city.drift(["c0"] * 97 + ["c5", "c6", "c7"])[1] < 0.05
    films.manifest.keys["user"] = "city"
    assert references(films) == {}


def test_uneven_buckets_and_constant_numbers_have_no_reference(tmp_path):
    changed = model(
        tmp_path,
        income={"state": {"boundaries": [10.0, 20.0]}},
        age={"state": {"offset": 40.0, "scale": 0.0}},
    )
    assert references(changed).keys() == {"city"}


def drawn(random, shares, size=2000):
    values = [None, "never seen", *CITIES]
    return [values[n] for n in random.choice(len(values), size, p=shares)]


def test_a_category_that_has_not_changed_is_near_0_and_one_that_has_is_not(tmp_path):
    random = np.random.default_rng(0)
    city = references(model(tmp_path))["city"]
    kind, same = city.drift(drawn(random, COUNTS / COUNTS.sum()))
    assert kind == "index"
    assert same < 0.05
    _, other = city.drift(drawn(random, COUNTS[::-1] / COUNTS.sum()))
    assert other > 0.25
    assert city.drift([None] * 500)[1] > 1
    assert city.drift(["never seen"] * 500)[1] > 1


def test_keys_that_are_numbers_are_known_by_their_text():
    values = pa.array(["1", "2"], pa.large_string())
    shares = np.array([0, 0, 0.5, 0.5, 0])
    assert CategoryReference("n", values, 2, shares).drift([1, 2] * 100)[1] == pytest.approx(0, abs=0.01)


def test_numbers():
    buckets = BucketReference("income", np.array([10.0, 20.0, 30.0]))
    assert buckets.drift([5, 10, 25, 99.5])[1] == pytest.approx(0)
    assert buckets.drift([5, 5, 5, None])[1] > 0.25
    assert np.isnan(buckets.drift([None, "x"])[1])
    mean = MeanReference("age", 40.0, 10.0)
    assert mean.drift([50, 70, None, float("nan"), "x"]) == ("shift", pytest.approx(2.0))


def answer(model, **columns):
    query = SimpleNamespace(model=model, columns=lambda: SimpleNamespace(values=columns))
    return SimpleNamespace(query=query)


def test_sampled_requests_become_figures_of_the_model_that_serves(tmp_path):
    films = model(tmp_path)
    monitor = DriftMonitor(every=2)
    for _ in range(2 * ENOUGH - 2):
        monitor.observe(answer(films, city="c0", age=60.0))
    assert list(monitor.figures()) == []
    for _ in range(2):
        monitor.observe(answer(films, city="c0", age=60.0))
    figures = {feature: rest for _, _, feature, *rest in monitor.figures()}
    assert figures["age"] == ["shift", pytest.approx(2.0), 0.0]
    assert figures["city"][1] > 0.25
    assert figures["income"][2] == 1.0
    registry = CollectorRegistry()
    registry.register(monitor)
    text = generate_latest(registry).decode()
    assert 'easyrec_feature_shift{feature="age",model="films",version="1"} 2.0' in text
    assert 'easyrec_feature_missing_share{feature="income",model="films",version="1"} 1.0' in text
    newer = SimpleNamespace(**{**vars(films), "version": "2"})
    for _ in range(2):
        monitor.observe(answer(newer, city="c0"))
    assert list(monitor.figures()) == []  # it begins anew


def test_a_bundle_without_statistics_is_not_watched(tmp_path, caplog):
    broken = SimpleNamespace(**{**vars(model(tmp_path)), "folder": tmp_path / "nowhere"})
    monitor = DriftMonitor(every=1)
    for _ in range(ENOUGH):
        monitor.observe(answer(broken))
    assert list(monitor.figures()) == []
    assert "the drift of films is not watched" in caplog.text


def test_none_is_sampled_if_none_is_wanted(tmp_path):
    monitor = DriftMonitor(every=0)
    monitor.observe(SimpleNamespace())
    assert list(monitor.figures()) == []
