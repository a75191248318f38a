"""The folder of one run: what lies where, and what may be written there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easyrec.config.loader import load_stored_config
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.schema import resolved_yaml
from easyrec.errors import ConfigError, InputError

_SHOWN_DIFFERENCES = 12
_SHOWN_CHARACTERS = 60
_ABSENT = "nothing"


class RunError(InputError):
    """A folder is not a run, or holds one that would be overwritten."""


@dataclass(frozen=True)
class RunFolder:
    """A run on disk: `<output>/<name>/`.

    Attributes:
        directory: The folder.
    """

    directory: Path

    @property
    def config_path(self) -> Path:
        """The resolved configuration, every default filled in; training from it gives the same run."""
        return self.directory / "config.yaml"

    @property
    def data_path(self) -> Path:
        """Fingerprints of the data it was started from."""
        return self.directory / "data.json"

    @property
    def features(self) -> Path:
        """Fitted vocabularies and statistics."""
        return self.directory / "features"

    @property
    def prepared(self) -> Path:
        """Data derived from the source data, such as behaviour histories; may be deleted."""
        return self.directory / "prepared"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of training."""
        return self.directory / "checkpoints"

    @property
    def bundle(self) -> Path:
        """Everything needed to predict and serve."""
        return self.directory / "bundle"

    @property
    def report(self) -> Path:
        """The evaluation report: JSON, Markdown and HTML."""
        return self.directory / "report"

    @property
    def log(self) -> Path:
        """One JSON object a line: what training logged."""
        return self.directory / "log.jsonl"

    @property
    def summary_path(self) -> Path:
        """The run report: rows, coverage, speed, memory, metrics."""
        return self.directory / "run.json"

    def exists(self) -> bool:
        """Whether the folder holds a run: it has been prepared for training."""
        return self.config_path.is_file()

    def config(self) -> PipelineConfig:
        """The resolved configuration.

        Raises:
            RunError: The folder holds no run.
        """
        if not self.exists():
            raise RunError(
                f"{self.directory} is not a run: it holds no config.yaml. Runs are written by `easyrec train CONFIG`."
            )
        return load_stored_config(self.config_path)

    def summary(self) -> dict[str, Any]:
        """The run report, or an empty mapping when training has not ended yet."""
        if not self.summary_path.is_file():
            return {}
        summary: dict[str, Any] = json.loads(self.summary_path.read_text(encoding="utf-8"))
        return summary

    def logged(self) -> list[dict[str, Any]]:
        """The lines of the training log; a half-written last line is left out."""
        if not self.log.is_file():
            return []
        lines = self.log.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines[:-1] if line]


def find_place(directory: str | Path, *, overwrite: bool = False) -> RunFolder:
    """A folder that a new run may be written to.

    Args:
        directory: The folder; it need not exist. One that holds nothing but what an earlier run prepared is free.
        overwrite: Whether a run that is there may be replaced. Nothing is changed yet.

    Raises:
        RunError: The folder holds a run (and `overwrite` is False), or something that is not a run.
    """
    run = RunFolder(Path(directory))
    if run.exists():
        if not overwrite:
            raise RunError(
                f"{run.directory} holds a run already. Continue it with --resume, replace it with --overwrite, or "
                "choose another folder with --run."
            )
        return run
    if run.directory.exists() and not run.directory.is_dir():
        raise RunError(f"{run.directory} is a file, not a folder. Choose another folder with --run.")
    if run.directory.is_dir() and any(path != run.prepared for path in run.directory.iterdir()):
        raise RunError(
            f"{run.directory} is not empty and holds no run; nothing is written there. Choose another folder "
            "with --run."
        )
    return run


def start_run(run: RunFolder, config: PipelineConfig, data: Mapping[str, str] | None = None) -> None:
    """Makes a folder that of a new run: removes what an earlier one left, and writes the configuration.

    The folder holds a run at every moment, the earlier one or the new one. Prepared data stay: they are found by what
    they were made from.

    Args:
        run: As `find_place` gave it.
        config: The resolved configuration.
        data: Fingerprints of its data, see `changed_data`.
    """
    run.directory.mkdir(parents=True, exist_ok=True)
    for path in run.directory.iterdir():
        if path not in (run.config_path, run.prepared):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    writing = run.config_path.with_name(f".{run.config_path.name}.writing")
    writing.write_text(resolved_yaml(config), encoding="utf-8")
    writing.replace(run.config_path)
    run.data_path.write_text(json.dumps(dict(data or {}), indent=1) + "\n", encoding="utf-8")


def changed_data(run: RunFolder, data: Mapping[str, str]) -> list[str]:
    """The tables whose files are not those that the run was started from.

    Args:
        run: An existing run.
        data: Fingerprints of the data as they are now, by table.
    """
    if not run.data_path.is_file():
        return []
    stored = json.loads(run.data_path.read_text(encoding="utf-8"))
    return [name for name in stored if stored[name] != data.get(name)]


def abandon(run: RunFolder) -> None:
    """Removes what preparing left in a folder that did not become a run; a run that is there stays."""
    if not run.exists() and run.directory.is_dir():
        shutil.rmtree(run.prepared, ignore_errors=True)
        with suppress(OSError):  # somebody has put something there meanwhile
            run.directory.rmdir()


def open_run(directory: str | Path, config: PipelineConfig | None = None) -> RunFolder:
    """Opens an existing run.

    Args:
        directory: The folder of the run.
        config: When given, the run must have been started from the same configuration.

    Returns:
        The run.

    Raises:
        RunError: There is no run.
        ConfigError: The configurations differ; every option that does is named.
    """
    run = RunFolder(Path(directory))
    stored = run.config()
    if config is not None and stored != config:
        differing = _differences(stored.model_dump(mode="json"), config.model_dump(mode="json"))
        shown = "\n  ".join(differing[:_SHOWN_DIFFERENCES])
        more = "" if len(differing) <= _SHOWN_DIFFERENCES else "\n  ..."
        raise ConfigError(
            f"{run.directory} was started from another configuration:\n  {shown}{more}\n"
            "Resume with the configuration it was started from, or train into another folder with --run."
        )
    return run


def _differences(stored: Any, given: Any, path: str = "") -> list[str]:
    """Options of two configurations that differ, in words."""
    if isinstance(stored, dict) and isinstance(given, dict):
        found = []
        for key in dict.fromkeys([*stored, *given]):
            name = f"{path}.{key}" if path else key
            found += _differences(stored.get(key, _ABSENT), given.get(key, _ABSENT), name)
        return found
    return [] if stored == given else [f"{path}: {_shown(stored)} there, {_shown(given)} here"]


def _shown(value: Any) -> str:
    text = value if value is _ABSENT else json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
