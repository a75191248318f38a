"""`easyrec evaluate`: measures a run on data, or any table of predictions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from easyrec.cli.common import messages, note, output
from easyrec.errors import ConfigError
from easyrec.startup import start_tensorflow

_DUPLICATES = ("keep", "first", "last", "error")


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
        str, typer.Option(help="Rows of the same user and item: keep, first, last or error.")
    ] = "keep",
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FOLDER", help="Where the report goes; <RUN>/report unless given."),
    ] = None,
) -> None:
    """Measure a run on held-out data, or any table of predictions; writes JSON, Markdown and HTML."""
    if (run is None) == (predictions is None):
        raise ConfigError("give either the folder of a run, or --predictions FILE")
    if predictions is not None:
        columns = {"user": user, "session": session, "item": item, "weight": weight}
        _judge_table(
            predictions, label, score, columns, metric, slices or [], duplicates, report or Path("report")
        )
        return
    given = {"--slice": slices, "--metric": metric, "--session": session, "--item": item}
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


def _judge_table(
    table: Path,
    label: str,
    score: str,
    columns: dict[str, str | None],
    metrics: list[str] | None,
    slices: list[str],
    duplicates: str,
    report: Path,
) -> None:
    from evaluation import evaluate as judge
    from evaluation import evaluate_slices, infer_task, write_report

    scores = [name.strip() for name in score.split(",") if name.strip()]
    if not scores:
        raise ConfigError("--score names no column")
    if duplicates not in _DUPLICATES:
        raise ConfigError(f"--duplicates must be one of {', '.join(_DUPLICATES)}, got {duplicates!r}")
    tasks = {label: infer_task(table, label, scores)}
    result = judge(table, tasks=tasks, metrics=metrics, duplicates=duplicates, **columns)  # type: ignore[arg-type]
    units = {name: columns[name] for name in ("user", "session", "weight")}
    cut = [evaluate_slices(table, slices, tasks=tasks, **units)] if slices else []  # type: ignore[arg-type]
    task = result[label]
    paths = write_report(
        report,
        title=table.name,
        evaluation=result,
        slices=cut,
        data={
            "predictions": {
                "rows": task.n_rows,
                f"{result.unit}s": result.n_units,
                "mean label": task.label_mean,
            }
        },
        command=_command(table, label, score, columns, metrics, slices, duplicates),
    )
    out = output()
    out.print(str(result), markup=False)
    out.print()
    for one in cut:
        out.print(str(one), markup=False)
        out.print()
    out.print(f"report  {paths.html}", markup=False)


def _command(
    table: Path,
    label: str,
    score: str,
    columns: dict[str, str | None],
    metrics: list[str] | None,
    slices: list[str],
    duplicates: str,
) -> str:
    """The command that makes the same report."""
    parts = ["easyrec", "evaluate", "--predictions", str(table), "--label", label, "--score", score]
    for name, column in columns.items():
        parts += [f"--{name}", column] if column is not None else []
    for name in metrics or ():
        parts += ["--metric", name]
    for name in slices:
        parts += ["--slice", name]
    parts += ["--duplicates", duplicates] if duplicates != "keep" else []
    return shlex.join(parts)
