"""`easyrec train`: from a configuration to a trained, measured, exported model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easyrec.cli.common import (
    INTERRUPTED,
    ConfigArgument,
    OverridesOption,
    messages,
    note,
    output,
    step_teller,
)
from easyrec.config.loader import load_config
from easyrec.startup import start_tensorflow
from easyrec.training.cluster.roles import VARIABLE, parse_tf_config, trains_in_step

if TYPE_CHECKING:
    from easyrec.workflow import Run

RunOption = Annotated[
    Path | None,
    typer.Option("--run", metavar="FOLDER", help="Folder of the run; <output>/<name> unless given."),
]


def train(
    config: ConfigArgument,
    overrides: OverridesOption = None,
    run: RunOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is there already.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="KIND",
            help="Train with parameter servers on this machine, such as local:workers=2,ps=2.",
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print parameters, memory and bytes a step; train nothing.")
    ] = False,
) -> None:
    """Train a model, measure it on held-out data, and export its bundle.

    Ctrl-C ends training after the current step and leaves a checkpoint; the same command with --resume goes on.
    """
    loaded = load_config(config, overrides or ())  # a mistake is told before TensorFlow is imported
    described = None if cluster is not None else parse_tf_config(os.environ.get(VARIABLE))
    # When another process is lost, TensorFlow says so in pages; the error at the end says who it was.
    start_tensorflow(errors=not trains_in_step(described))
    from easyrec.cli.progress import TrainingProgress
    from easyrec.training.cluster.roles import EVALUATOR, PS, WORKER, Cluster
    from easyrec.training.cluster.server import serve
    from easyrec.training.strategy import choose
    from easyrec.workflow import train as train_pipeline

    console = messages()

    def plain(text: str) -> None:
        console.print(text, markup=False)

    tell = step_teller(console)
    choice = choose(loaded.training, cluster)
    if plan:
        from easyrec.fitting import plan as plan_training

        made = plan_training(config, overrides or (), run=run, cluster=cluster, tell=tell)
        output().print("\n".join([f"training {choice.why}", *made.lines()]), markup=False)
        return
    if (
        isinstance(choice.cluster, Cluster)
        and choice.cluster.task.job in (WORKER, PS)
        and choice.cluster.roles(PS)
    ):
        serve(choice.cluster, plain)
        return
    if isinstance(choice.cluster, Cluster) and choice.cluster.task.job == EVALUATOR:
        from easyrec.fitting import evaluate_beside
        from easyrec.run import RunFolder

        folder = RunFolder(run or Path(loaded.output) / loaded.name)
        evaluate_beside(folder, tell=plain, patience=loaded.training.cluster.start_timeout)
        return
    progress = TrainingProgress(console)
    try:
        trained = train_pipeline(
            config,
            overrides or (),
            run=run,
            resume=resume,
            overwrite=overwrite,
            cluster=cluster,
            callbacks=[progress],
            tell=tell,
        )
    finally:
        progress.close()
    if trained.result.reason == "interrupted":
        where = f"in {trained.folder.checkpoints}" if choice.chief else "where the chief writes"
        note(
            f"interrupted at step {trained.result.steps}; the checkpoint is {where}. "
            "Go on with the same command and --resume"
        )
        raise typer.Exit(INTERRUPTED)
    if not choice.chief:
        note(f"trained along for {trained.result.steps} steps; the chief measures and exports")
        return
    for text in trained.notes:
        note(text)
    on_servers = choice.strategy == "parameter_server"
    show_results(trained, "workers idle" if on_servers else "waiting for input")


def show_results(trained: Run, waited: str = "waiting for input") -> None:
    """Prints what training did, what the model reaches, and where everything lies.

    Args:
        trained: The run.
        waited: What the share of time is that training could do nothing in.
    """
    out, result = output(), trained.result
    out.print(
        f"{result.steps:,} steps, {result.examples:,} examples, {result.examples_per_second:,.0f} examples/s, "
        f"{waited} for {result.wait_share:.0%} of the time, {result.peak_memory_bytes / 2**20:,.0f} MiB at most"
    )
    for part in (trained.measured.rows, trained.measured.ranking):
        if part is not None:
            out.print()
            out.print(str(part), markup=False)
    folder = trained.folder
    out.print()
    for name, path in (
        ("report", folder.report / "report.html"),
        ("bundle", folder.bundle),
        ("log", folder.log),
    ):
        if path.exists():
            out.print(f"{name:<8}{path}", markup=False)
