"""Rates with few events, where the normal approximation promises too much."""

from typing import Any

import numpy as np
from scipy.special import ndtri

from evaluation.arrays import FloatArray


def wilson(successes: Any, count: Any, alpha: float = 0.05) -> tuple[FloatArray, FloatArray]:
    """Interval of one rate (Wilson, 1927); arrays are fine."""
    successes, count = np.asarray(successes, dtype=np.float64), np.asarray(count, dtype=np.float64)
    z = -ndtri(alpha / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = successes / count
        centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
        reach = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return centre - reach, centre + reach


def newcombe(
    control_successes: Any, control_count: Any, successes: Any, count: Any, alpha: float = 0.05
) -> tuple[FloatArray, FloatArray]:
    """Interval of the difference of two rates, treatment minus control (Newcombe, 1998, method 10)."""
    first = np.asarray(control_successes, dtype=np.float64) / control_count
    second = np.asarray(successes, dtype=np.float64) / count
    first_low, first_high = wilson(control_successes, control_count, alpha)
    second_low, second_high = wilson(successes, count, alpha)
    low = second - first - np.sqrt((second - second_low) ** 2 + (first_high - first) ** 2)
    high = second - first + np.sqrt((second_high - second) ** 2 + (first - first_low) ** 2)
    return low, high
