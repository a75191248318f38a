"""`easyrec list`: what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.table import Table

from easyrec.cli.common import note, output
from easyrec.config.data import READERS
from easyrec.config.describe import Option, options
from easyrec.config.features import FEATURES
from easyrec.config.models import MODELS
from easyrec.config.tasks import LOSSES, TASKS
from easyrec.errors import ConfigError, nearest
from easyrec.registry import Registry, broken_plugins, load_plugins


class Family(StrEnum):
    """What can be listed."""

    features = "features"
    models = "models"
    tasks = "tasks"
    losses = "losses"
    metrics = "metrics"
    readers = "readers"


_REGISTRIES: dict[Family, Registry[Any]] = {
    Family.features: FEATURES,
    Family.models: MODELS,
    Family.tasks: TASKS,
    Family.losses: LOSSES,
    Family.readers: READERS,
}


def list_parts(
    family: Annotated[Family, typer.Argument(help="What to list.")],
    name: Annotated[str | None, typer.Argument(help="Show the options of this one.")] = None,
    plugins: Annotated[
        list[str] | None,
        typer.Option("--plugin", metavar="MODULE", help="Import a module that registers more parts."),
    ] = None,
) -> None:
    """Show what there is to choose from, plug-ins included: names, what they are, their options."""
    load_plugins(tuple(plugins or ()))
    for broken in broken_plugins().values():
        note(broken)
    if family is Family.metrics:
        _show_metrics(name)
        return
    registry = _REGISTRIES[family]
    if name is not None:
        _show_options(registry[name].config, name, registry[name].summary)
        return
    table = _table("name", "what it is", "options")
    for part in registry:
        table.add_row(part.name, part.summary, ", ".join(option.name for option in options(part.config)))
    output().print(table)


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, title in enumerate(titles):
        table.add_column(title, no_wrap=index == 0, overflow="fold")
    return table


def _show_options(config: type[BaseModel], name: str, summary: str) -> None:
    console = output()
    console.print(f"{name}: {summary}", markup=False)
    found = options(config)
    if not found:
        console.print("It has no options.")
        return
    table = _table("option", "type", "default", "what it does")
    for row in _rows(found):
        table.add_row(*row)
    console.print(table)


def _rows(found: list[Option]) -> Iterator[tuple[str, str, str, str]]:
    for option in found:
        yield option.name, option.type, "required" if option.required else option.default, option.description


def _show_metrics(name: str | None) -> None:
    from evaluation.metrics.registry import METRICS

    if name is not None and name not in METRICS:
        raise ConfigError(f"unknown metric {name!r}.{nearest(name, METRICS)}")
    table = _table("name", "tasks", "better", "what it is")
    for metric in METRICS.values():
        if name in (None, metric.name):
            table.add_row(metric.name, ", ".join(metric.kinds), metric.better, metric.doc)
    output().print(table)
