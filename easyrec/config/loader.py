"""From a YAML file to a checked `PipelineConfig`, or to all that is wrong with it.

    read (yaml_reader, documents)  ->  set (overrides)  ->  fill (defaults)  ->  validate (pipeline, messages)
    ->  check across parts (checks)

Paths of data files stay as they are written, relative to the working directory. Only the files named by `include`
are relative to the file that includes them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from easyrec.config.checks import check
from easyrec.config.defaults import apply_defaults
from easyrec.config.documents import read_files
from easyrec.config.locations import Locations, in_order
from easyrec.config.messages import UNKNOWN_OPTION, shorten, to_problems
from easyrec.config.overrides import apply_overrides
from easyrec.config.paths import Path, parse_path
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.yaml_reader import Document
from easyrec.errors import ConfigError, Problem
from easyrec.registry import load_plugins

_LOG = logging.getLogger(__name__)


def load_config(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> PipelineConfig:
    """Loads a configuration file.

    Args:
        path: The YAML file; it may `include` others, relative to itself.
        overrides: `dotted.path=value` each, the value in YAML; a later one wins.
        environment: Variables for `${NAME}` and `${NAME:-default}` in the files.

    Raises:
        ConfigError: Something is wrong; `problems` names all that was found, each with file, line and path.
    """
    return _finish(apply_overrides(read_files(path, environment), overrides))


def load_stored_config(path: str | os.PathLike[str]) -> PipelineConfig:
    """Loads the resolved configuration that a run or a bundle holds.

    It names every option of the version that wrote it. Those that this version has no more are left out, with a warning
    each: what was trained stays usable.

    Args:
        path: The YAML file.

    Raises:
        ConfigError: Something else is wrong; `problems` names all that was found.
    """
    document = read_files(path, os.environ, generated=True)
    try:
        return _finish(document)
    except ConfigError as error:
        unknown = [problem for problem in error.problems if problem.message.startswith(UNKNOWN_OPTION)]
        if not unknown:
            raise
    for problem in unknown:
        _LOG.warning("%s", replace(problem, message="is no option of this version; it is left out"))
    known = _without(document.value, [parse_path(problem.path) for problem in unknown])
    return _finish(Document(known, document.places, document.problems))


def parse_config(
    source: PipelineConfig | Mapping[str, Any] | str | os.PathLike[str],
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> PipelineConfig:
    """Makes a configuration of what a caller of the Python API has at hand.

    Args:
        source: A configuration (checked again only when overridden), a mapping of the same shape as the YAML (its
            values may be configuration objects; `include` and `${NAME}` are for files), or the path of a file.
        overrides: As in `load_config`.
        environment: As in `load_config`.

    Raises:
        ConfigError: Something is wrong; `problems` names all that was found.
    """
    if isinstance(source, PipelineConfig):
        if not overrides:
            return source
        source = source.model_dump(mode="json")
    if isinstance(source, Mapping):
        return _finish(apply_overrides(Document(_plain(source)), overrides))
    return load_config(source, overrides, environment)


def locate(config: PipelineConfig, path: str) -> tuple[str, int | None] | None:
    """Where a value, or the nearest thing around it, was written.

    Args:
        config: A loaded configuration.
        path: Dotted path, such as `features.genres`.

    Returns:
        The file and the line (None for an override), or None for a configuration made in Python.
    """
    place = config.locations.at(parse_path(path))
    return (place.file, place.line) if place else None


def _finish(document: Document) -> PipelineConfig:
    problems = list(document.problems)
    locations = Locations(document.places)
    problems += _load_plugins(document.value, locations)
    filled = apply_defaults(Document(document.value, document.places))
    problems += filled.problems
    locations = Locations(filled.places)
    config, found = _validate(filled.value, locations)
    problems += found
    if config is not None:
        blamed = [problem.path for problem in found]
        problems += [problem for problem in check(config) if problem.path not in blamed]
    if problems or config is None:
        raise ConfigError(in_order(problems))
    return config


def _load_plugins(value: Any, locations: Locations) -> list[Problem]:
    """Imports plug-ins, so that what they register is known when the rest is validated."""
    load_plugins()
    problems = []
    modules = value.get("plugins") if isinstance(value, dict) else None
    for index, module in enumerate(modules if isinstance(modules, (list, tuple)) else ()):
        if not isinstance(module, str):
            continue  # validation says so
        try:
            load_plugins((module,))
        except ConfigError as error:
            problems.append(locations.problem(("plugins", index), str(error)))
    return problems


def _validate(value: Any, locations: Locations) -> tuple[PipelineConfig | None, list[Problem]]:
    """The configuration and what is wrong with it.

    When single options are wrong, the configuration is made without them, so that checks across parts can report
    along with what was found.
    """
    try:
        return PipelineConfig.model_validate(value).with_locations(locations), []
    except ValidationError as error:
        problems = to_problems(error, PipelineConfig, value, locations)
        paths = [parse_path(problem.path) if problem.path else () for problem in problems]
    try:
        rest = PipelineConfig.model_validate(_without(value, paths))
    except ValidationError:
        return None, problems
    return rest.with_locations(locations), problems


def _without(value: Any, paths: Sequence[Path]) -> Any:
    """A copy of nested values without those at `paths`, for which defaults stand in."""
    dropped = {path[0] for path in paths if len(path) == 1}
    if isinstance(value, dict):
        return {
            key: _without(item, [path[1:] for path in paths if path and path[0] == key])
            for key, item in value.items()
            if key not in dropped
        }
    return value


def _plain(value: Any) -> Any:
    """Mappings and sequences of Python as the YAML reader makes them; configuration objects stay.

    Raises:
        ConfigError: A key of a mapping is not text.
    """
    if isinstance(value, BaseModel):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(f"the keys of a configuration are text, got {shorten(key)}")
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
