"""The built-in metrics, in the order in which reports show them. To add one, write its function and an entry here."""

from functools import partial

from evaluation.metrics import (
    beyond_accuracy,
    concordance,
    decisions,
    grouped,
    pointwise,
    ranking,
    regression,
    thresholds,
)
from evaluation.metrics.metric import Metric

_ONE_CLASS = "all labels are of one class"
_NO_POSITIVE = "there is no positive label"
_NO_MIXED_USER = "no user has both classes"
_NO_MIXED_SESSION = "no session has both classes"

_BINARY = (
    Metric(
        "auc",
        ("binary", "multiclass"),
        pointwise.auc,
        True,
        "chance that a positive row scores above a negative one",
        _ONE_CLASS,
        statistic=pointwise.AUC,
    ),
    Metric(
        "pr_auc",
        ("binary",),
        pointwise.pr_auc,
        True,
        "average precision over all thresholds",
        _NO_POSITIVE,
        statistic=pointwise.PR_AUC,
    ),
    Metric(
        "log_loss",
        ("binary", "multiclass"),
        pointwise.log_loss,
        False,
        "mean negative log-likelihood in nats",
        needs_probability=True,
        statistic=pointwise.LOG_LOSS,
    ),
    Metric(
        "normalized_entropy",
        ("binary",),
        pointwise.normalized_entropy,
        False,
        "log-loss relative to always predicting the mean",
        _ONE_CLASS,
        needs_probability=True,
        statistic=pointwise.NORMALIZED_ENTROPY,
    ),
    Metric(
        "accuracy",
        ("binary", "multiclass"),
        decisions.accuracy,
        True,
        "share of rows decided right (binary: at 0.5)",
        statistic=decisions.accuracy_statistic(),
    ),
    Metric(
        "precision",
        ("binary",),
        decisions.precision,
        True,
        "share of positives among rows scored 0.5 or more",
        "no row is scored 0.5 or more",
        statistic=decisions.precision_statistic(),
    ),
    Metric(
        "recall",
        ("binary",),
        decisions.recall,
        True,
        "share of positives scored 0.5 or more",
        _NO_POSITIVE,
        statistic=decisions.recall_statistic(),
    ),
    Metric(
        "f1",
        ("binary",),
        decisions.f1,
        True,
        "harmonic mean of precision and recall at 0.5",
        "no row is positive and none is predicted so",
        statistic=decisions.f1_statistic(),
    ),
    Metric(
        "best_f1",
        ("binary",),
        thresholds.best_f1,
        True,
        "F1 at the threshold where it is highest",
        _NO_POSITIVE,
        statistic=thresholds.BEST_F1,
        is_biased=True,
    ),
    Metric(
        "macro_f1",
        ("multiclass",),
        thresholds.macro_f1,
        True,
        "mean over classes of F1, each class alike",
        statistic=thresholds.MACRO_F1,
    ),
    Metric(
        "brier",
        ("binary",),
        pointwise.brier,
        False,
        "mean squared error of the probability",
        needs_probability=True,
        statistic=pointwise.BRIER,
    ),
    Metric(
        "ece",
        ("binary",),
        pointwise.ece,
        False,
        "expected calibration error over 15 equal-width bins",
        needs_probability=True,
        statistic=pointwise.ece_statistic(),
        is_biased=True,
    ),
)

_REGRESSION = (
    Metric(
        "rmse", ("regression",), regression.rmse, False, "root mean squared error", statistic=regression.RMSE
    ),
    Metric("mae", ("regression",), regression.mae, False, "mean absolute error", statistic=regression.MAE),
    Metric(
        "r2",
        ("regression",),
        regression.r2,
        True,
        "share of the label's variance explained",
        "the label is constant",
        statistic=regression.R2,
    ),
    Metric(
        "mape",
        ("regression",),
        regression.mape,
        False,
        "mean error relative to the label, rows of label 0 left out",
        "all labels are 0",
        statistic=regression.MAPE,
    ),
    Metric(
        "xauc",
        ("regression",),
        concordance.xauc,
        True,
        "share of pairs of rows ordered as their labels are",
        "all labels are equal",
        statistic=concordance.XAUC,
    ),
)

