"""The commands of `easyrec ab` that read logs: analyse, report, plan, A/A, interleave, look after exposures."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from easyrec.cli.ab_common import ExperimentsArgument, pair, refusals, seconds
from easyrec.cli.common import messages, note, output

ExposuresOption = Annotated[
    str, typer.Option("--exposures", metavar="PATH", help="The exposure log: its folder, or a Parquet file.")
]
EventsOption = Annotated[
    str | None,
    typer.Option("--events", metavar="PATH", help="What users did: a file, or a folder of files."),
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="End of the data; the last exposure or event unless given.")
]
ReportOption = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Also write HTML, Markdown and JSON here.")
]
MemoryOption = Annotated[
    str, typer.Option(metavar="SIZE", help="What the analysis may take; the rest goes to disk.")
]
EngineOption = Annotated[
    str,
    typer.Option(
        envvar="EASYREC_AB_ENGINE", help="duckdb: this process; spark: as Spark's own configuration says."
    ),
]
RenameOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=COLUMN", help="How a column of the events is really called; may be repeated."),
]


def analyze(
    experiments: ExperimentsArgument,
    experiment: Annotated[str, typer.Argument(metavar="NAME", help="Which experiment.")],
    exposures: ExposuresOption,
    events: EventsOption = None,
    until: UntilOption = None,
    phase: Annotated[int | None, typer.Option(help="Another phase than the configured one.")] = None,
    rename: RenameOption = None,
    report: ReportOption = None,
    memory: MemoryOption = "4GB",
    engine: EngineOption = "duckdb",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what an experiment showed: checks of trust first, then effects and a verdict."""
    with refusals():
        from evaluation.abtest.loading import load_experiments

        config = load_experiments(experiments)
    from evaluation.abtest.report.write import to_text, write_experiment_report

    command = shlex.join(["easyrec", "ab", "analyze", str(experiments), experiment, "--exposures", exposures])
    command += shlex.join(["", "--events", events]) if events else ""
    with _analysis(exposures, events, rename, memory, engine) as (analyzed, _):
        result = analyzed(config, experiment, until=seconds(until), phase=phase, command=command)
    out = output()
    if as_json:
        out.print(json.dumps(result.to_dict(), ensure_ascii=False, indent=2), markup=False)
    else:
        out.print(to_text(result), markup=False)
    if report is not None:
        paths = write_experiment_report(report, result)
        messages().print(f"report  {paths.html}", markup=False)


def report(
    experiments: ExperimentsArgument,
    exposures: ExposuresOption,
    events: EventsOption = None,
    until: UntilOption = None,
    rename: RenameOption = None,
    to: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="One folder an experiment is made here.")
    ] = Path("experiments"),
    memory: MemoryOption = "4GB",
    engine: EngineOption = "duckdb",
) -> None:
    """Write the reports of all experiments that the log holds."""
    with refusals():
        from evaluation.abtest.loading import load_experiments

        config = load_experiments(experiments)
    from evaluation.abtest.report.write import write_experiment_report

    out = output()
    with _analysis(exposures, events, rename, memory, engine) as (analyzed, present):
        for name in config.experiments:
            if name not in present or config.experiments[name].interleave:
                why = (
                    "mixes lists; see `easyrec ab interleave`"
                    if name in present
                    else "the log holds none of it"
                )
                note(f"{name}: {why}")
                continue
            result = analyzed(config, name, until=seconds(until))
            paths = write_experiment_report(to / name, result)
            out.print(f"{name}: {result.verdict.word}. {result.verdict.sentence}  {paths.html}", markup=False)


