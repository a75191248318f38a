"""Recommendations are the best-scored items that are allowed, and never an error for a user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from easyrec.errors import BundleError, SchemaError
from easyrec.export.bundle import load
from easyrec.export.recommend import Recommender


def score_matrix(exported: Any, tables: Any) -> npt.NDArray[np.float32]:
    """[U, N] scores on the path that training takes."""
    users, items = len(tables.users), len(tables.items)
    scores: npt.NDArray[np.float32] = exported.trained.scores(tables.rows)["liked"][: users * items]
    return scores.reshape(users, items)


@pytest.mark.parametrize("name", ["films", "towers"])
def test_known_users_get_their_best_unseen_items(
    request: pytest.FixtureRequest, tables: Any, name: str
) -> None:
    exported = request.getfixturevalue(name)
    scores = score_matrix(exported, tables)
    for user in range(len(tables.users)):
        for exclude_seen in (True, False):
            frame = exported.bundle.recommend(100 + user, 4, exclude_seen=exclude_seen)
            allowed = [item for item in range(9) if item >= user or not exclude_seen]
            expected = sorted(allowed, key=lambda item: -scores[user, item])[:4]
            assert frame["movie_id"].tolist() == [f"m{item}" for item in expected]
            np.testing.assert_allclose(frame["score"], scores[user, expected], atol=1e-5)
            assert frame["position"].tolist() == list(range(1, len(expected) + 1))
            assert frame.attrs["source"] == ("model" if name == "films" else "retrieval")


def test_columns_describe_the_items(films: Any) -> None:
    frame = films.bundle.recommend(100, 9)
    assert list(frame.columns) == ["movie_id", "score", "position", "genres", "year", "title"]
    assert frame.set_index("movie_id")["title"]["m4"] == "Movie 4"
    assert frame["year"].dtype == "Int64"
    assert list(films.bundle.recommend(100, 2, columns=["title"]).columns)[3:] == ["title"]
    with pytest.raises(SchemaError, match=r"no column 'titel'\. Did you mean 'title'\?"):
        films.bundle.recommend(100, 2, columns=["titel"])


@pytest.mark.parametrize("user", ["103", 103.0, np.int64(103)])
def test_a_key_of_another_type_is_the_same_user(films: Any, user: Any) -> None:
    assert films.bundle.recommend(user, 5).equals(films.bundle.recommend(103, 5))


@pytest.mark.parametrize("user", [999, "nobody", "", None, float("nan"), 2**70, b"x"])
def test_unknown_users_get_what_is_popular(films: Any, user: Any) -> None:
    frame = films.bundle.recommend(user, 3)
    assert frame["movie_id"].tolist() == ["m4", "m3", "m2"]  # the latest: interests change quickly here
    assert frame.attrs["source"] == "popularity"
    reason = "neither a user nor" if user is None else "is not among the 6 users of the bundle"
    assert reason in frame.attrs["reason"]


def test_only_some_items_may_be_asked_for(films: Any, tables: Any) -> None:
    scores = score_matrix(films, tables)
    frame = films.bundle.recommend(
        101, 9, item_ids=["m7", "m0", "m3", "unknown", "m5"], exclude_ids=["m5", "x"]
    )
    expected = sorted([7, 3], key=lambda item: -scores[1, item])  # m0 has been seen
    assert frame["movie_id"].tolist() == [f"m{item}" for item in expected]
    assert films.bundle.recommend(101, 9, item_ids=[]).empty
    assert films.bundle.recommend(999, 9, item_ids=["m3", "m4"])["movie_id"].tolist() == ["m4", "m3"]


def test_history_and_profile_stand_in_for_what_the_bundle_knows(films: Any, tables: Any) -> None:
    """A stranger who is described like a user of the bundle gets that user's recommendations."""
    row = tables.users.slice(3, 1).to_pylist()[0]
    profile = {name: row[name] for name in ("user_id", "age", "device kind")}
    frame = films.bundle.recommend(profile=profile, history=["m0", "m1", "m2"], n=9)
    assert frame.equals(films.bundle.recommend(103, 9))
    assert frame.attrs["source"] == "model"
    changed = films.bundle.recommend(103, 9, history=["m8", "new"])
    assert "m8" not in changed["movie_id"].tolist()
    assert changed["score"].tolist() != frame["score"].tolist()
    with pytest.raises(SchemaError, match=r"reads no column 'agee' of users\. Did you mean 'age'\?"):
        films.bundle.recommend(profile={"agee": 3})
    with pytest.raises(SchemaError, match=r"'user_id' has 'old' in row 0.*trained on whole numbers"):
        films.bundle.recommend(profile={"user_id": "old"})
    with pytest.raises(SchemaError, match=r"one key is expected, a text or a number; got \[101\]"):
        films.bundle.recommend([101])
    with pytest.raises(SchemaError, match="'user_id' cannot be used"):
        films.bundle.recommend(2**70, history=["m1"])


