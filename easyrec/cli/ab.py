"""`easyrec ab`: experiments, from their configuration to a verdict."""

from __future__ import annotations

import typer

from easyrec.cli.ab_config import allocate, assign, validate
from easyrec.cli.ab_logs import aa, analyze, exposures, holdout, interleave, plan, report

ab = typer.Typer(
    name="ab",
    help="A/B experiments: check them, plan them, and say which variant won.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _command in (validate, plan, allocate, assign, analyze, report, holdout, interleave, aa, exposures):
    ab.command()(_command)
