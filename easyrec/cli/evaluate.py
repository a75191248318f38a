"""`easyrec evaluate`: measures a run on data, or any table of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easyrec.cli.common import messages, note, output
from easyrec.errors import ConfigError
from easyrec.startup import start_tensorflow


def evaluate(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="Folder of a run.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="PATH", help="Other evaluation rows than the run's own."),
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option("--predictions", metavar="FILE", help="Judge this table instead of a run.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            help="Label column of --predictions; `label` unless given. May be repeated, with --score.",
        ),
    ] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(
            "--score",
            metavar="A[,B,...]",
            help="Score column of --predictions, or one for each class; `score` unless given.",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="TYPE",
            help="binary, regression or multiclass; found from the labels unless given.",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Classes in the order of their score columns, as labels name them."
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="User column of --predictions, for intervals and gauc.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="Weight column of --predictions.")] = None,
    session: Annotated[
        str | None, typer.Option(help="Session column of --predictions, for session_auc and lists.")
    ] = None,
    item: Annotated[
        str | None, typer.Option(help="Item column of --predictions, for item rates and duplicates.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", metavar="NAME", help="Metric of --predictions, e.g. ndcg@10. May be repeated."
        ),
    ] = None,
    slices: Annotated[
        list[str] | None,
        typer.Option(
            "--slice", metavar="COLUMN[:N]", help="Also by this column of --predictions, or its N quantiles."
        ),
    ] = None,
    duplicates: Annotated[
        str | None,
        typer.Option(help="Rows of the same user and item: keep (unless given), first, last or error."),
    ] = None,
    level: Annotated[
        float | None, typer.Option(help="Confidence level of --predictions; 0.95 unless given.")
    ] = None,
    resamples: Annotated[
        int | None,
        typer.Option(help="Bootstrap resamples of --predictions; 1000, or 200 of over a million rows."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FOLDER", help="Where the report goes; <RUN>/report unless given."),
    ] = None,
) -> None:
    """Measure a run on held-out data, or any table of predictions; writes JSON, Markdown and HTML."""
    if (run is None) == (predictions is None):
        raise ConfigError("give either the folder of a run, or --predictions FILE")
    if predictions is not None:
        from easyrec.cli.evaluate_table import TableRequest, judge_table

        judge_table(
            TableRequest(
                predictions,
                labels=label or ["label"],
                scores=score or ["score"],
                types=task or [],
                classes=classes,
                columns={"user": user, "session": session, "item": item, "weight": weight},
                metrics=metric,
                slices=slices or [],
                duplicates=duplicates or "keep",
                level=TableRequest.level if level is None else level,
                resamples=resamples,
                report=report,
            )
        )
        return
    given = {
        "--label": label,
        "--score": score,
        "--task": task,
        "--classes": classes,
        "--user": user,
        "--weight": weight,
        "--session": session,
        "--item": item,
        "--metric": metric,
        "--slice": slices,
        "--duplicates": duplicates,
        "--level": level,
        "--resamples": resamples,
    }
    if unused := [name for name, value in given.items() if value]:
        raise ConfigError(
            f"{', '.join(unused)}: for --predictions only; a run is measured as its configuration says"
        )
    start_tensorflow()
    from easyrec.workflow import evaluate_run

    console = messages()
    measured, page = evaluate_run(
        run or Path(),
        data=tuple(data) if data else None,
        report=report,
        tell=lambda text: console.print(f"{text} ...", markup=False),
    )
    for text in measured.notes:
        note(text)
    out = output()
    for part in (measured.rows, measured.ranking):
        if part is not None:
            out.print(str(part), markup=False)
            out.print()
    out.print(f"report  {page}", markup=False)
