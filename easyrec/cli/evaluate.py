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
    label: Annotated[str, typer.Option(help="Label column of --predictions.")] = "label",
    score: Annotated[
        str, typer.Option(metavar="A[,B,...]", help="Score column of --predictions, or one for each class.")
    ] = "score",
    user: Annotated[
        str | None, typer.Option(help="User column of --predictions, for intervals and gauc.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="Weight column of --predictions.")] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FOLDER", help="Where the report goes; <RUN>/report unless given."),
    ] = None,
) -> None:
    """Measure a run on held-out data, or any table of predictions; writes JSON, Markdown and HTML."""
    if (run is None) == (predictions is None):
        raise ConfigError("give either the folder of a run, or --predictions FILE")
    if predictions is not None:
        _judge_table(predictions, label, score, user, weight, report or Path("report"))
        return
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


def _judge_table(
    table: Path, label: str, score: str, user: str | None, weight: str | None, report: Path
) -> None:
    from evaluation import evaluate as judge
    from evaluation import infer_task, write_report

    scores = [name.strip() for name in score.split(",") if name.strip()]
    if not scores:
        raise ConfigError("--score names no column")
    result = judge(table, tasks={label: infer_task(table, label, scores)}, user=user, weight=weight)
    paths = write_report(
        report, title=table.name, evaluation=result, command=f"easyrec evaluate --predictions {table}"
    )
    out = output()
    out.print(str(result), markup=False)
    out.print()
    out.print(f"report  {paths.html}", markup=False)
