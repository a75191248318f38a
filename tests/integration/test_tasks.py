"""Kinds of tasks, splits, weights and tables, each from data to a bundle that predicts what training predicts."""

import numpy as np
import pandas as pd
import pytest

import easyrec
from easyrec.offline import NetworkPredictor
from easyrec.preparation import open_prepared
from easyrec.workflow import restore_best
from tests.integration.tiny import pipeline

pytestmark = pytest.mark.integration


def train(data, output, splits=None, **parts):
    """A run, and what its network and its bundle predict for the evaluation rows."""
    config = pipeline(data, output, **parts)
    config["training"] |= {"epochs": 1}
    if splits is not None:
        config["data"] |= {"eval": None, **splits}
    run = easyrec.train(config)
    prepared = open_prepared(run.folder)
    restore_best(prepared)
    rows = next(iter(prepared.data.eval.chunks()))
    network = NetworkPredictor(prepared.encoder, prepared.network, 100)(rows)
    for task, values in network.items():
        predicted = run.predict(rows.drop_columns([name for name in rows.column_names if "label/" in name]))
        columns = [name for name in predicted if name == task or name.startswith(f"{task}_")]
        of_bundle = predicted[columns].to_numpy().reshape(values.shape)
        np.testing.assert_allclose(of_bundle, values, rtol=1e-4, atol=1e-5)
    return run, prepared.data, rows


def test_mmoe_with_a_binary_and_a_regression_task_on_rows_split_by_time(data, tmp_path):
    run, bound, rows = train(
        data,
        tmp_path,
        {"split": {"type": "time", "fraction": 0.25}},
        model={"type": "mmoe", "experts": 2, "hidden_units": [8], "tower_units": [4]},
        tasks={
            "liked": {"type": "binary", "label": "rating >= 4", "metrics": ["auc", "log_loss", "gauc"]},
            "stars": {"type": "regression", "label": "rating", "weight": 0.5, "loss": "huber"},
        },
    )
    assert {"liked/auc", "liked/gauc", "stars/rmse", "stars/mae", "ranking/ndcg@10"} <= run.metrics.keys()
    latest = max(chunk["timestamp"].to_pandas().max() for chunk in bound.train.chunks())
    assert rows["timestamp"].to_pandas().min() > latest
    assert len(rows) == pytest.approx(300, abs=2)
    labels = rows["label/stars"].to_pandas()
    assert (labels.ge(4).astype(float) == rows["label/liked"].to_pandas()).all()


def test_multiclass_with_sample_weights_on_users_of_their_own(data, tmp_path):
    from sklearn.metrics import accuracy_score

    run, bound, rows = train(
        data,
        tmp_path,
        {"split": {"type": "user", "fraction": 0.3}, "weight": "watched + 0.1"},
        model={"type": "dcn_v2", "hidden_units": [8]},
        tasks={
            "stars": {
                "type": "multiclass",
                "label": "rating - 1",
                "classes": 5,
                "metrics": ["accuracy", "log_loss"],
            }
        },
    )
    of_training = {user for chunk in bound.train.chunks() for user in chunk["user_id"].to_pylist()}
    assert not of_training & set(rows["user_id"].to_pylist())
    predicted = run.predict(rows)
    assert list(predicted) == [f"stars_{index}" for index in range(5)]
    np.testing.assert_allclose(predicted.sum(axis=1), 1, rtol=1e-5)
    weight = rows["weight"].to_numpy()
    accuracy = accuracy_score(rows["label/stars"], predicted.to_numpy().argmax(1), sample_weight=weight)
    assert run.metrics["stars/accuracy"] == pytest.approx(accuracy, abs=1e-6)
    assert len(run.recommend(int(rows["user_id"][0].as_py()), n=3)) == 3


def test_classes_that_are_words_are_found_and_named_by_predictions(tmp_path):
    random = np.random.default_rng(0)
    sizes = random.normal(size=240)
    rows = pd.DataFrame(
        {"size": sizes, "kind": np.select([sizes < -0.4, sizes > 0.4], ["small one", "big"], "so-so")}
    )
    rows.loc[[3, 5], "kind"] = [None, " "]
    rows.to_parquet(tmp_path / "rows.parquet")
    config = {
        "name": "kinds",
        "data": {"train": str(tmp_path / "rows.parquet"), "split": {"type": "random", "fraction": 0.2}},
        "features": {"size": {"type": "number"}},
        "model": {"type": "wide_and_deep", "hidden_units": [8]},
        "tasks": {"kind": {"type": "multiclass"}},
        "training": {"batch_size": 16, "epochs": 8},
        "output": str(tmp_path),
    }
    run = easyrec.train(config)
    assert run.metrics["kind/accuracy"] > 0.7
    assert run.folder.config().tasks["kind"].classes == ["big", "small one", "so-so"]
    assert run.bundle.manifest.tasks[0].class_names == ["big", "small one", "so-so"]
    predicted = easyrec.load(run.folder.directory).predict(
        pd.DataFrame({"size": [-2.0, 2.0]}), keep={"size": "x"}
    )
    assert list(predicted) == ["x", "kind", "kind_big", "kind_small one", "kind_so-so"]
    assert list(predicted["kind"]) == ["small one", "big"]
    assert easyrec.train(config, resume=True).result.reason == "completed"
    again = easyrec.train(run.folder.directory / "config.yaml", run=tmp_path / "again")
    assert again.metrics == run.metrics


