"""From a file to experiments that may run, or to everything that is wrong with it."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from evaluation.abtest.assignment import Assigner
from evaluation.abtest.checks import Probe, change_problems, config_problems
from evaluation.abtest.compilation import compile_assigner
from evaluation.abtest.errors import ExperimentConfigError, Problem
from evaluation.abtest.schema import (
    AnalysisConfig,
    Domain,
    ExperimentConfig,
    ExperimentsConfig,
    Holdout,
    Layer,
    MetricChoice,
    VariantConfig,
)
from evaluation.abtest.yaml_source import Source, parse_source, pydantic_problems, read_source
from evaluation.errors import did_you_mean

# Where each class stands in a file, so that an unknown key can be told what exists there; None is any name.
_CLASSES: dict[tuple[str | None, ...], type[BaseModel]] = {
    (): ExperimentsConfig,
    ("holdout",): Holdout,
    ("domains", None): Domain,
    ("layers", None): Layer,
    ("experiments", None): ExperimentConfig,
    ("experiments", None, "variants", None): VariantConfig,
    ("experiments", None, "metrics"): MetricChoice,
    ("experiments", None, "analysis"): AnalysisConfig,
}


@dataclass(frozen=True)
class Surroundings:
    """What a configuration must fit; None for what is not known.

    Attributes:
        parameters: Names of scene parameters that may be set.
        models: Models that are loaded, by the parameters that name one.
        previous: The configuration that is live.
        probe: Tries variants where they would be served.
    """

    parameters: Collection[str] | None = None
    models: Mapping[str, Collection[str]] | None = None
    previous: ExperimentsConfig | None = None
    probe: Probe | None = None


_ANYTHING = Surroundings()


def load_experiments(
    path: str | os.PathLike[str], surroundings: Surroundings = _ANYTHING
) -> ExperimentsConfig:
    """Load a file of experiments.

    Args:
        path: YAML or JSON.
        surroundings: What it must fit.

    Returns:
        A configuration without problems.

    Raises:
        ExperimentConfigError: Something is wrong; all problems found, each with file, line and path.
    """
    return _finish(read_source(path), surroundings)


def parse_experiments(
    text: str | Mapping[str, Any], surroundings: Surroundings = _ANYTHING, file: str = ""
) -> ExperimentsConfig:
    """As `load_experiments`, from a YAML text or from a mapping of the same shape."""
    source = parse_source(text, file) if isinstance(text, str) else Source(dict(text), file)
    return _finish(source, surroundings)


def load_assigner(
    path: str | os.PathLike[str], surroundings: Surroundings = _ANYTHING
) -> tuple[ExperimentsConfig, Assigner]:
    """Load a file and compile it; raises as `load_experiments`."""
    config = load_experiments(path, surroundings)
    return config, compile_assigner(config)


def _finish(source: Source, surroundings: Surroundings) -> ExperimentsConfig:
    problems = list(source.problems)
    if not isinstance(source.value, Mapping):
        message = "is empty" if source.value is None else "is not a mapping of keys"
        raise ExperimentConfigError(
            [Problem(f"{message}; a file of experiments starts with `version: 1`", file=source.file)]
        )
    unknown = _unknown_keys(source)
    problems += unknown
    try:
        config = ExperimentsConfig.model_validate(source.value)
    except ValidationError as error:
        said = {problem.path for problem in unknown}
        found = [one for one in pydantic_problems(error, source) if one.path not in said]
        raise ExperimentConfigError(_in_order([*problems, *found])) from error
    found = config_problems(config, surroundings.parameters, surroundings.models, surroundings.probe)
    if surroundings.previous is not None:
        found += change_problems(surroundings.previous, config)
    problems += [source.problem(one.path.split("\x00"), one.message) for one in found]
    if problems:
        raise ExperimentConfigError(_in_order(problems))
    return config


def _in_order(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0))


def _unknown_keys(source: Source) -> list[Problem]:
    problems = []
    for pattern, cls in _CLASSES.items():
        for keys, value in _places(source.value, pattern, ()):
            for name in value:
                if name not in cls.model_fields:
                    message = f"is no key that exists here; {did_you_mean(str(name), cls.model_fields)}"
                    problems.append(source.problem((*keys, name), message))
    return problems


def _places(
    value: Any, pattern: tuple[str | None, ...], keys: tuple[str, ...]
) -> list[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The mappings that stand where a pattern of keys points."""
    if not isinstance(value, Mapping):
        return []
    if not pattern:
        return [(keys, value)]
    names = list(value) if pattern[0] is None else [pattern[0]] if pattern[0] in value else []
    return [place for name in names for place in _places(value[name], pattern[1:], (*keys, name))]