PastOption = Annotated[
    str, typer.Option("--events", metavar="PATH", help="Past events: a file, or a folder.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="First day of the past period; by default there is history before it."),
]


def plan(
    experiments: ExperimentsArgument,
    experiment: Annotated[str, typer.Argument(metavar="NAME", help="Which experiment.")],
    events: PastOption,
    mde: Annotated[
        float | None,
        typer.Option(help="Relative effect to see, such as 0.02; the configured one unless given."),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    rename: RenameOption = None,
    memory: MemoryOption = "4GB",
    engine: EngineOption = "duckdb",
) -> None:
    """Plan size and duration from past events: what can be seen after one, two, three and four weeks."""
    with refusals():
        from evaluation.abtest.loading import load_experiments

        config = load_experiments(experiments)
    from evaluation.abtest.analysis.history import plan as planned
    from evaluation.abtest.analysis.planning_text import plan_text

    with _past(config, experiment, events, rename, (engine, memory), since, until) as history:
        buckets = sum(end - start for start, end in config.segments_of(experiment))
        one = config.experiments[experiment]
        result = planned(history, one, buckets / 10_000, mde=mde)
    output().print(plan_text(result, one), markup=False)


def aa(
    experiments: ExperimentsArgument,
    experiment: Annotated[str, typer.Argument(metavar="NAME", help="Whose metrics and weights.")],
    events: PastOption,
    runs: Annotated[int, typer.Option(min=1, help="Number of splits.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Other splits.")] = 0,
    since: SinceOption = None,
    until: UntilOption = None,
    rename: RenameOption = None,
    memory: MemoryOption = "4GB",
    engine: EngineOption = "duckdb",
) -> None:
    """Split past users again and again without any difference: do the tests keep their word on your data?"""
    with refusals():
        from evaluation.abtest.loading import load_experiments

        config = load_experiments(experiments)
    from evaluation.abtest.analysis.null_splits import simulate_null
    from evaluation.abtest.analysis.planning_text import null_text

    with _past(config, experiment, events, rename, (engine, memory), since, until) as history:
        result = simulate_null(history, config.experiments[experiment], runs=runs, seed=seed)
    output().print(null_text(result), markup=False)


@contextmanager
def _past(
    config: Any,
    experiment: str,
    events: str,
    rename: list[str] | None,
    computed: tuple[str, str],
    since: str | None,
    until: str | None,
) -> Iterator[Any]:
    """Past events as an experiment without a difference."""
    from evaluation.abtest.analysis.engines import connected
    from evaluation.abtest.analysis.history import history_of
    from evaluation.abtest.analysis.run import experiment_of, questions_of
    from evaluation.abtest.analysis.tables import open_events

    one = experiment_of(config, experiment)
    with connected(*computed) as connection:
        table = open_events(connection, events, dict(map(pair, rename or ())))
        yield history_of(
            one,
            questions_of(config, one),
            table,
            config.unit_of(one.layer),
            since=seconds(since),
            until=seconds(until),
        )


def holdout(
    experiments: ExperimentsArgument,
    events: Annotated[
        str, typer.Option("--events", metavar="PATH", help="What users did: a file, or a folder of files.")
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What to compare, ctr by default; may be repeated."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start of the period; the first event unless given.")
    ] = None,
    until: UntilOption = None,
    days: Annotated[
        float | None,
        typer.Option(
            min=1, help="Planned days: look before they are over, at intervals that pay for every day's look."
        ),
    ] = None,
    rename: RenameOption = None,
    report: ReportOption = None,
    memory: MemoryOption = "4GB",
    engine: EngineOption = "duckdb",
) -> None:
    """Say what all launches together did: the users of the holdout against all others."""
    with refusals():
        from evaluation.abtest.loading import load_experiments

        config = load_experiments(experiments)
    from evaluation.abtest.analysis.engines import connected
    from evaluation.abtest.analysis.holdout import analyze_holdout
    from evaluation.abtest.analysis.tables import open_events
    from evaluation.abtest.report.write import to_text, write_experiment_report

    command = shlex.join(["easyrec", "ab", "holdout", str(experiments), "--events", events])
    command += "".join(shlex.join(["", "--metric", name]) for name in metric or ())
    command += "".join(f" {name} {value}" for name, value in (("--since", since), ("--days", days)) if value)
    with connected(engine, memory) as connection:
        table = open_events(connection, events, dict(map(pair, rename or ())))
        result = analyze_holdout(
            config,
            table,
            metric or ["ctr"],
            since=seconds(since),
            until=seconds(until),
            planned_days=days,
            command=command,
        )
    output().print(to_text(result), markup=False)
    if report is not None:
        messages().print(f"report  {write_experiment_report(report, result).html}", markup=False)


def interleave(
    experiments: ExperimentsArgument,
    experiment: Annotated[str, typer.Argument(metavar="NAME", help="Which experiment.")],
    exposures: ExposuresOption,
    events: PastOption,
    event: Annotated[str, typer.Option(help="Type of event that is credited.")] = "click",
    rename: RenameOption = None,
    memory: MemoryOption = "4GB",
    engine: EngineOption = "duckdb",
) -> None:
    """Say which of two rankers users prefer, from lists in which both were mixed."""
    with refusals():
        from evaluation.abtest.loading import load_experiments

        config = load_experiments(experiments)
    from evaluation.abtest.analysis.engines import connected
    from evaluation.abtest.analysis.interleaved import analyze_interleaved
    from evaluation.abtest.analysis.run import Logs
    from evaluation.abtest.analysis.tables import open_events, open_exposures

    with connected(engine, memory) as connection:
        logs = Logs(
            open_exposures(connection, exposures),
            open_events(connection, events, dict(map(pair, rename or ()))),
        )
        result = analyze_interleaved(config, experiment, logs, event=event)
    output().print(result.to_text(), markup=False)


@contextmanager
def _analysis(
    exposures: str, events: str | None, rename: list[str] | None, memory: str, engine: str
) -> Iterator[tuple[Callable[..., Any], set[str]]]:
    """The function that analyses one experiment over these logs, and the experiments that they hold."""
    from evaluation.abtest.analysis.engines import connected
    from evaluation.abtest.analysis.run import Logs
    from evaluation.abtest.analysis.run import analyze as run
    from evaluation.abtest.analysis.tables import lost_rows, open_events, open_exposures
    from evaluation.abtest.pseudonyms import Pseudonyms

    console = messages()

    def tell(text: str) -> None:
        console.print(f"{text} ...", markup=False)

    with connected(engine, memory) as connection:
        rows = open_exposures(connection, exposures)
        done = open_events(connection, events, dict(map(pair, rename or ()))) if events else None
        names = {row["experiment"] for row in rows.select("experiment").distinct().to_pyarrow().to_pylist()}
        lost = lost_rows(rows)
        yield (
            partial(run, logs=Logs(rows, done, Pseudonyms.from_environment()), dropped=lost, tell=tell),
            names,
        )


def exposures(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Folder of an exposure log.")],
    compact: Annotated[
        bool, typer.Option("--compact", help="Turn sealed segments into Parquet, in place.")
    ] = False,
    growthbook: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write .parquet or .csv in the shape GrowthBook reads."),
    ] = None,
    experiment: Annotated[str | None, typer.Option(help="Only this one.")] = None,
) -> None:
    """Look after an exposure log: compact it, export it, show what it lost."""
    from evaluation.abtest import exposure_files

    out = output()
    if compact:
        out.print(f"{len(exposure_files.compact(log))} segments are Parquet now", markup=False)
    if growthbook is not None:
        rows = exposure_files.export_growthbook(log, growthbook, experiment)
        out.print(f"{rows} rows written to {growthbook}", markup=False)
    if not compact and growthbook is None:
        files = exposure_files.log_files(log)
        out.print(f"{len(files)} files", markup=False)
        for (name, variant), lost in exposure_files.dropped_rows(log).items():
            out.print(f"lost: {lost} rows of {name} / {variant}", markup=False)
