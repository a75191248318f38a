"""`easyrec ab validate`, `assign` and `allocate`: the file of experiments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from easyrec.cli.ab_common import ExperimentsArgument, pair, refusals, seconds
from easyrec.cli.common import note, output


def validate(
    experiments: ExperimentsArgument,
    previous: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The live file: refuse what would move users without a new phase."),
    ] = None,
) -> None:
    """Check a file of experiments and report every problem at once."""
    with refusals():
        from evaluation.abtest.loading import Surroundings, load_experiments

        before = load_experiments(previous) if previous else None
        config = load_experiments(experiments, Surroundings(previous=before))
    out = output()
    out.print(f"valid: {len(config.layers)} layers, configuration {config.hash}", markup=False)
    for name, one in config.experiments.items():
        buckets = sum(end - start for start, end in config.segments_of(name))
        arms = ", ".join(f"{key} {variant.weight}" for key, variant in one.variants.items())
        out.print(
            f"  {name}: {one.status}, phase {one.phase}, layer {one.layer}, {buckets / 100:g}% of traffic; {arms}",
            markup=False,
        )


def assign(
    experiments: ExperimentsArgument,
    unit: Annotated[
        list[str], typer.Option("--unit", metavar="[TYPE=]ID", help="An id, such as 42 or session_id=a1.")
    ],
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=VALUE", help="For conditions; the value in YAML."),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Decide as of this time, now unless given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which variant a user gets in every layer, and why."""
    with refusals():
        from evaluation.abtest.compilation import compile_assigner
        from evaluation.abtest.loading import load_experiments
        from evaluation.abtest.yaml_source import parse_source

        config = load_experiments(experiments)
        units = dict(pair(one) if "=" in one else (config.unit, one) for one in unit)
        attributes = {name: parse_source(value).value for name, value in map(pair, attribute or ())}
    decision = compile_assigner(config).assign(units, attributes, seconds(at))
    out = output()
    if as_json:
        rows = [one._asdict() for one in decision.assignments]
        shown = {"holdout": decision.holdout, "parameters": decision.parameters, "assignments": rows}
        out.print(json.dumps(shown, ensure_ascii=False, indent=2, default=str), markup=False)
        return
    for one in decision.assignments:
        what = f"{one.experiment} / {one.variant}" if one.variant else "no variant"
        where = f", bucket {one.bucket}" if one.bucket >= 0 else ""
        out.print(f"{one.layer}: {what} ({one.reason}{where})", markup=False)
    changed = ", ".join(f"{name}={value}" for name, value in decision.parameters.items())
    out.print(f"parameters: {changed or 'unchanged'}", markup=False)


def allocate(
    experiments: ExperimentsArgument,
    write: Annotated[bool, typer.Option("--write", help="Change the file; without it, only show.")] = False,
) -> None:
    """Turn percentages into fixed buckets, appending to those an experiment has."""
    with refusals():
        from evaluation.abtest.allocation import allocate as allocated
        from evaluation.abtest.allocation import write_allocation

        text, changes = allocated(experiments)
        if write and changes:
            write_allocation(experiments, text)
    out = output()
    for one in changes:
        out.print(f"{one.experiment}: {one.before} -> {one.after}", markup=False)
    if not changes:
        out.print("nothing to do: no experiment asks for a percentage", markup=False)
    elif not write:
        note("nothing was written; add --write")
