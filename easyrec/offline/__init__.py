"""Measures models on held-out data: metrics, two runs side by side, and what predictions come from."""

from easyrec.offline.evaluation import (
    MODEL,
    NOBODY_TO_JUDGE,
    RANKING,
    NetworkPredictor,
    OfflineEvaluation,
    Predict,
    ScoreFunction,
    flat_metrics,
)

__all__ = [
    "MODEL",
    "NOBODY_TO_JUDGE",
    "RANKING",
    "NetworkPredictor",
    "OfflineEvaluation",
    "Predict",
    "ScoreFunction",
    "flat_metrics",
]
