"""Checkpoints: the whole state of training as plain files, written so that a crash never leaves a bad one.

    checkpoints/
      step-0000001200/
        manifest.json              step, epoch, position in the data, metrics, and each array's file, shape and sha256
        embedding__user_id.npy     one file per array; an embedding table in order of its ids, however it was sharded
        ...

A checkpoint is written into a temporary folder, flushed to disk, and renamed: it is there whole or not at all. What
an interrupted write left behind is ignored, and removed by the next save. Arrays are streamed in slices, so that
saving needs no second copy of a table.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from easyrec.errors import CheckpointError
from easyrec.training.array_files import (
    DAMAGED,
    READ_BYTES,
    Array,
    Variable,
    file_name,
    flush_directory,
    verify_file,
    write_array,
)

FORMAT = 1
MANIFEST = "manifest.json"
# A step that is saved again gets a suffix: nothing whole is removed before the new one is.
_FOLDER = re.compile(r"step-(\d{10})(?:\.(\d+))?")
_TEMPORARY = ".writing-"


@dataclass(frozen=True)
class Progress:
    """Where training stands.

    Attributes:
        step: Steps done.
        epoch: Epoch that training is in, from 0.
        batches: Batches of that epoch done.
        examples: Examples seen since the first step.
        seed: Seed of the run.
        metrics: What the last evaluation gave, if one belongs to this step.
        monitor: Name, value and direction of the metric that `best` means, if there is one.
        stopping: State of early stopping.
        splits: Splits of that epoch that a cluster has finished.
    """

    step: int = 0
    epoch: int = 0
    batches: int = 0
    examples: int = 0
    seed: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    monitor: dict[str, Any] | None = None
    stopping: dict[str, Any] | None = None
    splits: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        """Steps of training done when it was written."""
        return int(self.manifest["progress"]["step"])

    @property
    def progress(self) -> Progress:
        """Where training stood."""
        return Progress(**self.manifest["progress"])

    @property
    def names(self) -> list[str]:
        """Names of the arrays."""
        return list(self.manifest["arrays"])

    def verify(self) -> None:
        """Reads every file and compares it with its checksum.

        Raises:
            CheckpointError: One is missing or has changed.
        """
        for entry in self.manifest["arrays"].values():
            verify_file(self.path / entry["file"], entry)

    def array(self, name: str, *, verify: bool = True) -> Array:
        """One array, mapped into memory.

        Raises:
            CheckpointError: It is not in this checkpoint, or its file is damaged.
        """
        entry = self.manifest["arrays"].get(name)
        if entry is None:
            raise CheckpointError(f"{self.path}: the checkpoint has no array {name!r}")
        path = self.path / entry["file"]
        if verify:
            verify_file(path, entry)
        try:
            array = np.load(path, mmap_mode="r" if entry["bytes"] > READ_BYTES else None, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise CheckpointError(f"{path}: cannot be read: {error}. {DAMAGED}") from error
        if list(array.shape) != entry["shape"]:
            raise CheckpointError(
                f"{path}: has shape {list(array.shape)}, {MANIFEST} says {entry['shape']}. {DAMAGED}"
            )
        return array


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        directory: Their folder; created by the first save.
        keep: How many of the latest are kept; the best one is kept beside them.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 2) -> None:
        self.directory = Path(directory)
        self.keep = keep

    def save(
        self, variables: Iterable[Variable], progress: Progress, extra: Mapping[str, Any] | None = None
    ) -> Checkpoint:
        """Writes a checkpoint and removes those that need not be kept.

        Args:
            variables: The state.
            progress: Where training stands.
            extra: More for the manifest, such as the tables' vocabularies.

        Raises:
            CheckpointError: The disk is full or cannot be written; earlier checkpoints are untouched.
        """
        final = self._free_path(progress.step)
        temporary = self.directory / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
            temporary.mkdir()
            manifest = _write(temporary, variables, progress, extra or {})
            os.replace(temporary, final)
            flush_directory(self.directory)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            latest = self.latest()
            kept = (
                f"The checkpoint before it is whole: {latest.path}." if latest else "There is none before it."
            )
            raise CheckpointError(
                f"{final}: the checkpoint cannot be written: {error.strerror or error}. {kept} "
                "Make room, or choose another `output` folder, and go on with `--resume`"
            ) from error
        checkpoint = Checkpoint(final, manifest)
        self._prune()
        return checkpoint

    def all(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first; folders without a readable manifest are passed over."""
        found = []
        for _, _, path in self._folders():
            try:
                found.append(open_checkpoint(path))
            except CheckpointError:
                continue
        return found

    def latest(self) -> Checkpoint | None:
        """The one with the most steps."""
        checkpoints = self.all()
        return checkpoints[-1] if checkpoints else None

    def best(self) -> Checkpoint | None:
        """The one whose monitored metric is best, the earliest of equals; the latest if none was evaluated."""
        checkpoints = self.all()
        rated = [checkpoint for checkpoint in checkpoints if checkpoint.manifest["progress"]["monitor"]]
        if not rated:
            return checkpoints[-1] if checkpoints else None
        return max(rated, key=_goodness)

    def choose(self, which: str | int) -> Checkpoint:
        """`best`, `last`, or the one of a step.

        Raises:
            CheckpointError: There is none.
        """
        checkpoints = {checkpoint.step: checkpoint for checkpoint in self.all()}
        if not checkpoints:
            raise CheckpointError(f"{self.directory}: there is no complete checkpoint; train first")
        chosen = {"best": self.best, "last": self.latest}.get(str(which), lambda: None)()
        if chosen is None and str(which).isdigit():
            chosen = checkpoints.get(int(which))
        if chosen is None:
            steps = ", ".join(str(step) for step in checkpoints)
            raise CheckpointError(
                f"{self.directory}: no checkpoint {which!r}; give `best`, `last`, or one of the steps {steps}"
            )
        return chosen

    def _free_path(self, step: int) -> Path:
        taken = [again for known, again, _ in self._folders() if known == step]
        return self.directory / (f"step-{step:010d}" + (f".{max(taken) + 1}" if taken else ""))

    def _folders(self) -> list[tuple[int, int, Path]]:
        """Step, how often it had been saved before, and folder; in order."""
        if not self.directory.is_dir():
            return []
        matches = ((_FOLDER.fullmatch(path.name), path) for path in self.directory.iterdir())
        return sorted((int(match[1]), int(match[2] or 0), path) for match, path in matches if match)

    def _prune(self) -> None:
        checkpoints = self.all()
        by_step = {checkpoint.step: checkpoint for checkpoint in checkpoints}
        best = self.best()
        kept = {checkpoint.path for checkpoint in list(by_step.values())[-self.keep :]}
        kept |= set() if best is None else {by_step[best.step].path}
        for checkpoint in checkpoints:
            if checkpoint.path not in kept:
                # Out of sight first: a crash in the middle must not leave half a checkpoint under its name.
                doomed = self.directory / f"{_TEMPORARY}{uuid.uuid4().hex}"
                os.replace(checkpoint.path, doomed)
                shutil.rmtree(doomed)

    def _remove_leftovers(self) -> None:
        for path in self.directory.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(path, ignore_errors=True)


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Opens a checkpoint folder without reading its arrays.

    Raises:
        CheckpointError: It is not there, not complete, or of another format.
    """
    path = Path(path)
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        version, arrays = manifest["format"], manifest["arrays"]
        files = [entry["file"] for entry in arrays.values()]
        Progress(**manifest["progress"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path}: not a complete checkpoint ({MANIFEST} is missing or unreadable: {error})"
        ) from error
    if version != FORMAT:
        raise CheckpointError(f"{path}: has checkpoint format {version}, this version reads {FORMAT}")
    missing = [file for file in files if not (path / file).is_file()]
    if missing:
        raise CheckpointError(f"{path / missing[0]}: is missing. {DAMAGED}")
    return Checkpoint(path, manifest)


def restore(checkpoint: Checkpoint, variables: Iterable[Variable]) -> None:
    """Gives the variables the values of a checkpoint; every file is verified before anything is changed.

    Raises:
        CheckpointError: A file is damaged, or the state has other variables or shapes than the checkpoint.
    """
    variables = list(variables)
    arrays = checkpoint.manifest["arrays"]
    wanted = {variable.name: variable for variable in variables}
    problems = [f"{name}: not in the checkpoint" for name in sorted(wanted.keys() - arrays.keys())]
    problems += [f"{name}: not in this model" for name in sorted(arrays.keys() - wanted.keys())]
    problems += [
        f"{name}: shape {list(wanted[name].shape)} here, {arrays[name]['shape']} in the checkpoint"
        for name in sorted(wanted.keys() & arrays.keys())
        if list(wanted[name].shape) != arrays[name]["shape"]
    ]
    if problems:
        shown = "\n  ".join(problems[:8]) + ("\n  ..." if len(problems) > 8 else "")
        raise CheckpointError(
            f"{checkpoint.path}: the checkpoint is of another model ({len(problems)} differences):\n  {shown}\n"
            "Use the configuration it was trained with, or start from it with `training.warm_start`"
        )
    checkpoint.verify()
    for variable in variables:
        variable.write(checkpoint.array(variable.name, verify=False))


def _goodness(checkpoint: Checkpoint) -> tuple[float, int]:
    monitor = checkpoint.manifest["progress"]["monitor"]
    value = monitor["value"] if monitor["value"] is not None else -np.inf
    return (value if monitor["higher_is_better"] or value == -np.inf else -value, -checkpoint.step)


def _write(
    folder: Path, variables: Iterable[Variable], progress: Progress, extra: Mapping[str, Any]
) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    files: set[str] = set()
    for variable in variables:
        file = file_name(variable.name, files)
        with (folder / file).open("wb") as stream:
            digest, size = write_array(stream, variable)
            stream.flush()
            os.fsync(stream.fileno())
        arrays[variable.name] = {
            "file": file,
            "shape": list(variable.shape),
            "dtype": variable.dtype.str,
            "bytes": size,
            "sha256": digest,
        }
    manifest = {"format": FORMAT, "progress": _plain(progress), "arrays": arrays, **extra}
    with (folder / MANIFEST).open("w", encoding="utf-8") as text:
        json.dump(manifest, text, indent=1)
        text.flush()
        os.fsync(text.fileno())
    flush_directory(folder)
    return manifest


def _plain(progress: Progress) -> dict[str, Any]:
    plain = dict(vars(progress))
    if plain["monitor"] is not None and not np.isfinite(plain["monitor"]["value"]):
        plain["monitor"] = {**plain["monitor"], "value": None}
    plain["metrics"] = {name: value for name, value in plain["metrics"].items() if np.isfinite(value)}
    return plain