_GROUPED = (
    Metric(
        "gauc",
        ("grouped",),
        grouped.gauc,
        True,
        "AUC within each user, averaged by the user's rows",
        _NO_MIXED_USER,
        statistic=grouped.gauc_statistic(),
    ),
    Metric(
        "gauc_by_positives",
        ("grouped",),
        partial(grouped.gauc, weighting="positives"),
        True,
        "AUC within each user, averaged by the user's positive rows",
        _NO_MIXED_USER,
        statistic=grouped.gauc_statistic("positives"),
        is_default=False,
    ),
    Metric(
        "gauc_uniform",
        ("grouped",),
        partial(grouped.gauc, weighting="uniform"),
        True,
        "AUC within each user, each user alike",
        _NO_MIXED_USER,
        statistic=grouped.gauc_statistic("uniform"),
        is_default=False,
    ),
    Metric(
        "grouped_log_loss",
        ("grouped",),
        grouped.grouped_log_loss,
        False,
        "log-loss within each user, each user alike",
        needs_probability=True,
        statistic=grouped.GROUPED_LOG_LOSS,
        is_default=False,
    ),
    Metric(
        "session_auc",
        ("session",),
        grouped.gauc,
        True,
        "AUC within each session, averaged by the session's rows",
        _NO_MIXED_SESSION,
        statistic=grouped.gauc_statistic(),
    ),
    Metric(
        "session_auc_by_positives",
        ("session",),
        partial(grouped.gauc, weighting="positives"),
        True,
        "AUC within each session, averaged by the session's positive rows",
        _NO_MIXED_SESSION,
        statistic=grouped.gauc_statistic("positives"),
        is_default=False,
    ),
    Metric(
        "session_auc_uniform",
        ("session",),
        partial(grouped.gauc, weighting="uniform"),
        True,
        "AUC within each session, each session alike",
        _NO_MIXED_SESSION,
        statistic=grouped.gauc_statistic("uniform"),
        is_default=False,
    ),
)

_RANKING = (
    Metric(
        "precision@k", ("ranking",), ranking.precision_at_k, True, "share of the first k that are relevant"
    ),
    Metric(
        "recall@k", ("ranking",), ranking.recall_at_k, True, "share of the relevant items among the first k"
    ),
    Metric("f1@k", ("ranking",), ranking.f1_at_k, True, "harmonic mean of precision and recall at k"),
    Metric(
        "hit_rate@k", ("ranking",), ranking.hit_rate_at_k, True, "share of users with a hit in the first k"
    ),
    Metric(
        "ndcg@k",
        ("ranking",),
        ranking.ndcg_at_k,
        True,
        "hits in the first k, discounted by position, 1 is best",
    ),
    Metric(
        "exponential_ndcg@k",
        ("ranking",),
        ranking.exponential_ndcg_at_k,
        True,
        "NDCG with the gain 2^relevance - 1",
        is_default=False,
    ),
    Metric("map@k", ("ranking",), ranking.map_at_k, True, "mean precision at the hits in the first k"),
    Metric("mrr@k", ("ranking",), ranking.mrr_at_k, True, "1 / position of the first hit in the first k"),
    Metric(
        "mean_rank@k",
        ("ranking",),
        ranking.mean_rank_at_k,
        False,
        "position of the first hit, k + 1 where there is none",
        is_default=False,
    ),
)

_BEYOND_ACCURACY = (
    Metric(
        "coverage@k",
        ("ranking",),
        beyond_accuracy.coverage_at_k,
        True,
        "share of the catalogue that is recommended to anybody",
        statistic=beyond_accuracy.COVERAGE,
        is_biased=True,
    ),
    Metric(
        "gini@k",
        ("ranking",),
        beyond_accuracy.gini_at_k,
        False,
        "how unequally items are recommended: 0 alike, near 1 few items only",
        "nothing is recommended",
        statistic=beyond_accuracy.GINI,
        is_biased=True,
    ),
    Metric(
        "novelty@k",
        ("ranking",),
        beyond_accuracy.novelty_at_k,
        True,
        "surprise in bits, the rarer the recommended items the more",
        is_descriptive=True,
        needs="popularity",
    ),
    Metric(
        "serendipity@k",
        ("ranking",),
        beyond_accuracy.serendipity_at_k,
        True,
        "share of the first k that are hits and not among the most popular",
        needs="popularity",
    ),
    Metric(
        "average_popularity@k",
        ("ranking",),
        beyond_accuracy.average_popularity_at_k,
        True,
        "training users who took a recommended item, on average",
        is_default=False,
        is_descriptive=True,
        needs="popularity",
    ),
    Metric(
        "popularity_lift@k",
        ("ranking",),
        beyond_accuracy.popularity_lift_at_k,
        True,
        "popularity of what is recommended relative to what users took, 0 is no bias",
        "no judged user has a history",
        statistic=beyond_accuracy.POPULARITY_LIFT,
        is_descriptive=True,
        needs="popularity",
    ),
    Metric(
        "diversity@k",
        ("ranking",),
        beyond_accuracy.diversity_at_k,
        True,
        "how unlike the first k are by their attributes, 0 alike, 1 nothing in common",
        is_descriptive=True,
        needs="attributes",
    ),
)

BUILT_IN: tuple[Metric, ...] = (*_BINARY, *_REGRESSION, *_GROUPED, *_RANKING, *_BEYOND_ACCURACY)
