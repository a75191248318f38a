"""A bundle is whole or refused, needs nothing outside itself, and is replaced in one step."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easyrec.errors import BundleError
from easyrec.export import examples, layout, write
from easyrec.export.bundle import Bundle, load
from easyrec.export.layout import find_bundle
from easyrec.export.manifest import MANIFEST, read_manifest, write_manifest
from easyrec.export.write import positive_rows


def test_holds_what_it_is(films: Any) -> None:
    manifest = films.bundle.manifest
    assert (manifest.name, manifest.model, manifest.version) == ("films", "deepfm", "7")
    assert manifest.metrics == {"liked/auc": 0.5, "liked/gauc": None}
    assert manifest.keys == {"user": "user_id", "item": "movie_id", "time": "time"}
    assert {
        "config.yaml",
        "model/saved_model.pb",
        "features/features.json",
        "candidates/items.parquet",
    } < set(manifest.files)
    assert {"users/users.parquet", "examples/rows.parquet", "examples/scores.parquet"} < set(manifest.files)
    assert films.bundle.config == films.trained.config
    assert repr(films.bundle) == "Bundle('films', model='deepfm', version='7')"
    assert films.bundle.manifest.libraries["tensorflow"].startswith("2.")


def test_examples_are_spread_over_the_rows_and_include_a_blank_one(films: Any) -> None:
    rows = pq.read_table(films.bundle.folder / "examples" / "rows.parquet")
    assert len(rows) == 33
    assert set(rows["user_id"].to_pylist()) > {100, 105, None}
    assert not any(rows.slice(32, 1).to_pylist()[0].values())


def test_works_after_moving_with_nothing_else_left(
    tmp_path: Path, films: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"user_id": [103, 104], "movie_id": ["m1", "m2"]}
    scores, titles = films.bundle.predict(rows)["liked"], films.bundle.recommend(103, 3)["title"].tolist()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    films.bundle.folder.rename(tmp_path / "elsewhere")
    try:
        moved = load("../elsewhere")
        np.testing.assert_allclose(moved.predict(rows)["liked"], scores, atol=1e-5)
        assert moved.recommend(103, 3)["title"].tolist() == titles
        assert moved.config == films.trained.config
    finally:
        (tmp_path / "elsewhere").rename(films.bundle.folder)


def test_a_changed_byte_in_any_file_is_refused_by_name(tmp_path: Path, films: Any) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(films.bundle.folder, copy)
    names = [*films.bundle.manifest.files, MANIFEST]
    for name in names:
        path = copy / name
        original = path.read_bytes()
        changed = bytearray(original)
        changed[len(changed) // 2] ^= 0x10
        path.write_bytes(changed)
        with pytest.raises(BundleError, match=name.replace(".", r"\.")):
            load(copy)
        path.write_bytes(original)
    load(copy)


def test_a_missing_and_an_extra_file_are_refused_by_name(tmp_path: Path, films: Any) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(films.bundle.folder, copy)
    (copy / "users" / "users.parquet").rename(copy / "notes.txt")
    with pytest.raises(
        BundleError, match=r"users/users\.parquet is missing; notes\.txt does not belong to it"
    ):
        load(copy)


def test_other_scores_than_the_stored_ones_are_refused(tmp_path: Path, films: Any) -> None:
    """Checksums are right, but the model is another one: as after a faulty conversion."""
    copy = tmp_path / "bundle"
    shutil.copytree(films.bundle.folder, copy)
    path = copy / "examples" / "scores.parquet"
    scores = pq.read_table(path)["liked"].to_numpy().copy()
    scores[5] += 1e-4
    scores[9] -= 2e-3
    pq.write_table(pa.table({"liked": scores}), path)
    write_manifest(copy, read_manifest(copy))
    with pytest.raises(BundleError, match=r"scores of its stored examples: 'liked' of row 9 is .*'user_id'"):
        load(copy)
    assert isinstance(load(copy, verify=False), Bundle)


@pytest.mark.parametrize(
    ("expected", "found", "fine"),
    [
        (0.5, 0.500009, True),
        (0.5, 0.50002, False),
        (1e6, 1e6 + 5, True),
        (1e6, 1e6 + 50, False),
        (np.nan, np.nan, True),
        (0.5, np.nan, False),
        (np.inf, np.inf, True),
        (np.inf, 1.0, False),
    ],
)
def test_how_close_scores_must_be(expected: float, found: float, fine: bool) -> None:
    rows = pa.table({"a": [1, 2]})
    arrays = [{"t": np.array([[0.0, 1.0], [1.0, value]])} for value in (expected, found)]
    if fine:
        examples.compare(rows, arrays[0], arrays[1], "it")
    else:
        with pytest.raises(BundleError, match="'t' of row 1"):
            examples.compare(rows, arrays[0], arrays[1], "it")


def test_a_model_that_exports_wrongly_is_not_put_in_place(
    tmp_path: Path, train: Callable[..., Any], export: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = {"liked": np.zeros(33, np.float32)}
    monkeypatch.setattr(write, "_trained_scores", lambda encoder, network, rows: zeros)
    with pytest.raises(BundleError, match="does not give the scores"):
        export(train("logistic_regression"), tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_the_old_one_stays_when_the_disk_is_full_and_when_killed(tmp_path: Path, films: Any) -> None:
    target = tmp_path / "bundle"
    shutil.copytree(films.bundle.folder, target)
    script = f"""
        import resource, sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import conftest
        from easyrec.errors import BundleError
        from easyrec.export import write
        trained = conftest.make_trained("logistic_regression")
        for size in (3_000, 50_000):  # a small file fits, the SavedModel does not; the configuration does not
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            try:
                conftest.make_bundle(trained, {str(target)!r})
            except BundleError as error:
                print(error, flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        write.write_manifest = lambda *arguments: (print("almost done", flush=True), time.sleep(100))
        conftest.make_bundle(trained, {str(target)!r})
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        for line in lines[:2]:
            assert "bundle: File too large. What was there before is unchanged." in line
        assert lines[2] == "almost done\n", process.stderr.read()
    assert load(target).manifest == films.bundle.manifest
    assert len(list(tmp_path.iterdir())) == 2


def test_a_run_or_a_bundle_is_found(tmp_path: Path, films: Any) -> None:
    folder = films.bundle.folder
    assert find_bundle(folder) == folder
    assert find_bundle(folder.parent) == folder
    (tmp_path / "films").mkdir()
    with pytest.raises(BundleError, match=r"film does not exist.* Did you mean 'films'\?"):
        find_bundle(tmp_path / "film")
    with pytest.raises(BundleError, match=r"neither a bundle \(it holds no manifest\.json\) nor a run"):
        find_bundle(tmp_path / "films")
    (tmp_path / "films" / "config.yaml").write_text("")
    with pytest.raises(BundleError, match="has no bundle yet; make one with `easyrec export"):
        find_bundle(tmp_path / "films")


def test_a_model_that_lacks_a_signature_is_refused(tmp_path: Path, films: Any) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(films.bundle.folder, copy)
    manifest = read_manifest(copy)
    write_manifest(copy, manifest.model_copy(update={"signatures": ["nothing"]}))
    with pytest.raises(BundleError, match="lacks the signatures nothing"):
        load(copy)
    shutil.rmtree(copy / "model" / "variables")
    write_manifest(copy, manifest)
    with pytest.raises(BundleError, match="cannot be loaded"):
        load(copy)


def test_positive_rows(films: Any) -> None:
    chunk = pa.table({"movie_id": ["a", "b", "c"], "label/liked": pa.array([1, 0, None], pa.float32())})
    assert next(positive_rows([chunk], films.trained.config))["movie_id"].to_pylist() == ["a"]
    unlabelled = chunk.drop_columns("label/liked")
    assert next(positive_rows([unlabelled], films.trained.config)).num_rows == 3


def test_manifest_is_plain_json(films: Any) -> None:
    values = json.loads((films.bundle.folder / MANIFEST).read_text())
    assert values["manifest_version"] == 2
    assert len(values["files"]["config.yaml"]["sha256"]) == 64
    assert layout.CONFIG in values["files"]
