"""Offline evaluation of recommendations: metrics, honest intervals, baselines and reports. No TensorFlow.

    from evaluation import evaluate, evaluate_ranking, write_report

Names are loaded when they are first used, so that checking the name of a metric does not wait for pandas and
matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluation.baselines import BASELINES, Baseline, fit_baselines
    from evaluation.errors import DataError, EvaluationError, MetricError
    from evaluation.interactions import Interactions, ItemAttributes
    from evaluation.metrics.grouped import gauc, grouped_auc
    from evaluation.metrics.ranking import RankedLists, ndcg
    from evaluation.metrics.registry import METRICS, Metric, get_metric, parse_metric, register_metric
    from evaluation.predictions import TaskColumns, evaluate, infer_task
    from evaluation.protocol import rank_full_catalogue
    from evaluation.ranking import evaluate_ranking
    from evaluation.ranking_result import RankingResult
    from evaluation.report import Example, RecommendedItem, ReportPaths, write_report
    from evaluation.results import EvaluationResult, TaskResult
    from evaluation.uncertainty import Estimate, PairedDifference

__all__ = [
    "BASELINES",
    "METRICS",
    "Baseline",
    "DataError",
    "Estimate",
    "EvaluationError",
    "EvaluationResult",
    "Example",
    "Interactions",
    "ItemAttributes",
    "Metric",
    "MetricError",
    "PairedDifference",
    "RankedLists",
    "RankingResult",
    "RecommendedItem",
    "ReportPaths",
    "TaskColumns",
    "TaskResult",
    "evaluate",
    "evaluate_ranking",
    "fit_baselines",
    "gauc",
    "get_metric",
    "grouped_auc",
    "infer_task",
    "ndcg",
    "parse_metric",
    "rank_full_catalogue",
    "register_metric",
    "write_report",
]

_NAMES_OF = {
    "baselines": ("BASELINES", "Baseline", "fit_baselines"),
    "errors": ("DataError", "EvaluationError", "MetricError"),
    "interactions": ("Interactions", "ItemAttributes"),
    "metrics.grouped": ("gauc", "grouped_auc"),
    "metrics.ranking": ("RankedLists", "ndcg"),
    "metrics.registry": ("METRICS", "Metric", "get_metric", "parse_metric", "register_metric"),
    "predictions": ("TaskColumns", "evaluate", "infer_task"),
    "protocol": ("rank_full_catalogue",),
    "ranking": ("evaluate_ranking",),
    "ranking_result": ("RankingResult",),
    "report": ("Example", "RecommendedItem", "ReportPaths", "write_report"),
    "results": ("EvaluationResult", "TaskResult"),
    "uncertainty": ("Estimate", "PairedDifference"),
}
_HOME = {name: module for module, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from the module it lives in (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'evaluation' has no attribute {name!r}")
    value = getattr(import_module(f"evaluation.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion in a notebook."""
    return sorted(__all__)