def test_regression_on_random_rows_without_keys(data, tmp_path):
    from sklearn.metrics import root_mean_squared_error

    run, _, rows = train(
        data,
        tmp_path,
        {"split": {"type": "random", "fraction": 0.2}, "keys": {}, "tables": {}},
        features={"movie_id": "id", "watched": {"type": "number", "embedding": True}, "device": "id"},
        model={"type": "fm"},
        tasks={"rating": {"type": "regression"}},
    )
    predicted = run.predict(rows)["rating"]
    assert run.metrics["rating/rmse"] == pytest.approx(
        root_mean_squared_error(rows["label/rating"], predicted), rel=1e-5
    )
    assert not {name for name in run.metrics if name.startswith("ranking/")}
    with pytest.raises(easyrec.EasyRecError, match="knows no items"):
        run.recommend(1)


def test_retrieval_without_a_label_on_the_latest_rows_of_each_user(data, tmp_path):
    run, bound, rows = train(
        data,
        tmp_path,
        {"split": {"type": "user_latest", "fraction": 0.2}},
        features={
            "user_id": "id",
            "age": {"type": "number", "buckets": 3},
            "city": "id",
            "movie_id": "id",
            "genres": {"type": "tags", "separator": "|"},
            "recent": {"type": "sequence", "of": "movie_id", "history": {"last": 5}},
        },
        model={"type": "two_tower", "hidden_units": [8], "output_dim": 4},
        tasks={"taken": {"type": "retrieval"}},
    )
    assert run.metrics["ranking/recall@10"] > 0
    assert run.result.monitor.startswith("ranking/")
    newest = pd.concat([chunk.select(["user_id", "timestamp"]).to_pandas() for chunk in bound.train.chunks()])
    joined = (
        rows.select(["user_id", "timestamp"]).to_pandas().merge(newest.groupby("user_id").max(), on="user_id")
    )
    assert (joined["timestamp_x"] > joined["timestamp_y"]).all()
    assert run.result.monitor == "ranking/ndcg@10"  # its first metric
    assert run.recommend(101, n=4).attrs["source"] == "retrieval"
    assert run.recommend(history=[1, 2, 3], n=4).attrs["source"] == "retrieval"


def test_a_run_without_evaluation_rows_is_exported_all_the_same(data, tmp_path):
    config = pipeline(data, tmp_path, features={"movie_id": "id", "device": "id"}, model={"type": "fm"})
    config["data"] |= {"eval": None, "tables": {}}
    config["training"] |= {"epochs": 1}
    run = easyrec.train(config)
    assert run.metrics == {}
    assert (run.folder.report / "report.html").is_file()
    assert set(run.predict({"movie_id": [1, 2], "device": ["tv", None]})["liked"]) != {0.0}
    assert len(run.recommend(101, n=2)) == 2


def test_text_keys_and_items_seen_only_in_the_interactions(tmp_path):
    rows = pd.DataFrame(
        {"who": list("abcdefgh") * 20, "what": [f"item {index % 13}" for index in range(160)]}
    )
    rows["clicked"] = (rows.index % 3 == 0).astype(int)
    rows["price"] = rows.index % 7
    rows.to_csv(tmp_path / "clicks.csv", index=False)
    run = easyrec.train(
        {
            "name": "clicks",
            "data": {
                "train": str(tmp_path / "clicks.csv"),
                "keys": {"user": "who", "item": "what"},
                "split": {},
            },
            "features": {"who": "id", "what": "id", "price": {"type": "number", "side": "item"}},
            "model": {"type": "wide_and_deep", "hidden_units": [4]},
            "tasks": {"clicked": "binary"},
            "training": {"batch_size": 32, "jit_compile": False},
            "evaluation": {"resamples": 40},
            "output": str(tmp_path),
        }
    )
    found = run.recommend("a", n=13)
    assert set(found["what"]) <= set(rows["what"])
    assert not set(found["what"]) & set(rows[rows["who"] == "a"]["what"]) or len(found) < 13
    assert 0 <= run.metrics["clicked/auc"] <= 1
