"""P-values adjusted for how many there are."""

from collections.abc import Sequence

import numpy as np

from evaluation.arrays import FloatArray


def benjamini_hochberg(p_values: Sequence[float]) -> FloatArray:
    """Adjusted p-values that bound the expected share of false discoveries among those called significant.

    Benjamini and Hochberg, "Controlling the false discovery rate", JRSS B 1995.

    Args:
        p_values: P-values [m]; nan ones stay nan and do not count.

    Returns:
        float64 [m], each at least its p-value and at most 1.
    """
    values = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(len(values), np.nan)
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return adjusted
    order = known[np.argsort(values[known])]
    scaled = values[order] * len(order) / np.arange(1, len(order) + 1)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted
