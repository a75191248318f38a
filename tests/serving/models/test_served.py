"""A served model gives the scores of its bundle, follows changes of its items, and refuses a damaged bundle."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easyrec.config.features import History, SequenceFeature
from easyrec.errors import BundleError, DataError, SchemaError
from easyrec.export.litert.engine import available
from easyrec.export.manifest import read_manifest, write_manifest
from serving.models.histories import Histories
from serving.models.served import ServedModel, load_served_model


def test_scores_are_those_of_the_bundle(films: Any, served: ServedModel) -> None:
    users = films.bundle.users
    for position in range(len(users)):
        known = served.known_user(users.keys[position].as_py())
        assert known is not None
        found = served.score(served.user(known), np.arange(len(served.catalogue)))["liked"]
        expected = films.bundle.scores([known["user_id"]])[0]
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_items_by_key_and_row(served: ServedModel) -> None:
    catalogue = served.catalogue
    assert catalogue.rows(["m3", "nothing", None, "m0"]).tolist() == [3, -1, -1, 0]
    assert catalogue.ids[3] == "m3"
    assert catalogue.ids[-1] == "m8"
    assert list(catalogue.ids)[:2] == ["m0", "m1"]
    assert catalogue.properties(np.array([4, 0]), ["title", "year"]) == [
        {"title": "Movie 4", "year": 1993},
        {"title": "Movie 0", "year": None},
    ]
    assert catalogue.popularity[0].tolist() == [5, 4, 3, 2, 1, 0, 0, 0, 0]
    assert len(catalogue.neighbors(0, 3)[0]) == 3
    with pytest.raises(SchemaError, match=r"no column 'titel'.*title"):
        catalogue.column("titel")


def test_an_item_that_is_put_scores_as_if_it_had_been_exported(served: ServedModel) -> None:
    user = served.user({"user_id": 103, "recent": ["m1", "m2"]})
    before = served.score(user, np.arange(9))["liked"]
    fourth = served.catalogue.properties(np.array([4]))[0]
    del fourth["movie_id"]
    old = served.catalogue
    served.put_items({"new": fourth, "m2": {**fourth, "title": "Changed"}})
    catalogue = served.catalogue
    assert len(old) == 9
    assert catalogue.rows(["new", "m2"]).tolist() == [9, 2]
    assert catalogue.properties(np.array([9, 2, 4]), ["movie_id", "title"]) == [
        {"movie_id": "new", "title": "Movie 4"},
        {"movie_id": "m2", "title": "Changed"},
        {"movie_id": "m4", "title": "Movie 4"},
    ]
    after = served.score(user, np.array([*range(10), 9]))["liked"]
    same = [0, 1, 3, 4, 5, 6, 7, 8]
    np.testing.assert_array_equal(after[same], before[same])
    assert after[9] == after[10]
    assert after[2] != before[2]
    served.put_items({"m2": old.properties(np.array([2]))[0] | {"movie_id": "m2"}, "newer": {}})
    again = served.score(user, np.array([2, 9, 10]))["liked"]
    np.testing.assert_allclose(again[:2], [before[2], after[9]], atol=1e-6)
    served.remove_items(["m2", "unheard of"])
    assert np.flatnonzero(~served.catalogue.available).tolist() == [2]
    served.put_items({"m2": {}})
    assert served.catalogue.available.all()
    assert served.catalogue.popularity[0][2] == 3


def test_items_that_cannot_be_used_are_refused_as_a_whole(served: ServedModel) -> None:
    before = served.catalogue
    with pytest.raises(SchemaError, match=r"item 'b': the item table has no column 'yaer'.*year"):
        served.put_items({"a": {"year": 1}, "b": {"yaer": 1}})
    with pytest.raises(DataError, match="item 'b': 'year' takes int64, got 'soon'"):
        served.put_items({"a": {"year": 1}, "b": {"year": "soon"}})
    assert served.catalogue is before


def test_rows_outside_the_catalogue_are_refused(served: ServedModel) -> None:
    with pytest.raises(SchemaError, match="between 0 and"):
        served.score(served.user({}), np.array([-1]))


def test_histories_become_the_columns_of_sequences(served: ServedModel) -> None:
    assert served.history_columns(["m1", "m2", "gone"]) == {"recent": ["m1", "m2", "gone"]}
    assert served.known_user(100) is not None
    assert served.known_user(999) is None


def test_vectors_find_items(towers_served: ServedModel) -> None:
    vector = towers_served.user_vector({"user_id": 103, "recent": ["m1"]})
    rows, scores = towers_served.search(vector, 3)
    vectors = towers_served.catalogue.vectors
    assert vectors is not None
    expected = np.argsort(-(vectors @ vector), kind="stable")[:3]
    assert rows.tolist() == expected.tolist()
    towers_served.put_items({"new": {"genres": "g1"}, "m4": {}})
    towers_served.remove_items(["m5"])
    rows, scores = towers_served.search(vector, 99)
    assert sorted(rows.tolist()) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    newest = towers_served.catalogue.vectors
    assert newest is not None
    np.testing.assert_allclose(scores, newest[rows] @ vector, rtol=1e-5)
    mask = np.zeros(10, bool)
    mask[[5, 9]] = True
    assert towers_served.search(vector, 2, mask)[0].tolist() == [9]


def test_the_runtime_is_chosen(films: Any, runtime: Any, served: ServedModel) -> None:
    assert served.runtime == runtime
    assert repr(served) == f"ServedModel('films', version='7', runtime='{runtime}')"
    assert load_served_model(films.folder).runtime == ("litert" if available() else "tensorflow")
    with pytest.raises(BundleError, match=r"runtime must be one of auto, tensorflow, litert, got 'onnx'"):
        load_served_model(films.folder, "onnx")  # type: ignore[arg-type]


def test_a_runtime_whose_scores_differ_is_refused(films: Any, runtime: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(films.folder / "bundle", tmp_path / "bundle")
    path = folder / "examples" / "scores.parquet"
    scores = pq.read_table(path)["liked"].to_numpy().copy()
    scores[3] += 2e-4
    pq.write_table(pa.table({"liked": scores}), path)
    write_manifest(folder, read_manifest(folder))
    with pytest.raises(BundleError, match="stored examples: 'liked' of row 3"):
        load_served_model(folder, runtime)


@pytest.mark.parametrize("every", ["litert", "modules", "python", "tensorflow"])
def test_python_of_tensorflow_is_never_imported(films: Any, every: str) -> None:
    if every == "litert" and not available():
        pytest.skip("it comes with the extra `litert`")
    serve = f"""
