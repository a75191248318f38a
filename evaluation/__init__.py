"""Offline evaluation of recommendations: metrics, honest intervals, baselines and reports. No TensorFlow.

    from evaluation import compare, evaluate, evaluate_ranking, gauc, ndcg, write_report

Names are loaded when they are first used, so that checking the name of a metric does not wait for pandas and
matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluation.attribution import Attribution
    from evaluation.baselines import BASELINES, Baseline, fit_baselines
    from evaluation.candidates import Candidates
    from evaluation.comparison import compare, compared_rankings
    from evaluation.comparison_result import Compared, Comparison
    from evaluation.errors import DataError, EvaluationError, MetricError
    from evaluation.facts import catalogue_facts
    from evaluation.gates import Gate, GateResult, judge_gates, parse_gate
    from evaluation.importance import Importance, ImportanceResult, permutation_importance
    from evaluation.interactions import Interactions, ItemAttributes
    from evaluation.leakage import Finding, LeakageReport, check_leakage
    from evaluation.metrics.concordance import xauc
    from evaluation.metrics.decisions import accuracy, f1, precision, recall
    from evaluation.metrics.given_lists import ranked_rows
    from evaluation.metrics.grouped import gauc, grouped_auc, grouped_log_loss
    from evaluation.metrics.pointwise import auc, brier, ece, log_loss, normalized_entropy, pr_auc
    from evaluation.metrics.ranking import RankedLists, ndcg
    from evaluation.metrics.registry import METRICS, Metric, get_metric, parse_metric, register_metric
    from evaluation.metrics.regression import mae, mape, r2, rmse
    from evaluation.metrics.thresholds import (
        Decisions,
        best_decisions,
        best_f1,
        confusion_matrix,
        decide,
        macro_f1,
    )
    from evaluation.plans import TaskColumns
    from evaluation.predictions import evaluate, infer_task
    from evaluation.protocol import rank_full_catalogue
    from evaluation.ranking import evaluate_ranking
    from evaluation.ranking_result import RankingResult
    from evaluation.ranking_slices import rank_slices
    from evaluation.rates import rate_baselines
    from evaluation.report import Example, RecommendedItem, ReportPaths, add_explanations, write_report
    from evaluation.results import BaselineResult, EvaluationResult, TaskResult
    from evaluation.side_by_side import Leaderboard, leaderboard
    from evaluation.slice_result import Slice, SliceResult
    from evaluation.slices import evaluate_slices
    from evaluation.splits import leave_last_out, split_by_time, split_by_user
    from evaluation.uncertainty import Estimate, PairedDifference

__all__ = [
    "BASELINES",
    "METRICS",
    "Attribution",
    "Baseline",
    "BaselineResult",
    "Candidates",
    "Compared",
    "Comparison",
    "DataError",
    "Decisions",
    "Estimate",
    "EvaluationError",
    "EvaluationResult",
    "Example",
    "Finding",
    "Gate",
    "GateResult",
    "Importance",
    "ImportanceResult",
    "Interactions",
    "ItemAttributes",
    "Leaderboard",
    "LeakageReport",
    "Metric",
    "MetricError",
    "PairedDifference",
    "RankedLists",
    "RankingResult",
    "RecommendedItem",
    "ReportPaths",
    "Slice",
    "SliceResult",
    "TaskColumns",
    "TaskResult",
    "accuracy",
    "add_explanations",
    "auc",
    "best_decisions",
    "best_f1",
    "brier",
    "catalogue_facts",
    "check_leakage",
    "compare",
    "compared_rankings",
    "confusion_matrix",
    "decide",
    "ece",
    "evaluate",
    "evaluate_ranking",
    "evaluate_slices",
    "f1",
    "fit_baselines",
    "gauc",
    "get_metric",
    "grouped_auc",
    "grouped_log_loss",
    "infer_task",
    "judge_gates",
    "leaderboard",
    "leave_last_out",
    "log_loss",
    "macro_f1",
    "mae",
    "mape",
    "ndcg",
    "normalized_entropy",
    "parse_gate",
    "parse_metric",
    "permutation_importance",
    "pr_auc",
    "precision",
    "r2",
    "rank_full_catalogue",
    "rank_slices",
    "ranked_rows",
    "rate_baselines",
    "recall",
    "register_metric",
    "rmse",
    "split_by_time",
    "split_by_user",
    "write_report",
    "xauc",
]

_NAMES_OF = {
    "attribution": ("Attribution",),
    "baselines": (
        "BASELINES",
        "Baseline",
        "fit_baselines",
    ),
    "candidates": ("Candidates",),
    "comparison": (
        "compare",
        "compared_rankings",
    ),
    "comparison_result": (
        "Compared",
        "Comparison",
    ),
    "errors": (
        "DataError",
        "EvaluationError",
        "MetricError",
    ),
    "facts": ("catalogue_facts",),
    "gates": (
        "Gate",
        "GateResult",
        "judge_gates",
        "parse_gate",
    ),
    "importance": (
        "Importance",
        "ImportanceResult",
        "permutation_importance",
    ),
    "interactions": (
        "Interactions",
        "ItemAttributes",
    ),
    "leakage": (
        "Finding",
        "LeakageReport",
        "check_leakage",
    ),
    "metrics.concordance": ("xauc",),
    "metrics.decisions": (
        "accuracy",
        "f1",
        "precision",
        "recall",
    ),
    "metrics.given_lists": ("ranked_rows",),
    "metrics.grouped": (
        "gauc",
        "grouped_auc",
        "grouped_log_loss",
    ),
    "metrics.pointwise": (
        "auc",
        "brier",
        "ece",
        "log_loss",
        "normalized_entropy",
        "pr_auc",
    ),
    "metrics.ranking": (
        "RankedLists",
        "ndcg",
    ),
    "metrics.registry": (
        "METRICS",
        "Metric",
        "get_metric",
        "parse_metric",
        "register_metric",
    ),
    "metrics.regression": (
        "mae",
        "mape",
        "r2",
        "rmse",
    ),
    "metrics.thresholds": (
        "Decisions",
        "best_decisions",
        "best_f1",
        "confusion_matrix",
        "decide",
        "macro_f1",
    ),
    "plans": ("TaskColumns",),
    "predictions": (
        "evaluate",
        "infer_task",
    ),
    "protocol": ("rank_full_catalogue",),
    "ranking": ("evaluate_ranking",),
    "ranking_result": ("RankingResult",),
    "ranking_slices": ("rank_slices",),
    "rates": ("rate_baselines",),
    "report": (
        "Example",
        "RecommendedItem",
        "ReportPaths",
        "add_explanations",
        "write_report",
    ),
    "results": (
        "BaselineResult",
        "EvaluationResult",
        "TaskResult",
    ),
    "side_by_side": (
        "Leaderboard",
        "leaderboard",
    ),
    "slice_result": (
        "Slice",
        "SliceResult",
    ),
    "slices": ("evaluate_slices",),
    "splits": (
        "leave_last_out",
        "split_by_time",
        "split_by_user",
    ),
    "uncertainty": (
        "Estimate",
        "PairedDifference",
    ),
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
