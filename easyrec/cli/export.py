"""`easyrec export`: writes the bundle of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easyrec.cli.common import messages, output
from easyrec.startup import start_tensorflow


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH", help="`best`, `last` or a step; `export.checkpoint` of the run unless given."
        ),
    ] = None,
) -> None:
    """Write the bundle of a run: model, features, candidates, users, and rows that prove it predicts the same.

    Until the new bundle is complete, the one that is there stays.
    """
    start_tensorflow()
    from easyrec import workflow
    from easyrec.preparation import open_prepared
    from easyrec.run import open_run

    console = messages()

    def tell(text: str) -> None:
        console.print(f"{text} ...", markup=False)

    folder = open_run(run)
    prepared = open_prepared(folder, tell=tell)
    workflow.restore_best(prepared, checkpoint)
    tell("measuring on held-out data")
    measured = workflow.measure(prepared)
    tell("writing the bundle")
    manifest = workflow.export(prepared, measured.metrics)
    output().print(f"bundle  {folder.bundle}  version {manifest.version}", markup=False)