from serving.models.served import load_served_model
model = load_served_model({str(films.folder)!r}, "{every}")
model.put_items({{"new": {{"genres": "g1|g2"}}}})
print(model.score(model.user({{"user_id": 103}}), model.catalogue.rows(["m1", "new"])))
"""
    code = {
        "modules": "import serving.models.hub, serving.models.watch, serving.models.litert_runtime",
        "python": f"from easyrec.export.bundle import load; print(load({str(films.folder)!r}).recommend(103, 3))",
    }.get(every, serve)
    probe = f"{code}\nimport sys\nassert not {{'tensorflow', 'keras'}} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_served_does_not_change_with_its_folder(films: Any, runtime: Any, tmp_path: Path) -> None:
    """As when a run is exported again into the same folder, or an old version is deleted."""
    folder = shutil.copytree(films.folder / "bundle", tmp_path / "bundle")
    model = load_served_model(folder, runtime)
    user = {"user_id": 103, "recent": ["m1"]}
    before = model.score(model.user(user), np.arange(9))["liked"]
    shutil.rmtree(folder)
    np.testing.assert_array_equal(model.score(model.user(user), np.arange(9))["liked"], before)
    assert model.known_user(103) is not None
    assert model.config.name == "films"
    assert model.catalogue.properties(np.array([4]), ["title"]) == [{"title": "Movie 4"}]
    assert model.history_columns(["m1"]) == {"recent": ["m1"]}


def test_a_model_that_is_let_go_is_freed_at_once(films: Any, runtime: Any) -> None:
    """Not by the garbage collector, which would free all of its memory while every request waits."""
    gc.collect()
    gc.disable()
    try:
        model = load_served_model(films.folder, runtime)
        model.score(model.user({"user_id": 103}), np.arange(9))
        parts = [weakref.ref(part) for part in (model, model._runtime, model.catalogue, model._users)]
        functions = list(model._runtime._functions.values())
        if runtime == "litert":  # methods: what they belong to
            functions = [getattr(one, "func", one).__self__ for one in functions]
        parts += map(weakref.ref, functions)
        del model, functions
        assert [part for part in parts if part() is not None] == []
    finally:
        gc.enable()


def test_histories_follow_the_conditions_of_training(served: ServedModel) -> None:
    feature = served.config.features["recent"]
    assert isinstance(feature, SequenceFeature)
    history = feature.model_copy(update={"history": History(of="movie_id", where="rating >= 4", last=2)})
    config = served.config.model_copy(update={"features": {**served.config.features, "recent": history}})
    histories = Histories(served.manifest, config)
    items, ratings = ["m1", "m2", "m3", "m4"], [5, 3, None, 4]
    assert histories.event_columns == {"rating"}
    assert histories(served.catalogue, items, {"rating": ratings}) == {"recent": ["m1", "m4"]}
    assert histories(served.catalogue, items) == {"recent": ["m3", "m4"]}
    with pytest.raises(SchemaError, match="'rating' has 1 values for 4 items"):
        histories(served.catalogue, items, {"rating": [1]})


def test_a_bundle_without_items_predicts_rows(films: Any, runtime: Any, tables: Any, no_items: Path) -> None:
    model = load_served_model(no_items, runtime)
    with pytest.raises(
        BundleError, match=r"films cannot recommend: it was trained without `data\.keys\.item`"
    ):
        _ = model.catalogue
    with pytest.raises(BundleError, match="films cannot recommend"):
        model.put_items({"m1": {}})
    assert model.user_columns
    found = model.predict(tables.rows)["liked"]
    np.testing.assert_allclose(found, films.trained.scores(tables.rows)["liked"], atol=1e-4)
