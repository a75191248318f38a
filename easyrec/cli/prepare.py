"""`easyrec prepare`: encode the training data once, into shards."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from easyrec.cli.common import ConfigArgument, OverridesOption, messages, output
from easyrec.cli.train import RunOption
from easyrec.config.loader import load_config
from easyrec.startup import start_tensorflow


def prepare(
    config: ConfigArgument,
    overrides: OverridesOption = None,
    run: RunOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace shards that were prepared from something else.")
    ] = False,
) -> None:
    """Encode the data into shards that a cluster trains from.

    What an interrupted call has finished is kept; when the shards are there already, nothing is done.
    """
    load_config(config, overrides or ())
    start_tensorflow()
    from easyrec.preparation import prepare_shards

    console = messages()
    lock, rows = threading.Lock(), 0

    def progress(more: int) -> None:
        nonlocal rows
        with lock:
            rows += more
            console.print(f"{rows:,} rows", markup=False)

    made = prepare_shards(
        config,
        overrides or (),
        run=run,
        overwrite=overwrite,
        tell=lambda text: console.print(f"{text} ...", markup=False),
        progress=progress,
    )
    for shards in made:
        output().print(
            f"{shards.folder}: {shards.rows:,} rows in {len(shards.splits):,} splits of up to "
            f"{max(split.batches for split in shards.splits)} batches of {shards.batch_size:,}, "
            f"{shards.bytes / 2**20:,.1f} MiB",
            markup=False,
        )
