"""`easyrec explain`: which features a run needs, and what they add to single predictions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from easyrec.cli.common import messages, note, output
from easyrec.startup import start_tensorflow


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    task: Annotated[str | None, typer.Option(help="The task; the first unless given.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="What importance is measured by; auc, rmse or accuracy unless given.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="PATH", help="Other evaluation rows than the run's own."),
    ] = None,
    rows: Annotated[int, typer.Option(help="Look at about so many rows.", min=1)] = 5000,
    examples: Annotated[int, typer.Option(help="Take so many predictions apart.", min=0)] = 3,
    repeats: Annotated[int, typer.Option(help="How often each feature is shuffled.", min=1)] = 3,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FOLDER", help="Where the report goes; <RUN>/explanation unless given."
        ),
    ] = None,
) -> None:
    """Show which features a run's metrics need, and what each adds to single predictions."""
    start_tensorflow()
    from easyrec.offline.explain import explain_run
    from easyrec.reports import EXPLANATION
    from easyrec.run import open_run
    from easyrec.versions import versions
    from evaluation import add_explanations, write_report

    console = messages()
    folder = open_run(run)
    found = explain_run(
        run,
        task=task,
        metric=metric,
        data=data,
        rows=rows,
        examples=examples,
        repeats=repeats,
        tell=lambda text: console.print(f"{text} ...", markup=False),
    )
    paths = write_report(
        report or run / EXPLANATION,
        title=f"{folder.config().name}: what predictions come from",
        importance=[found.importance] if found.importance else None,
        attributions=found.attributions,
        summary={"rows": found.rows},
        versions=versions(),
        command=_command(run, task, metric, data, rows, examples, repeats, report),
    )
    if report is None and data is None:  # it is about the rows that the run's own report is about
        added = add_explanations(
            folder.report,
            importance=[found.importance] if found.importance else (),
            attributions=found.attributions,
        )
        if added is None:
            note(f"`easyrec evaluate {run}` writes a report of the run with this explanation")
    out = output()
    for part in (found.importance, *found.attributions):
        if part is not None:
            out.print(str(part), markup=False)
            out.print()
    out.print(f"report  {paths.html}", markup=False)


def _command(
    run: Path,
    task: str | None,
    metric: str | None,
    data: list[str] | None,
    rows: int,
    examples: int,
    repeats: int,
    report: Path | None,
) -> str:
    """The command that makes the same explanation."""
    named = {"--task": task, "--metric": metric, "--report": report}
    parts = ["easyrec", "explain", str(run)]
    for name, value in named.items():
        parts += [name, str(value)] if value is not None else []
    for path in data or ():
        parts += ["--data", path]
    parts += ["--rows", str(rows), "--examples", str(examples), "--repeats", str(repeats)]
    return shlex.join(parts)
