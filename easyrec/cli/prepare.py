"""`easyrec prepare`: encode the training data once, into shards."""

from __future__ import annotations

from typing import Annotated

import typer

from easyrec.cli.common import ConfigArgument, OverridesOption, counted, messages, output, step_teller
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

    made = prepare_shards(
        config,
        overrides or (),
        run=run,
        overwrite=overwrite,
        tell=step_teller(messages()),
    )
    for shards in made:
        output().print(
            f"{shards.folder}: {shards.rows:,} rows in {counted(len(shards.splits), 'split')} of up to "
            f"{counted(max(split.batches for split in shards.splits), 'batch', 'batches')} of {shards.batch_size:,}, "
            f"{shards.bytes / 2**20:,.1f} MiB",
            markup=False,
        )
