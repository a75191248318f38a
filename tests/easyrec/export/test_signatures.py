"""Saved models predict what the trained ones predict, on one row at a time and in two stages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from easyrec.config.models import MODELS
from easyrec.export import runtime as runtime_module
from easyrec.export.inputs import to_tensors
from easyrec.export.ranking import Ranker
from easyrec.export.runtime import (
    ITEM_EMBEDDING,
    SCORE,
    SERVE,
    USER_EMBEDDING,
    Runtime,
)
from easyrec.export.savedmodel import load_functions
from easyrec.export.signatures import ModelFunctions
from easyrec.export.tables import KeyedTable

SMALL: dict[str, dict[str, Any]] = {
    "deepfm": {"hidden_units": [8], "batch_norm": True, "dropout": 0.5},
    "wide_and_deep": {"hidden_units": [8]},
    "dcn_v2": {"hidden_units": [8], "cross_layers": 1},
    "dlrm": {"hidden_units": [8], "bottom_units": [4]},
    "din": {"hidden_units": [8], "attention_units": [4]},
    "mmoe": {"hidden_units": [8], "tower_units": [4], "experts": 2},
    "two_tower": {"hidden_units": [8], "output_dim": 3},
}
SEVERAL = {
    "liked": {"type": "binary"},
    "minutes": {"type": "regression"},
    "stars": {"type": "multiclass", "classes": 3},
}


def small(name: str) -> dict[str, Any]:
    return {"type": name, **SMALL.get(name, {})}


def save(functions: ModelFunctions, folder: Path) -> Runtime:
    functions.save(folder)
    saved = load_functions(folder, list(functions.functions))
    return Runtime(saved, functions.inputs, functions.encoded, functions.tasks)


@pytest.mark.parametrize(
    ("name", "tasks", "every"),
    [
        *((name, None, False) for name in MODELS.names()),
        ("mmoe", SEVERAL, False),
        ("deepfm", SEVERAL, True),
        ("two_tower", {"liked": {"type": "binary"}}, False),
    ],
)
def test_a_saved_model_predicts_what_the_trained_one_predicts(
    tmp_path: Path, train: Callable[..., Any], tables: Any, name: str, tasks: Any, every: bool
) -> None:
    trained = train(small(name), tasks, every)
    rows, items, users = tables.rows, tables.items, tables.users
    expected = trained.scores(rows)
    runtime = save(ModelFunctions(trained.encoder, trained.network, items.column_names), tmp_path / "model")

    for batch_rows in (1, 7, 8192):
        found = runtime.predict(rows, batch_rows)
        for task, values in expected.items():
            assert found[task].dtype == np.float32
            np.testing.assert_allclose(found[task], values, atol=1e-5)
            assert len(np.unique(values.round(4), axis=0)) > 10

    encoded_items = runtime.encode_items(items)
    encoded_users = runtime.encode_user(users)
    for user in range(len(users)):
        found = runtime.score(encoded_users.slice(user, user + 1), encoded_items, batch_rows=4)
        for task, values in expected.items():
            own = values[user * len(items) : (user + 1) * len(items)]
            np.testing.assert_allclose(found[task], own, atol=1e-5)

    for task, values in expected.items():
        assert runtime.predict(rows.slice(0, 0))[task].shape == (0, *values.shape[1:])
        nothing = runtime.score(encoded_users.slice(0, 1), encoded_items.slice(0, 0))
        assert nothing[task].shape == (0, *values.shape[1:])
    assert len(runtime.encode_items(items.slice(0, 0))) == 0


def test_vectors_of_two_towers_give_the_scores(train: Callable[..., Any], tables: Any) -> None:
    trained = train(small("two_tower"))
    runtime = ModelFunctions(trained.encoder, trained.network, tables.items.column_names).runtime()
    users, items = runtime.embed(USER_EMBEDDING, tables.users), runtime.embed(ITEM_EMBEDDING, tables.items)
    assert users.shape == (len(tables.users), 3)
    pairs = len(tables.users) * len(tables.items)
    np.testing.assert_allclose(
        (users @ items.T).ravel(), trained.scores(tables.rows)["liked"][:pairs], atol=1e-5
    )
    assert runtime.embed(USER_EMBEDDING, tables.users.slice(0, 0)).shape == (0, 3)


def test_functions_follow_the_weights(train: Callable[..., Any], tables: Any) -> None:
    trained = train("fm")
    runtime = ModelFunctions(trained.encoder, trained.network, tables.items.column_names).runtime()
    ranker = Ranker(runtime, KeyedTable(tables.items, "movie_id"))
    before = list(ranker.scores(tables.users))
    for table in trained.network.embeddings.tables.values():
        table.write(0, table.read() * 2)
    after = np.concatenate(list(ranker.scores(tables.users)))
    assert not np.allclose(np.concatenate(before), after)
    np.testing.assert_allclose(after, trained.scores(tables.rows)["liked"][: len(after)], atol=1e-5)


def test_without_items_only_rows_are_predicted(
    tmp_path: Path, train: Callable[..., Any], tables: Any
) -> None:
    trained = train("fm")
    functions = ModelFunctions(trained.encoder, trained.network)
    assert list(functions.functions) == [SERVE]
    assert functions.encoded == []
    np.testing.assert_allclose(
        functions.runtime().predict(tables.rows)["liked"], trained.scores(tables.rows)["liked"], atol=1e-5
    )


def test_a_feature_of_user_and_item_is_not_in_the_towers(train: Callable[..., Any], tables: Any) -> None:
    trained = train(small("two_tower"), None, every=True)
    functions = ModelFunctions(trained.encoder, trained.network, tables.items.column_names)
    assert SCORE in functions.functions
    assert USER_EMBEDDING not in functions.functions


def test_item_features_whose_columns_the_catalogue_lacks(
    train: Callable[..., Any], tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count as known of the request; recommending then uses the same value for all items."""
    monkeypatch.setattr(runtime_module, "BATCH_ROWS", 2)
    trained = train("fm", None, every=True)
    lacking = ("genres", "keywords", "keyword_weights")
    items = tables.items.drop_columns(list(lacking))
    runtime = ModelFunctions(trained.encoder, trained.network, items.column_names).runtime()
    requests = tables.users
    for name in lacking:
        requests = requests.append_column(name, tables.items[name].slice(1, len(requests)))
    encoded = runtime.encode_user(requests)
    catalogue = runtime.encode_items(items)
    for user in range(len(requests)):
        pairs = requests.take([user] * len(items))
        for name in items.column_names[:-1]:
            pairs = pairs.append_column(name, items[name])
        found = runtime.score(encoded.slice(user, user + 1), catalogue)
        np.testing.assert_allclose(found["liked"], trained.scores(pairs)["liked"], atol=1e-5)


def test_tables_are_stored_once_and_nothing_else_is(
    tmp_path: Path, train: Callable[..., Any], tables: Any
) -> None:
    trained = train(small("deepfm"))
    ModelFunctions(trained.encoder, trained.network, tables.items.column_names).save(tmp_path)
    stored = tf.train.load_checkpoint(str(tmp_path / "variables" / "variables"))
    sizes = {
        name: int(np.prod(shape))
        for name, shape in stored.get_variable_to_shape_map().items()
        if "GRAPH" not in name
    }
    network = trained.network
    expected = sum(table.rows * table.dim for table in network.embeddings.tables.values())
    expected += sum(int(np.prod(variable.shape)) for variable in network.variables)
    assert sum(sizes.values()) == expected, sizes


def operations_of(graph: Any) -> set[str]:
    """What a graph and the functions it calls compute with."""
    return set(re.findall(r'\bop: "(\w+)"', str(graph)))


def test_stock_tensorflow_serves_it(tmp_path: Path, films: Any, tables: Any) -> None:
    """In a process that does not import the package, as TensorFlow Serving would."""
    model = films.bundle.folder / "model"
    arrays = to_tensors(tables.rows, films.bundle.manifest.inputs)
    columns = {name: array.tolist() for name, array in arrays.items()}
    (tmp_path / "columns.json").write_text(json.dumps(columns))
    script = f"""
        import json, sys
        import tensorflow as tf
        model = tf.saved_model.load({str(model)!r})
        serve = model.signatures["serving_default"]
        columns = json.load(open({str(tmp_path / "columns.json")!r}))
        specs = serve.structured_input_signature[1]
        inputs = {{name: tf.constant(columns[name], spec.dtype) for name, spec in specs.items()}}
        print(json.dumps(serve(**inputs)["liked"].numpy().tolist()))
        assert not [name for name in sys.modules if name.split(".")[0] == "easyrec"]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    np.testing.assert_allclose(json.loads(done.stdout), films.trained.scores(tables.rows)["liked"], atol=1e-5)
    operations = {
        name
        for function in tf.saved_model.load(model).signatures.values()
        for name in operations_of(function.graph.as_graph_def())
    }
    assert "MatMul" in operations
    assert not [name for name in operations if "PyFunc" in name or "Xla" in name]
