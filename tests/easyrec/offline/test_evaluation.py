import math

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import ndcg_score, roc_auc_score

from easyrec.config.loader import parse_config
from easyrec.config.resolve import resolve
from easyrec.data.dataset import open_dataset
from easyrec.errors import DataError
from easyrec.features.encoder import Encoder
from easyrec.offline import OfflineEvaluation, flat_metrics

USERS, ITEMS = 8, 15


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Interactions of users with items, those of the last user in the evaluation rows alone."""
    random = np.random.default_rng(3)
    folder = tmp_path_factory.mktemp("tables")
    rows = 160
    table = pd.DataFrame(
        {
            "user": [f"u{code}" for code in random.integers(0, USERS, rows)],
            "item": random.integers(0, ITEMS, rows),
            "liked": random.integers(0, 2, rows),
            "weight": random.random(rows),
            "score": random.random(rows),
        }
    )
    train, evaluation = table[:80], table[80:]
    train[train["user"] != f"u{USERS - 1}"].to_parquet(folder / "train.parquet")
    evaluation.to_parquet(folder / "eval.parquet")
    items = pd.DataFrame({"item": np.arange(ITEMS), "kind": np.arange(ITEMS) % 4})
    items.to_parquet(folder / "items.parquet")
    return folder


FEATURES = {"user": "id", "item": "id", "kind": "id", "score": {"type": "number", "normalize": "none"}}


def offline(tables, tasks=None, features=FEATURES, **changes):
    """The evaluation of a pipeline; `changes` are by dotted path."""
    config = {
        "data": {
            "train": str(tables / "train.parquet"),
            "eval": str(tables / "eval.parquet"),
            "keys": {"user": "user", "item": "item"},
            "tables": {"item": str(tables / "items.parquet")},
        },
        "features": features,
        "model": {"type": "fm"},
        "tasks": tasks or {"liked": {"type": "binary"}},
        "evaluation": {"resamples": 0, "k": [3, 5]},
    }
    overrides = [f"{path.replace('__', '.')}={value}" for path, value in changes.items()]
    loaded = parse_config(config, overrides)
    dataset = open_dataset(loaded)
    resolved = resolve(loaded, dataset.columns)
    data = dataset.bind(resolved)
    encoder = Encoder(resolved, data.feature_columns)
    encoder.fit(data.train.chunks(columns=encoder.fit_columns()))
    return OfflineEvaluation(resolved, data, encoder)


def echo(table):
    """A model whose prediction is the column `score`."""
    return {"liked": table["score"].to_numpy().astype(np.float32)}


@pytest.fixture(scope="module")
def scores():
    return np.random.default_rng(5).random((USERS, ITEMS)).astype(np.float32)


def test_rows_are_judged_as_scikit_learn_does(tables):
    rows = pd.read_parquet(tables / "eval.parquet")
    result = offline(tables).rows(echo, intervals=False)
    assert flat_metrics(result, None)["liked/auc"] == pytest.approx(
        roc_auc_score(rows["liked"], rows["score"].astype("float32"))
    )
    weighted = offline(tables, data__weight="weight").rows(echo, intervals=False)
    expected = roc_auc_score(rows["liked"], rows["score"].astype("float32"), sample_weight=rows["weight"])
    assert flat_metrics(weighted, None)["liked/auc"] == pytest.approx(expected, abs=1e-6)


def test_the_final_measurement_shows_all_metrics_unless_some_are_chosen(tables):
    few = flat_metrics(offline(tables).rows(echo, intervals=False), None)
    every = flat_metrics(offline(tables).rows(echo, intervals=True), None)
    assert list(few) == ["liked/auc", "liked/log_loss"]
    assert {"liked/gauc", "liked/brier"} <= every.keys()
    chosen = offline(tables, {"liked": {"type": "binary", "metrics": ["brier"]}})
    assert list(flat_metrics(chosen.rows(echo, intervals=True), None)) == ["liked/brier"]


def test_lists_are_ranked_from_the_whole_catalogue_without_what_was_seen(tables, scores):
    evaluation = offline(tables)
    catalogue = evaluation.catalogue
    train = pd.read_parquet(tables / "train.parquet")
    held_out = pd.read_parquet(tables / "eval.parquet")
    by_key = dict(zip(catalogue.users["user"].to_pylist(), range(len(catalogue.users)), strict=True))
    result = evaluation.ranking({"model": lambda codes: scores[codes]}, intervals=False)

    found = []
    for user, code in by_key.items():
        seen = set(train[train["user"] == user]["item"])
        wanted = set(held_out[(held_out["user"] == user) & (held_out["liked"] == 1)]["item"]) - seen
        if not wanted:
            continue
        candidates = [item for item in range(ITEMS) if item not in seen]
        gains = [[float(item in wanted) for item in candidates]]
        found.append(ndcg_score(gains, [scores[code][candidates].tolist()], k=5))
    metrics = flat_metrics(None, result)
    assert metrics["ranking/ndcg@5"] == pytest.approx(np.mean(found))
    assert f"u{USERS - 1}" in by_key, "a user without training rows is judged too"
    assert set(result.models) == {"model", "popularity", "content_based", "co_occurrence", "random"}
    assert {"ranking/recall@3", "ranking/mrr@5"} <= metrics.keys()


def test_relevant_rows_may_be_said_by_a_condition(tables, scores):
    strict = offline(tables, evaluation__relevant="weight > 0.9 and liked == 1")
    rows = pd.read_parquet(tables / "eval.parquet")
    hits = rows[(rows["weight"] > 0.9) & (rows["liked"] == 1)]
    assert strict.catalogue.relevant.nnz == len(hits[["user", "item"]].drop_duplicates())
    assert strict.ranking({"model": lambda codes: scores[codes]}, intervals=False).models["model"]


def test_users_are_drawn_by_the_seed(tables, scores):
    few = offline(tables, evaluation__max_users=3)
    limited = few.catalogue
    again = offline(tables, evaluation__max_users=3).catalogue
    assert len(limited.users) == 3
    assert limited.users.equals(again.users)
    assert few.ranking({"model": lambda codes: scores[codes]}, intervals=False).n_users <= 3
    result = offline(tables).ranking({"model": lambda codes: scores[codes]}, intervals=False, max_users=2)
    assert result.n_users <= 2


def test_baselines_that_cannot_be_made_are_left_out(tables, scores):
    features = {name: feature for name, feature in FEATURES.items() if name != "kind"}
    plain = offline(tables, features=features, evaluation__baselines="[content_based, random]")
    result = plain.ranking({"model": lambda codes: scores[codes]}, intervals=False)
    assert set(result.models) == {"model", "random"}


def test_evaluation_rows_of_one_class_give_numbers_that_are_undefined_not_errors(tables, tmp_path, scores):
    rows = pd.read_parquet(tables / "eval.parquet")
    for value in (0, 1):
        rows.assign(liked=value).to_parquet(tmp_path / "eval.parquet")
        evaluation = offline(tables, data__eval=tmp_path / "eval.parquet")
        metrics = flat_metrics(evaluation.rows(echo, intervals=True), None)
        assert math.isnan(metrics["liked/auc"])
        assert math.isfinite(metrics["liked/log_loss"])
        # Without a single hit there is nobody to judge ranked lists on.
        assert evaluation.ranks == bool(value)
        assert [note[:28] for note in evaluation.notes] == ["no ranked lists were judged:"] * (1 - value)
        if value:
            ranked = evaluation.ranking({"model": lambda codes: scores[codes]}, intervals=True)
            assert math.isfinite(flat_metrics(None, ranked)["ranking/ndcg@5"])


def test_ranking_is_done_when_keys_allow_and_nobody_objects(tables):
    assert offline(tables).ranks
    assert not offline(tables, evaluation__ranking="false").ranks
    assert not offline(tables, data__keys__user="null").ranks
    with pytest.raises(DataError, match=r"needs `data\.keys\.user`"):
        _ = offline(tables, data__keys__user="null").catalogue


def test_classes_that_are_words_rank_nothing(tables):
    task = {"who": {"type": "multiclass", "label": "user", "classes": [f"u{user}" for user in range(USERS)]}}
    features = {"item": "id", "score": "number"}
    evaluation = offline(tables, task, features)
    assert not evaluation.ranks
    assert "the classes of 'who' ('u0', 'u1', 'u2', ...) are words" in evaluation.notes[0]
    with pytest.raises(DataError, match="none is better than another; rank by another task"):
        _ = offline(tables, task, features, evaluation__ranking="true").ranks


def test_classes_are_columns_of_their_own(tables):
    evaluation = offline(tables, {"third": {"type": "multiclass", "label": "liked", "classes": 3}})
    assert evaluation.tasks["third"].score_columns == ["third_0", "third_1", "third_2"]
    result = evaluation.rows(
        lambda table: {"third": np.full((len(table), 3), 1 / 3, np.float32)}, intervals=False
    )
    assert flat_metrics(result, None)["third/log_loss"] == pytest.approx(math.log(3), abs=1e-5)
