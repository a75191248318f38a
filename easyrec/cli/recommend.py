"""`easyrec recommend`: the best items for one user."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from easyrec.cli.common import note, output
from easyrec.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


def recommend(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or of a bundle.")],
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="Key of the user.")] = None,
    n: Annotated[int, typer.Option("-n", "--number", min=1, help="How many items.")] = 10,
    retriever: Annotated[
        Path | None,
        typer.Option("--with", metavar="RUN", help="A run with a two-tower model that finds the candidates."),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Items the user took, oldest first, in place of the known history."
        ),
    ] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also items the user has interacted with.")
    ] = False,
) -> None:
    """Recommend items to one user; a user that is not known gets what is popular."""
    if user is None and history is None:
        raise ConfigError("say for whom: give --user ID, or --history with the items the user took")
    from easyrec.export.bundle import load

    frame = load(run).recommend(
        user,
        n,
        exclude_seen=not include_seen,
        history=None if history is None else [item.strip() for item in history.split(",") if item.strip()],
        retriever=None if retriever is None else load(retriever),
    )
    if frame.attrs["source"] == "popularity":
        note(f"{frame.attrs['reason']}; these are popular now")
    output().print(_table(frame))


def _table(frame: pd.DataFrame) -> Table:
    """Position first, then the item, what describes it, and the score."""
    key = str(frame.columns[0])
    names = [
        "position",
        key,
        *(name for name in frame.columns if name not in (key, "position", "score")),
        "score",
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        table.add_column("" if name == "position" else name, justify="right" if name == "score" else "left")
    for row in frame.to_dict("records"):
        table.add_row(*(_text(row[name]) for name in names))
    return table


def _text(value: object) -> str:
    if value is None or value != value or repr(value) == "<NA>":
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
