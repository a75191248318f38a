"""`easyrec compare`: two runs on the same rows, with gates for continuous integration, or many side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from easyrec.cli.common import messages, output
from easyrec.errors import ConfigError
from easyrec.startup import start_tensorflow

_TWO = 2


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of runs: the reference and the run to judge, or more for a leaderboard.",
        ),
    ],
    gate: Annotated[
        list[str] | None,
        typer.Option(
            "--gate",
            metavar="METRIC:CHANGE",
            help="Fail when the metric is worse than this change, e.g. liked/auc:-0.001. May be repeated.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Gates ask that the whole interval passes, not only the value.")
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="PATH", help="Evaluation rows of both; the runs' own unless given."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", metavar="METRIC", help="What a leaderboard is ordered by.")
    ] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples.", min=40)] = 1000,
    save: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Also write the result there as JSON.")
    ] = None,
) -> None:
    """Compare two runs on the same rows, or put many side by side; exit code 1 if a gate fails, 2 if it is wrong."""
    if len(runs) > _TWO or (len(runs) == _TWO and metric is not None):
        if gate or data:
            raise ConfigError(
                "--gate and --data compare two runs; more than two are put side by side from their reports"
            )
        _side_by_side(runs, metric, save)
        return
    if len(runs) < _TWO:
        raise ConfigError("give two runs to compare, or more to put side by side")
    from evaluation import EvaluationError, judge_gates, parse_gate, parse_metric

    try:
        gates = [parse_gate(text, is_strict=strict) for text in gate or ()]
        for wanted in gates:  # a wrong name is found before the runs are measured
            parse_metric(wanted.metric.rpartition("/")[2])
    except EvaluationError as error:  # exit code 1 says that a gate failed, and no pipeline should think so
        raise ConfigError(f"--gate: {error}") from error
    start_tensorflow()
    from easyrec.offline.comparison import compare_runs

    console = messages()
    comparison = compare_runs(
        *runs,
        data=data or None,
        resamples=resamples,
        tell=lambda text: console.print(f"{text} ...", markup=False),
    )
    try:
        results = judge_gates(comparison, gates)
    except EvaluationError as error:
        raise ConfigError(f"--gate: {error}") from error
    out = output()
    out.print(str(comparison), markup=False)
    if save is not None:
        verdicts = [
            {"metric": one.gate.metric, "change": one.gate.change, "passed": one.passed, "reason": one.reason}
            for one in results
        ]
        _write(save, {**comparison.to_dict(), "gates": verdicts})
    for one in results:
        out.print(f"{'passed' if one.passed else 'FAILED'}  {one.reason}", markup=False)
    if not all(one.passed for one in results):
        raise typer.Exit(1)


def _side_by_side(runs: list[Path], metric: str | None, save: Path | None) -> None:
    from easyrec.run import open_run
    from evaluation import leaderboard

    names = [run.name for run in runs]
    unique = len(set(names)) == len(names)
    reports = {run.name if unique else str(run): open_run(run).report for run in runs}
    board = leaderboard(reports, metric)
    output().print(str(board), markup=False)
    if save is not None:
        _write(save, board.to_dict())


def _write(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )
