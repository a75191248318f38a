"""The LiteRT form of every model gives its scores, and is refused wherever it does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from easyrec.config.features import FEATURES
from easyrec.config.models import MODELS
from easyrec.errors import BundleError
from easyrec.export.examples import LITERT_TOLERANCE, replay_examples
from easyrec.export.litert import convert, engine
from easyrec.export.litert.functions import load_runtime
from easyrec.export.manifest import Manifest, read_manifest
from easyrec.export.runtime import ITEM_EMBEDDING, SCORE, USER_EMBEDDING, Runtime
from easyrec.export.signatures import ModelFunctions
from easyrec.features.twins.base import TWINS

pytest.importorskip("ai_edge_litert", reason="it comes with the extra `litert`")
pytest.importorskip("farmhash", reason="it comes with the extra `litert`")

MODEL: dict[str, dict[str, Any]] = {
    "deepfm": {"hidden_units": [8], "batch_norm": True, "dropout": 0.5},
    "wide_and_deep": {"hidden_units": [8], "activation": "gelu"},
    "dcn_v2": {"hidden_units": [8], "cross_layers": 2, "low_rank": 3},
    "dlrm": {"bottom_units": [8], "hidden_units": [8]},
    "din": {"hidden_units": [8], "attention_units": [4], "softmax": True},
    "mmoe": {"hidden_units": [8], "experts": 2, "tower_units": [4]},
    "two_tower": {"hidden_units": [8], "output_dim": 3},
}
TASKS = {
    "mmoe": {
        "liked": "binary",
        "rating": {"type": "regression", "label": "age"},
        "kind": {"type": "multiclass", "classes": 3},
    },
}


def exported(
    train: Callable[..., Any], export: Callable[..., None], folder: Path, model: str, every: bool
) -> Any:
    trained = train({"type": model, **MODEL.get(model, {})}, TASKS.get(model), every=every)
    config = trained.config.model_copy(
        update={"export": trained.config.export.model_copy(update={"litert": True})}
    )
    export(type(trained)(config, trained.encoder, trained.network), folder)
    return trained


def manifest_of(functions: ModelFunctions) -> Manifest:
    """The part of a manifest that says what the functions take and give."""
    return Manifest(
        name="films",
        version="1",
        created="",
        model="",
        config_hash="",
        schema_fingerprint="",
        libraries={},
        keys={},
        inputs=functions.inputs,
        encoded=functions.encoded,
        tasks=functions.tasks,
        signatures=list(functions.functions),
    )


@pytest.mark.parametrize(
    "model", [part.name for part in MODELS if part.config.__module__ == "easyrec.config.models"]
)
def test_every_model_gives_the_same_scores(
    model: str, tmp_path: Path, train: Callable[..., Any], tables: Any
) -> None:
    every = model != "two_tower"  # with a feature of both sides, two towers have no vectors
    trained = train({"type": model, **MODEL.get(model, {})}, TASKS.get(model), every=every)
    functions = ModelFunctions(trained.encoder, trained.network, tables.items.column_names)
    convert.write_litert(tmp_path / "litert", functions)
    manifest = manifest_of(functions)
    runtime = load_runtime(tmp_path / "litert", manifest)
    expected = trained.scores(tables.rows)
    for rows in (tables.rows, tables.rows.slice(0, 1)):
        for task, found in runtime.predict(rows).items():
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected[task][: len(rows)], atol=2e-5, err_msg=task)
    assert runtime.predict(tables.rows.slice(0, 0))[manifest.tasks[0].task].shape[0] == 0
    check_pairs(runtime, tables, expected)
    if model == "two_tower":
        vectors = runtime.embed(USER_EMBEDDING, tables.users) @ runtime.embed(ITEM_EMBEDDING, tables.items).T
        np.testing.assert_allclose(
            vectors.reshape(-1), expected["liked"][: vectors.size], rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    ("model", "items"),
    [
        *((part.name, 9) for part in MODELS if part.config.__module__ == "easyrec.config.models"),
        ("deepfm", 0),  # the items' half is not computed beforehand
        ("din", 0),
        ("two_tower", 0),
    ],
)
def test_every_model_in_two_halves_gives_the_same_scores(
    model: str, items: int, tmp_path: Path, train: Callable[..., Any], tables: Any
) -> None:
    trained = train({"type": model, **MODEL.get(model, {})}, TASKS.get(model), every=False)
    functions = ModelFunctions(trained.encoder, trained.network, tables.items.column_names, items)
    assert functions.precomputed == bool(items)
    convert.write_litert(tmp_path / "litert", functions)
    runtime = load_runtime(tmp_path / "litert", manifest_of(functions))
    expected = trained.scores(tables.rows)
    check_pairs(runtime, tables, expected)
    check_pairs(functions.runtime(), tables, expected)


def check_pairs(runtime: Runtime, tables: Any, expected: Any) -> None:
    """All users with all items, each user and each item encoded once."""
    users, items = runtime.encode_user(tables.users), runtime.encode_items(tables.items)
    for user in range(len(tables.users)):
        found = runtime.score(users.slice(user, user + 1), items)
        for task, scores in found.items():
            block = expected[task][user * len(tables.items) : (user + 1) * len(tables.items)]
            np.testing.assert_allclose(scores, block, atol=2e-5, err_msg=task)


@pytest.fixture(scope="module")
def bundle(
    tmp_path_factory: pytest.TempPathFactory, train: Callable[..., Any], export: Callable[..., None]
) -> Path:
    """A small DeepFM."""
    folder = tmp_path_factory.mktemp("litert") / "bundle"
    exported(train, export, folder, "deepfm", every=False)
    return folder


def test_scores_with_users_and_items_apart_are_compared_too(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = load_runtime(bundle / "litert", read_manifest(bundle))
    replay_examples(bundle / "examples", runtime, LITERT_TOLERANCE)
    score = runtime.score

    def wrong(*given: Any) -> Any:
        return {task: values + np.float32(0.01) for task, values in score(*given).items()}

    monkeypatch.setattr(runtime, "score", wrong)
    with pytest.raises(BundleError, match=r"users and items apart, does not give the scores"):
        replay_examples(bundle / "examples", runtime, LITERT_TOLERANCE)


def test_a_model_without_its_weights_is_refused(tmp_path: Path, bundle: Path) -> None:
    """As a conversion once wrote it: a valid file, with other weights than the trained ones."""
    folder = shutil.copytree(bundle, tmp_path / "bundle")
    path = folder / "litert" / "dense.tflite"
    content = path.read_bytes()
    weight = np.load(folder / "litert" / "embedding_4.npy")
    np.save(folder / "litert" / "embedding_4.npy", np.zeros_like(weight))
    runtime = load_runtime(folder / "litert", read_manifest(folder))
    with pytest.raises(BundleError, match="does not give the scores of its stored examples"):
        replay_examples(folder / "examples", runtime, LITERT_TOLERANCE)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(BundleError, match=r"dense\.tflite is no LiteRT model"):
        load_runtime(folder / "litert", read_manifest(folder))
    (folder / "litert" / "embedding_4.npy").unlink()
    with pytest.raises(BundleError, match=r"embedding_4\.npy cannot be read"):
        load_runtime(folder / "litert", read_manifest(folder))


def test_a_bundle_without_it_says_how_to_get_it(tmp_path: Path, films: Any) -> None:
    with pytest.raises(BundleError, match=r"has no LiteRT model.*litert: true"):
        load_runtime(films.bundle.folder / "litert", films.bundle.manifest)


def test_export_writes_nothing_when_it_does_not_agree(
    tmp_path: Path, train: Callable[..., Any], export: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables = convert._write_tables

    def without_weights(folder: Path, functions: Any) -> Any:
        groups = write_tables(folder, functions)
        for path in folder.glob("embedding_*.npy"):
            np.save(path, np.zeros_like(np.load(path)))
        return groups

    monkeypatch.setattr(convert, "_write_tables", without_weights)
    with pytest.raises(BundleError, match="stored examples"):
        exported(train, export, tmp_path / "bundle", "deepfm", every=False)
    assert not list(tmp_path.iterdir())


def test_a_feature_type_without_a_twin_is_named(
    tmp_path: Path, train: Callable[..., Any], export: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TWINS["tags"].config
    TWINS.unregister("tags")
    try:
        with pytest.raises(BundleError, match="'genres' is of type 'tags', which has no twin"):
            exported(train, export, tmp_path / "bundle", "deepfm", every=False)
    finally:
        TWINS.register("tags", config, "easyrec.features.twins.tags:TagsTwin")
    assert "tags" in FEATURES


def test_without_the_runtime_it_says_what_to_install(
    tmp_path: Path,
    bundle: Path,
    train: Callable[..., Any],
    export: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "Interpreter", None)
    with pytest.raises(BundleError, match=r"pip install easyrec\[litert\]"):
        exported(train, export, tmp_path / "bundle", "deepfm", every=False)
    with pytest.raises(BundleError, match=r"pip install easyrec\[litert\]"):
        load_runtime(bundle / "litert", read_manifest(bundle))


def test_scores_from_many_threads(bundle: Path, tables: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    runtime = load_runtime(bundle / "litert", read_manifest(bundle))
    expected = runtime.predict(tables.rows)["liked"]
    sizes = [1, 7, len(tables.rows), 3, 20] * 10
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda size: runtime.predict(tables.rows.slice(0, size))["liked"], sizes))
    for size, scores in zip(sizes, found, strict=True):
        np.testing.assert_allclose(scores, expected[:size], atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "computed"), [(0, 1), (1, 1), (2, 2), (3, 4), (33, 64), (64, 64), (65, 128), (500, 512)]
)
def test_few_shapes_are_computed(rows: int, computed: int) -> None:
    assert engine.bucket(rows) == computed


def test_tensorflow_is_not_imported(bundle: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from easyrec.export.litert.functions import load_runtime
from easyrec.export.manifest import Manifest, read_manifest
from easyrec.export.examples import replay_examples
folder = Path({str(bundle)!r})
replay_examples(folder / "examples", load_runtime(folder / "litert", read_manifest(folder)), 1e-4)
assert not {{"tensorflow", "keras"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert pq.read_table(bundle / "examples" / "rows.parquet").num_rows
    assert SCORE in read_manifest(bundle).signatures


def test_a_call_that_fails_leaves_the_model_usable(bundle: Path, tables: Any) -> None:
    runtime = load_runtime(bundle / "litert", read_manifest(bundle))
    users, items = runtime.encode_user(tables.users), runtime.encode_items(tables.items)
    before = runtime.score(users.slice(1, 2), items)["liked"]
    with pytest.raises(ValueError, match="broadcast") as kept:  # two users cannot stand for nine rows
        runtime.score(users.slice(0, 2), items)
    np.testing.assert_array_equal(runtime.score(users.slice(1, 2), items.slice(0, 5))["liked"], before[:5])
    assert kept.tb is not None
