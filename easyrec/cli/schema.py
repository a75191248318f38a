"""`easyrec schema`: the JSON Schema of configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easyrec.cli.common import output
from easyrec.config.schema import schema_text
from easyrec.registry import load_plugins


def schema(
    to: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
    plugins: Annotated[
        list[str] | None,
        typer.Option("--plugin", metavar="MODULE", help="Import a module that registers more parts."),
    ] = None,
) -> None:
    """Print the JSON Schema of configurations.

    Editors with a YAML language server complete and check a file whose first line is
    "# yaml-language-server: $schema=FILE". Parts of installed plug-ins are included.
    """
    load_plugins(tuple(plugins or ()))
    text = schema_text()
    if to is None:
        output().print(text, end="", markup=False)
    else:
        to.write_text(text, encoding="utf-8")
