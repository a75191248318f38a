"""Offline evaluation of recommendations: metrics, honest intervals, baselines and reports. No TensorFlow.

from evaluation import evaluate, evaluate_ranking, write_report
"""

from evaluation.errors import DataError, EvaluationError, MetricError
from evaluation.evaluate import TaskColumns, evaluate
from evaluation.metrics.grouped import gauc, grouped_auc
from evaluation.metrics.ranking import RankedLists, ndcg
from evaluation.metrics.registry import METRICS, Metric, get_metric, parse_metric, register_metric
from evaluation.results import EvaluationResult, TaskResult
from evaluation.uncertainty import Estimate, PairedDifference

__all__ = [
    "METRICS",
    "DataError",
    "Estimate",
    "EvaluationError",
    "EvaluationResult",
    "Metric",
    "MetricError",
    "PairedDifference",
    "RankedLists",
    "TaskColumns",
    "TaskResult",
    "evaluate",
    "gauc",
    "get_metric",
    "grouped_auc",
    "ndcg",
    "parse_metric",
    "register_metric",
]
