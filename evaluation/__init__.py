"""Offline evaluation of recommendations: metrics, honest intervals, baselines and reports. No TensorFlow.

from evaluation import evaluate, evaluate_ranking, write_report
"""

from evaluation.baselines import BASELINES, Baseline, fit_baselines
from evaluation.errors import DataError, EvaluationError, MetricError
from evaluation.evaluate import TaskColumns, evaluate
from evaluation.interactions import Interactions, ItemAttributes
from evaluation.metrics.grouped import gauc, grouped_auc
from evaluation.metrics.ranking import RankedLists, ndcg
from evaluation.metrics.registry import METRICS, Metric, get_metric, parse_metric, register_metric
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
    "ndcg",
    "parse_metric",
    "rank_full_catalogue",
    "register_metric",
    "write_report",
]
