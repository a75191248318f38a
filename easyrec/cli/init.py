"""`easyrec init`: look at the data, propose a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easyrec.cli.common import note, output
from easyrec.errors import ConfigError


def init(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="The interactions: a file, glob, folder or URL.")
    ],
    target: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the configuration here; else it is printed."
        ),
    ] = None,
    items: Annotated[
        str | None, typer.Option(metavar="FILE", help="A table with one row an item, joined on its key.")
    ] = None,
    users: Annotated[
        str | None, typer.Option(metavar="FILE", help="A table with one row a user, joined on its key.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="EXPRESSION", help="What to predict: a column, or a condition such as 'rating >= 4'."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
) -> None:
    """Look at the data, propose a configuration.

    Keys, labels, numbers, ids, tags with their separator, lists and timestamps are recognised from names and from a
    sample of rows; each line of the configuration says why it is there. It trains as it is.
    """
    from easyrec.data.inference.profile import profile
    from easyrec.data.inference.proposal import check, propose
    from easyrec.data.inference.roles import infer

    if target is not None and target.exists() and not force:
        raise ConfigError(f"{target} exists already; choose another name, or replace it with --force")
    table = profile(data)
    item_table = None if items is None else profile(items)
    user_table = None if users is None else profile(users)
    found = infer(table, item_table, user_table, label)
    name = target.stem if target is not None else "pipeline"
    text = propose(found, table, item_table, user_table, name)
    check(text)
    if target is None:
        output().print(text, end="", markup=False)
        return
    target.write_text(text, encoding="utf-8")
    note(f"wrote {target}: {len(found.features)} features. Next: easyrec train {target}")
