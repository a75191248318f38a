"""A manifest notices every change of a bundle's files, its own included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easyrec.errors import BundleError
from easyrec.export.manifest import (
    MANIFEST,
    InputEntry,
    Manifest,
    TaskEntry,
    read_manifest,
    verify_files,
    write_manifest,
)

ENTRY = Manifest(
    name="films",
    version="20260101T000000Z",
    created="2026-01-01T00:00:00+00:00",
    model="fm",
    config_hash="0" * 64,
    schema_fingerprint="1" * 64,
    libraries={"tensorflow": "2.21.0"},
    metrics={"liked/auc": 0.75, "liked/gauc": None},
    keys={"user": "user_id", "item": "movie_id", "time": None},
    inputs=[
        InputEntry(name="Zürich", column="Zürich", tensor="Z_rich", kind="string", list=False, side="user")
    ],
    tasks=[TaskEntry(task="liked", tensor="liked", type="binary")],
    signatures=["serving_default"],
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    (folder / "model").mkdir(parents=True)
    (folder / "config.yaml").write_text("name: films\n")
    (folder / "model" / "weights").write_bytes(bytes(range(256)))
    (folder / "empty").write_text("")
    write_manifest(folder, ENTRY)
    return folder


def check(folder: Path) -> Manifest:
    manifest = read_manifest(folder)
    verify_files(folder, manifest)
    return manifest


def test_reads_what_was_written(bundle: Path) -> None:
    manifest = check(bundle)
    assert manifest.model_copy(update={"files": {}}) == ENTRY
    assert sorted(manifest.files) == ["config.yaml", "empty", "model/weights"]
    assert manifest.files["model/weights"].size == 256


def test_every_byte_of_the_manifest_counts(bundle: Path) -> None:
    path = bundle / MANIFEST
    original = path.read_bytes()
    for position in range(len(original)):
        changed = bytearray(original)
        changed[position] ^= 0x01
        path.write_bytes(changed)
        with pytest.raises(BundleError, match=r"manifest\.json"):
            read_manifest(bundle)


@pytest.mark.parametrize("name", ["config.yaml", "model/weights"])
def test_a_changed_byte_is_refused_by_name(bundle: Path, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[-1] ^= 0x80
    (bundle / name).write_bytes(content)
    with pytest.raises(BundleError, match=f"{name} was changed"):
        check(bundle)


def test_a_truncated_file_is_refused_by_name(bundle: Path) -> None:
    (bundle / "model" / "weights").write_bytes(b"")
    with pytest.raises(BundleError, match="model/weights has 0 bytes, not 256"):
        check(bundle)


def test_a_missing_and_an_extra_file_are_refused_by_name(bundle: Path) -> None:
    (bundle / "empty").rename(bundle / "model" / "new")
    with pytest.raises(BundleError, match="empty is missing; model/new does not belong to it"):
        check(bundle)


@pytest.mark.parametrize(("version", "advice"), [(3, "Upgrade"), (1, "Export the bundle again .*RUN")])
def test_another_version_is_refused_with_advice(bundle: Path, version: int, advice: str) -> None:
    path = bundle / MANIFEST
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"manifest_version": version, "new": 1}))
    with pytest.raises(BundleError, match=rf"version {version}, but this EasyRec reads version 2\. {advice}"):
        read_manifest(bundle)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, '{"manifest_version": true}'])
def test_anything_else_is_refused(bundle: Path, text: str) -> None:
    (bundle / MANIFEST).write_text(text)
    with pytest.raises(BundleError, match=r"manifest\.json"):
        read_manifest(bundle)


def test_a_folder_without_manifest_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"is not a bundle: it holds no manifest\.json"):
        read_manifest(tmp_path)
