"""The parts of the HTML page by name, as the template places them."""

from typing import Any

from evaluation.attribution import Attribution
from evaluation.class_results import class_table
from evaluation.importance import ImportanceResult
from evaluation.leakage import LeakageReport
from evaluation.plotting import plots
from evaluation.plotting.theme import THEMED
from evaluation.ranking_result import RankingResult
from evaluation.render import metric_title, number
from evaluation.report import layout
from evaluation.report.content import EXPLANATIONS_END, EXPLANATIONS_START, Report
from evaluation.report.layout import Plot, PlotMaker, plain_table
from evaluation.results import EvaluationResult
from evaluation.slice_result import SliceResult


def page(report: Report) -> dict[str, Any]:
    """Everything the template places, by name."""
    draw = PlotMaker()
    return {
        "report": report,
        "verdicts": report.verdicts(),
        "leaks": report.leakage is not None and not report.leakage.is_clean,
        "facts": layout.facts(report.summary),
        "ranking": _ranking(report.ranking, report.model, draw) if report.ranking else None,
        "evaluation": _evaluation(report.evaluation, draw) if report.evaluation else None,
        "slices": [_slices(one, draw) for one in report.slices],
        **explanations(report),
        "explanations_start": EXPLANATIONS_START,
        "explanations_end": EXPLANATIONS_END,
        "training": layout.training_plots(report.training_log, draw),
        "data": layout.data_table(report.data) if report.data else None,
        "leakage": _leakage(report.leakage) if report.leakage else None,
        "coverage": layout.coverage_table(report.coverage) if report.coverage else None,
        "examples": report.examples,
        "versions": [(str(name), str(version)) for name, version in report.versions.items()],
    }


def explanations(report: Report) -> dict[str, Any]:
    """What predictions come from, with names of its own for its drawings: it may be added to a page later."""
    draw = PlotMaker("explained")
    return {
        "importance": [_importance(one, draw) for one in report.importance],
        "attributions": [_attribution(one, draw) for one in report.attributions],
    }


def _ranking(ranking: RankingResult, model: str | None, draw: PlotMaker) -> dict[str, Any]:
    return {
        "facts": ranking.facts(),
        "method": ranking.method(),
        "comparison": layout.comparison_table(ranking, model),
        "overview": layout.overview_plots(ranking, model, draw),
        "further": layout.further_plots(ranking, model, draw),
        "primary_k": int(ranking.primary.partition("@")[2]),
        "by_k": layout.cutoff_tables(ranking, model),
        "verdicts": [
            sentence
            for name in ranking.by_primary()
            if name in ranking.differences
            for sentence in ranking.verdicts(name)
        ],
        "beyond": layout.beyond_table(ranking, model),
        "popularity": layout.popularity_plots(ranking, model, draw),
        "apart": plain_table(ranking.apart_table()) if ranking.apart else None,
        "apart_words": [f"{name}: {part.meaning}" for name, part in ranking.apart.items()],
    }


def _evaluation(evaluation: EvaluationResult, draw: PlotMaker) -> dict[str, Any]:
    return {
        "method": evaluation.method(),
        "tasks": [
            {
                "name": task.name,
                "type": task.type,
                "facts": task.facts(),
                "table": layout.task_table(task),
                "plots": layout.task_plots(task, draw),
                "remarks": task.remarks(),
                "baselines": plain_table(task.baseline_table(titles=True)) if task.baselines else None,
                "classes": plain_table(class_table(task.classes)) if task.classes else None,
                "decisions": plain_table(task.decision_table()) if task.decisions else None,
            }
            for task in evaluation.tasks.values()
        ],
    }


def _slices(one: SliceResult, draw: PlotMaker) -> dict[str, Any]:
    title = metric_title(one.metric)
    figure = plots.slice_plot(one, THEMED)
    return {
        "title": f"{title} of {one.task}",
        "table": plain_table(one.table()),
        "plots": [draw(f"{title} by slice", figure, "Dashed: all rows.")],
        "remarks": one.remarks(),
        "method": one.method(),
    }


def _importance(one: ImportanceResult, draw: PlotMaker) -> dict[str, Any]:
    return {
        "title": one.task,
        "table": plain_table(one.table()),
        "plots": [draw(f"Importance for {one.task}", plots.importance_plot(one, THEMED))],
        "method": one.method(),
    }


def _attribution(one: Attribution, draw: PlotMaker) -> Plot:
    caption = (
        f"{number(one.prediction, 3, signed=True)} {one.unit}; "
        f"the average row has {number(one.baseline, 3, signed=True)}."
    )
    return draw(one.row, plots.attribution_plot(one, THEMED), caption)


def _leakage(report: LeakageReport) -> dict[str, Any]:
    return {
        "table": plain_table(report.table()) if report.findings else None,
        "checks": "; ".join(report.checks),
    }
