"""`easyrec predict`: predictions for the rows of files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from easyrec.cli.common import messages, note, output

SECONDS_BETWEEN_LINES = 10.0
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or of a bundle.")]


def predict(
    run: RunArgument,
    data: Annotated[
        list[str], typer.Option("--data", metavar="PATH", help="File, glob, folder or URL; may be repeated.")
    ],
    to: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", help="A .parquet, .csv or .tsv file, or .csv.gz, .tsv.gz."),
    ],
    keep: Annotated[
        str | None,
        typer.Option(metavar="A,B=C", help="Columns to copy too, B under the name C; the keys unless given."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows that are computed at once.")] = 8192,
    on_error: Annotated[
        Literal["fail", "skip"], typer.Option(help="What happens with rows and files that cannot be read.")
    ] = "fail",
) -> None:
    """Predict the rows of files with the model of a run, in bounded memory.

    Columns of the item or user table that the data lack are taken from the run's bundle, if the data have the key.
    """
    from easyrec.export.bundle import load
    from easyrec.export.files import predict_files

    bundle = load(run)
    with _counted_rows(messages()) as progress:
        report = predict_files(
            bundle,
            data,
            to,
            keep=None if keep is None else _columns(keep),
            batch_size=batch_size,
            on_error=on_error,
            progress=progress,
        )
    if report.skipped_rows or report.skipped_files:
        note(
            f"left out {report.skipped_rows:,} rows and {report.skipped_files:,} files that could not be read"
        )
        for example in report.examples:
            note(example)
    output().print(f"{report.rows:,} rows  {report.output}", markup=False)


@contextmanager
def _counted_rows(console: Console) -> Iterator[Callable[[int], None]]:
    """Shows how many rows are done: in place on a terminal, else a line every ten seconds."""
    if console.is_terminal:
        with console.status("predicting") as status:
            yield lambda rows: status.update(f"{rows:,} rows")
        return
    last = time.monotonic()

    def tell(rows: int) -> None:
        nonlocal last
        if time.monotonic() - last > SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            console.print(f"{rows:,} rows ...", markup=False)

    yield tell


def _columns(keep: str) -> dict[str, str]:
    """`a,b=c` as {"a": "a", "b": "c"}."""
    columns = {}
    for part in filter(None, (part.strip() for part in keep.split(","))):
        old, sign, new = part.partition("=")
        columns[old.strip()] = new.strip() if sign else old.strip()
    return columns
