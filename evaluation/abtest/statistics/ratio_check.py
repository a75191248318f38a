"""Did the split come out as configured, and do two splits know of each other?"""

from collections.abc import Sequence

import numpy as np
from scipy.special import chdtrc

from evaluation.abtest.errors import ExperimentDataError
from evaluation.arrays import FloatArray


def sample_ratio_p(counts: Sequence[float], weights: Sequence[float]) -> float:
    """The chance of a split at least as uneven as this one (chi-square).

    Args:
        counts: Units of each arm.
        weights: What the configuration gives each; they need not add up to 1.

    Returns:
        The p-value; 1 without units, 0 if an arm of weight 0 has units.

    Raises:
        ExperimentDataError: Different numbers of counts and weights, or negative ones.
    """
    seen, share = np.asarray(counts, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    if seen.shape != share.shape or (seen < 0).any() or (share < 0).any() or share.sum() <= 0:
        raise ExperimentDataError(f"Counts {list(counts)} and weights {list(weights)} do not fit each other.")
    if not seen.sum():
        return 1.0
    if seen[share == 0].sum():
        return 0.0
    seen, share = seen[share > 0], share[share > 0]
    if len(seen) < 2:
        return 1.0
    expected = seen.sum() * share / share.sum()
    return float(chdtrc(len(seen) - 1, ((seen - expected) ** 2 / expected).sum()))


def independence_p(table: FloatArray) -> float:
    """The chance of a cross table at least this uneven if rows and columns are independent (chi-square).

    Args:
        table: Counts, float64 [rows, columns].

    Returns:
        The p-value; 1 if there is nothing to compare.
    """
    table = np.asarray(table, dtype=np.float64)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape) < 2:
        return 1.0
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()
    degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
    return float(chdtrc(degrees, ((table - expected) ** 2 / expected).sum()))
