"""`manifest.json`: what a bundle is, and the checksum of each of its files. Imports no TensorFlow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from easyrec.config.base import StrictModel
from easyrec.config.features import Side
from easyrec.errors import BundleError
from easyrec.features.inputs import InputSpec, Kind, Part, Role

MANIFEST = "manifest.json"
MANIFEST_VERSION = 2
HALF = "half/"
"""What begins the keys of encoded tensors that hold one side's half of the network."""
_READ_SIZE = 1 << 20


class FileEntry(StrictModel):
    """Size and checksum of one file."""

    size: int
    sha256: str


class InputEntry(StrictModel):
    """One raw input of the model."""

    name: str
    """The column's name, unless it is one part of a map."""
    column: str
    """Source column."""
    tensor: str
    """Name in the signatures: `name` wherever TensorFlow allows it."""
    kind: Kind
    """What one value is."""
    side: Side
    """Whom the feature that reads it describes."""
    of_item: bool = False
    """Whether it is known of an item whoever the user is: the item's part of the two-stage signatures."""
    list: bool = False
    """Whether a row holds several values: a tensor [B, L] padded with the missing value, else [B]."""
    role: Role = "category"
    """Whether only equality matters, or the amount."""
    part: Part = "values"
    """The values of the column, or the keys or the items of a map column."""
    aligned_with: str | None = None
    """Name of the input whose rows have the same lengths."""

    @property
    def spec(self) -> InputSpec:
        """The input as features know it."""
        values = {
            name: getattr(self, name) for name in type(self).model_fields if name not in ("tensor", "of_item")
        }
        return InputSpec(**values, feature=self.name)


class HistoryEntry(StrictModel):
    """An input that lists what the user took, so that it can be made from items."""

    name: str
    """Name of the input."""
    of: str
    """Column of the item table whose values it lists."""
    separator: str | None = None
    """What stands between the values, where the input is text."""


class EncodedEntry(StrictModel):
    """One tensor that passes from the encoding signatures to `score`."""

    side: Literal["user", "item"]
    """Which of the two encoding signatures gives it."""
    key: str
    """`ids`, `numbers`, a feature with several ids a row, `raw/<input>`, or `half/<number>`: a part of what the network
    makes of one side alone."""
    part: Literal["values", "row_lengths", "weights"] | None = None
    """Which array of a feature with several ids a row."""
    tensor: str
    """Name in the signatures."""


class TaskEntry(StrictModel):
    """One predicted quantity."""

    task: str
    """Name in the configuration and in tables of predictions."""
    tensor: str
    """Name in the outputs of the signatures."""
    type: str
    """Type of the task."""
    classes: int | None = None
    """Number of probabilities a row, for tasks that have several."""
    class_names: list[str] | list[int] | None = None
    """What the classes are called, unless they are numbered from 0."""


class Manifest(StrictModel):
    """All that is known of a bundle before its model is loaded."""

    manifest_version: Literal[2] = 2
    """Version of this layout; a reader refuses others."""
    name: str
    """Name of the pipeline."""
    version: str
    """Version of the bundle; later ones sort after earlier ones."""
    created: str
    """When it was written, UTC, ISO 8601."""
    model: str
    """Type of the model."""
    config_hash: str
    """SHA-256 of config.yaml."""
    schema_fingerprint: str
    """SHA-256 of the raw columns and of the ids and numbers that features make of them."""
    libraries: dict[str, str]
    """Versions of the libraries it was written with."""
    metrics: dict[str, float | None] = Field(default_factory=dict)
    """Evaluation metrics of the model, such as `liked/auc`; null where one is not defined."""
    keys: dict[Literal["user", "item", "time"], str | None]
    """Columns that identify user, item and time."""
    inputs: list[InputEntry]
    """Raw columns."""
    histories: list[HistoryEntry] = Field(default_factory=list)
    """Inputs that list what the user took, oldest first."""
    encoded: list[EncodedEntry] = Field(default_factory=list)
    """Tensors between the encoding signatures and `score`."""
    tasks: list[TaskEntry]
    """Predicted quantities; the first one ranks unless told otherwise."""
    signatures: list[str]
    """Signatures of the SavedModel."""
    files: dict[str, FileEntry] = Field(default_factory=dict)
    """All other files, by path."""


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Adds the checksums of all files of `folder` to the manifest and writes it.

    Args:
        folder: The complete bundle, without a manifest.
        manifest: All but `files`.

    Returns:
        The manifest as written.
    """
    manifest = manifest.model_copy(update={"files": checksums(folder)})
    (folder / MANIFEST).write_text(_text(manifest.model_dump(mode="json")), encoding="utf-8")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of a bundle.

    Raises:
        BundleError: There is none, it was changed after it was written, or it is of another version.
    """
    path = folder / MANIFEST
    try:
        text = path.read_bytes().decode("utf-8")
        values = json.loads(text)
    except FileNotFoundError as error:
        raise BundleError(f"{folder} is not a bundle: it holds no {MANIFEST}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"{path} cannot be read: {error}. {_AGAIN}") from error
    version = values.get("manifest_version") if isinstance(values, dict) else None
    if isinstance(version, int) and version != MANIFEST_VERSION:
        again = "export the bundle again with this version (`easyrec export RUN`)."
        advice = f"Upgrade EasyRec, or {again}" if version > MANIFEST_VERSION else f"E{again[1:]}"
        raise BundleError(
            f"{path} has manifest version {version}, but this EasyRec reads version {MANIFEST_VERSION}. {advice}"
        )
    if not isinstance(values, dict) or values.pop("checksum", None) is None or text != _text(values):
        raise BundleError(f"{path} was changed after it was written: its checksum does not match. {_AGAIN}")
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        raise BundleError(f"{path} is not a manifest of version {MANIFEST_VERSION}: {error}") from error


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Compares every file of a bundle with the manifest.

    Raises:
        BundleError: A file is missing, is one too many, or was changed; the message names the first three.
    """
    present = _files(folder)
    problems = [f"{name} is missing" for name in sorted(manifest.files.keys() - present.keys())]
    problems += [f"{name} does not belong to it" for name in sorted(present.keys() - manifest.files.keys())]
    for name in sorted(manifest.files.keys() & present.keys()):
        expected, path = manifest.files[name], present[name]
        size = path.stat().st_size
        if size != expected.size:
            problems.append(f"{name} has {size} bytes, not {expected.size}")
        elif _sha256(path) != expected.sha256:
            problems.append(f"{name} was changed: its checksum does not match")
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise BundleError(f"the bundle {folder} is damaged: {'; '.join(problems[:3])}{more}. {_AGAIN}")


def checksums(folder: Path) -> dict[str, FileEntry]:
    """Size and checksum of each file under `folder` but the manifest, by path."""
    return {
        name: FileEntry(size=path.stat().st_size, sha256=_sha256(path))
        for name, path in sorted(_files(folder).items())
    }


def text_hash(values: Any) -> str:
    """SHA-256 of a JSON-like value, the same wherever it is computed."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


_AGAIN = "Copy it again from where it was exported, or export it again with `easyrec export RUN`."


def _files(folder: Path) -> dict[str, Path]:
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    paths.pop(MANIFEST, None)
    return paths


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_READ_SIZE):
                digest.update(block)
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}. {_AGAIN}") from error
    return digest.hexdigest()


def _text(values: Mapping[str, Any]) -> str:
    """The one text that stands for `values`, so that a change of any byte is noticed."""
    return json.dumps({**values, "checksum": text_hash(values)}, indent=2, ensure_ascii=False) + "\n"
