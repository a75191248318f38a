"""One sample of users who each saw both: interleaving."""

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr

from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.statistics.effects import Contrast
from evaluation.arrays import FloatArray


@dataclass(frozen=True)
class Preference:
    """How much users prefer B to A.

    Attributes:
        contrast: Mean user score, from -1 (all for A) to 1 (all for B), with its error.
        wins_a: Users with more credit for A.
        wins_b: Users with more credit for B.
        ties: Users with as much for both.
        sign_p: Two-sided sign test over the users who prefer one.
    """

    contrast: Contrast
    wins_a: int
    wins_b: int
    ties: int
    sign_p: float


def preference(scores: FloatArray) -> Preference:
    """Judge user scores.

    Args:
        scores: float64 [users], each in [-1, 1].

    Raises:
        ExperimentDataError: Fewer than two users, or a score outside.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1 or len(scores) < 2:
        raise ExperimentDataError(f"A preference needs at least two users with clicks, got {scores.size}.")
    if not (np.abs(scores) <= 1).all():
        raise ExperimentDataError("User scores lie between -1 and 1, and some are missing or outside.")
    wins_b, wins_a = int((scores > 0).sum()), int((scores < 0).sum())
    error = float(scores.std(ddof=1)) / np.sqrt(len(scores))
    contrast = Contrast(np.asarray(scores.mean()), np.asarray(error), np.asarray(len(scores) - 1.0))
    return Preference(contrast, wins_a, wins_b, len(scores) - wins_a - wins_b, sign_test(wins_a, wins_b))


def sign_test(wins_a: int, wins_b: int) -> float:
    """Two-sided p-value of the sign test; 1 if nobody prefers one."""
    total = wins_a + wins_b
    return min(1.0, 2 * float(bdtr(min(wins_a, wins_b), total, 0.5))) if total else 1.0
