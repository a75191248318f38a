"""Checks across the features of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from easyrec.errors import ConfigError, Problem
from easyrec.features.base import Transform
from easyrec.features.inputs import InputSpec
from easyrec.features.outputs import IdsOutput


def join_inputs(transforms: Mapping[str, Transform[Any]]) -> dict[str, InputSpec]:
    """The inputs of all features by name; features that read the same column share one.

    Raises:
        ConfigError: Two features read one column in ways that do not go together.
    """
    inputs: dict[str, InputSpec] = {}
    for transform in transforms.values():
        for spec in transform.inputs():
            known = inputs.setdefault(spec.name, spec)
            if (known.kind, known.list, known.part) != (spec.kind, spec.list, spec.part):
                raise ConfigError(
                    [
                        Problem(
                            f"features.{spec.feature}",
                            f"reads the column {spec.column!r} as {spec.kind}, but the feature {known.feature!r} "
                            f"reads it as {known.kind}. Cast it under `columns:` of its file, so that both can use it: "
                            f"`{{{spec.column}: int64}}`",
                        )
                    ]
                )
    return inputs


def check_tables(outputs: Iterable[IdsOutput]) -> None:
    """Checks that features that share a table fit together.

    Raises:
        ConfigError: Their rows, widths or initializers differ.
    """
    first: dict[str, IdsOutput] = {}
    for output in outputs:
        known = first.setdefault(output.table, output)
        for what in ("rows", "dim", "initializer"):
            ours, theirs = getattr(output, what), getattr(known, what)
            if ours != theirs:
                raise ConfigError(
                    [
                        Problem(
                            f"features.{output.feature}",
                            f"shares the table {output.table!r} with {known.feature!r}, but their {what} differ: "
                            f"{ours} and {theirs}",
                        )
                    ]
                )