def test_a_retriever_finds_what_the_ranker_ranks(films: Any, towers: Any, tables: Any) -> None:
    found, ranked = score_matrix(towers, tables), score_matrix(films, tables)
    for user in range(len(tables.users)):
        frame = films.bundle.recommend(100 + user, 3, retriever=towers.bundle, candidates=4)
        unseen = [item for item in range(9) if item >= user]
        candidates = sorted(unseen, key=lambda item: -found[user, item])[:4]
        expected = sorted(candidates, key=lambda item: -ranked[user, item])[:3]
        assert frame["movie_id"].tolist() == [f"m{item}" for item in expected]
        assert frame.attrs == {"source": "retrieval+model", "reason": f"ranked {len(candidates)} candidates"}
    assert films.bundle.recommend(999, 3, retriever=towers.bundle).attrs["source"] == "popularity"
    with pytest.raises(BundleError, match="films cannot find candidates: that needs a two_tower model"):
        Recommender(towers.bundle.catalogue, films.bundle.catalogue)


def test_many_users_are_ranked_at_once(films: Any, towers: Any, tables: Any) -> None:
    for exported in (films, towers):
        scores = score_matrix(exported, tables)
        np.testing.assert_allclose(exported.bundle.scores([104, 100]), scores[[4, 0]], atol=1e-5)
        positions, values = exported.bundle.rank_users([104, 100], 6)
        assert positions.shape == values.shape == (2, 6)
        assert positions[0].tolist() == [*sorted(range(4, 9), key=lambda item: -scores[4, item]), -1]
        assert values[0, 5] == -np.inf
        assert positions[1].tolist() == sorted(range(9), key=lambda item: -scores[0, item])[:6]
        everything, _ = exported.bundle.rank_users([104], 9, exclude_seen=False)
        assert sorted(everything[0]) == list(range(9))
        assert exported.bundle.rank_users([], 3)[0].shape == (0, 3)
        assert exported.bundle.scores([]).shape == (0, 9)
    with pytest.raises(SchemaError, match="the user 7 is not among the 6 users"):
        films.bundle.rank_users([100, 7], 3)


def test_arguments_that_make_no_sense_are_refused(films: Any) -> None:
    with pytest.raises(SchemaError, match="at least 1; got 0"):
        films.bundle.recommend(100, 0)
    with pytest.raises(BundleError, match=r"no task 'like'\. Did you mean 'liked'\?"):
        films.bundle.recommend(100, task="like")


def test_several_classes_rank_by_the_expected_one(
    tmp_path: Path, train: Callable[..., Any], export: Callable[..., Any], tables: Any
) -> None:
    trained = train("fm", {"shown": {"type": "regression"}, "stars": {"type": "multiclass", "classes": 3}})
    export(trained, tmp_path / "bundle", users=None)
    bundle = load(tmp_path / "bundle")
    probabilities = trained.scores(tables.rows)["stars"][:9]
    expected = np.argsort(-(probabilities @ np.arange(3)))
    frame = bundle.recommend(profile={"user_id": 100}, history=[], n=9, task="stars")
    # User 100 has no age; neither has the profile.
    assert frame["movie_id"].tolist() == [f"m{item}" for item in expected]
    assert bundle.recommend(100, 2).attrs["reason"] == "the bundle keeps no users (export.users: false)"
    with pytest.raises(SchemaError, match=r"keeps no users"):
        bundle.rank_users([100], 3)
    frame = bundle.predict({"user_id": [100], "age": [3.0], "recent": [["m1"]], "movie_id": ["m2"]})
    assert list(frame.columns) == ["shown", "stars_0", "stars_1", "stars_2"]
    assert frame[["stars_0", "stars_1", "stars_2"]].sum(axis=1)[0] == pytest.approx(1, abs=1e-5)


def test_without_an_item_key_there_is_nothing_to_recommend(
    tmp_path: Path, train: Callable[..., Any], export: Callable[..., Any]
) -> None:
    trained = train("fm")
    keys = trained.config.data.keys.model_copy(update={"item": None})
    config = trained.config.model_copy(update={"data": trained.config.data.model_copy(update={"keys": keys})})
    export(
        type(trained)(config, trained.encoder, trained.network),
        tmp_path / "bundle",
        items=None,
        interactions=(),
    )
    bundle = load(tmp_path)
    assert bundle.candidates is None
    assert bundle.manifest.signatures == ["serving_default"]
    with pytest.raises(
        BundleError, match=r"films cannot recommend: it was trained without `data\.keys\.item`"
    ):
        bundle.recommend(100)


def test_items_without_any_interaction_can_be_recommended(films: Any) -> None:
    assert set(films.bundle.recommend(999, 9)["movie_id"]) == {f"m{item}" for item in range(9)}
    assert pa.types.is_string(films.bundle.candidates.items.keys.type)
