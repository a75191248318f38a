"""The folder of one run: what lies where, and what may be written there."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easyrec.config.loader import load_config
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.schema import resolved_yaml
from easyrec.errors import ConfigError, EasyRecError


class RunError(EasyRecError):
    """A folder is not a run, or holds one that would be overwritten."""

    exit_code = 2


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

    def config(self) -> PipelineConfig:
        """The resolved configuration.

        Raises:
            RunError: The folder holds no run.
        """
        if not self.config_path.is_file():
            raise RunError(
                f"{self.directory} is not a run: it holds no config.yaml. Runs are written by `easyrec train CONFIG`."
            )
        return load_config(self.config_path)

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


def create_run(
    config: PipelineConfig, directory: Path | None = None, *, overwrite: bool = False
) -> RunFolder:
    """Makes the folder of a new run and writes its configuration.

    Args:
        config: The resolved configuration.
        directory: The folder; `<config.output>/<config.name>` unless given.
        overwrite: Remove a run that is there already.

    Returns:
        The run.

    Raises:
        RunError: The folder holds a run (and `overwrite` is False), or something that is not a run.
    """
    run = RunFolder(directory or Path(config.output) / config.name)
    if run.directory.exists() and any(run.directory.iterdir()):
        if not run.config_path.is_file():
            raise RunError(
                f"{run.directory} is not empty and holds no run; nothing is written there. Choose another folder "
                "with --run."
            )
        if not overwrite:
            raise RunError(
                f"{run.directory} holds a run already. Continue it with --resume, replace it with --overwrite, or "
                "choose another folder with --run."
            )
        shutil.rmtree(run.directory)
    run.directory.mkdir(parents=True, exist_ok=True)
    run.config_path.write_text(resolved_yaml(config), encoding="utf-8")
    return run


def open_run(directory: str | Path, config: PipelineConfig | None = None) -> RunFolder:
    """Opens an existing run.

    Args:
        directory: The folder of the run.
        config: When given, the run must have been started from the same configuration.

    Returns:
        The run.

    Raises:
        RunError: There is no run.
        ConfigError: The configurations differ; the parts that do are named.
    """
    run = RunFolder(Path(directory))
    stored = run.config()
    if config is not None and stored != config:
        differing = [
            name for name in type(config).model_fields if getattr(stored, name) != getattr(config, name)
        ]
        raise ConfigError(
            f"{run.directory} was started from another configuration; these parts differ: {', '.join(differing)}. "
            "Resume with the configuration it was started from, or train into another folder with --run."
        )
    return run
