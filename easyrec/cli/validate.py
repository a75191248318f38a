"""`easyrec validate`: is this configuration right?"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from easyrec.cli.common import ConfigArgument, OverridesOption, note, output
from easyrec.config.loader import load_config
from easyrec.config.pipeline import EvaluationConfig, PipelineConfig
from easyrec.config.resolve import resolve
from easyrec.config.schema import resolved_yaml
from easyrec.errors import ConfigError


def validate(
    config: ConfigArgument,
    overrides: OverridesOption = None,
    data: Annotated[
        bool, typer.Option(help="Check the columns of the data too, where its files are here.")
    ] = True,
    show: Annotated[
        bool, typer.Option("--show", help="Print the configuration with every default filled in.")
    ] = False,
) -> None:
    """Check a configuration, and the data it names.

    All problems are listed, one a line: file and line, path, what is wrong and what would be right.
    """
    pipeline = load_config(config, overrides or ())
    _check_names(pipeline)
    checked = ""
    if data and not (missing := _missing_files(pipeline)):
        pipeline = _check_data(pipeline)
        checked = " and fits the data"
    elif data:
        note(f"the data were not looked at: {missing[0]} is not here")
    if show:
        output().print(resolved_yaml(pipeline), end="", markup=False)
        return
    count = len(pipeline.features)
    output().print(
        f"{config} is valid{checked}: {count} feature{'s' if count > 1 else ''}, model {pipeline.model.type}, "
        f"task{'s' if len(pipeline.tasks) > 1 else ''} {', '.join(pipeline.tasks)}",
        markup=False,
    )


def _check_names(config: PipelineConfig) -> None:
    """Looks metrics and baselines up where any are named: the package that knows them takes its time to import."""
    usual = EvaluationConfig.model_fields["baselines"].default
    if config.evaluation.baselines == usual and not any(task.metrics for task in config.tasks.values()):
        return
    from easyrec.config.evaluation_names import check_names

    if problems := check_names(config):
        raise ConfigError(problems)


def _missing_files(config: PipelineConfig) -> list[str]:
    """Local files and folders that are not there; URLs and globs are left to those who open them."""
    data = config.data
    sources = [data.train, data.eval, data.tables.user, data.tables.item]
    paths = [path for source in sources if source is not None for path in source.path]
    return [
        path
        for path in paths
        if "://" not in path and not set("*?[") & set(path) and not os.path.exists(path)
    ]


def _check_data(config: PipelineConfig) -> PipelineConfig:
    from easyrec.data.dataset import peek_columns

    return resolve(config, peek_columns(config))
