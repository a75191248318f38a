"""What the commands of `easyrec ab` share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from easyrec.errors import ConfigError, Problem

ExperimentsArgument = Annotated[
    Path, typer.Argument(metavar="EXPERIMENTS", help="The file of experiments, YAML or JSON.")
]


@contextmanager
def refusals() -> Iterator[None]:
    """A refused file of experiments is a wrong configuration: exit code 2, one line a problem."""
    from evaluation.abtest.errors import ExperimentConfigError

    try:
        yield
    except ExperimentConfigError as error:
        raise ConfigError(
            Problem(one.path, one.message, one.file or None, one.line) for one in error.problems
        ) from error


def pair(text: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ConfigError(f"expected NAME=VALUE, got {text!r}")
    return name, value


def seconds(text: str | None) -> float | None:
    """A time of the command line as seconds since 1970; UTC unless it names a zone."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"a time is written like 2026-05-01T08:00:00, got {text!r}") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
