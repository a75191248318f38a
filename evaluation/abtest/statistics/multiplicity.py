"""Several questions to one experiment: adjusted p-values."""

from collections.abc import Callable, Sequence

import numpy as np

from evaluation.arrays import FloatArray


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm (1979): the chance of any false discovery stays below alpha. Missing values (nan) take no part."""

    def steps(ordered: FloatArray) -> FloatArray:
        count = len(ordered)
        result: FloatArray = np.maximum.accumulate(ordered * np.arange(count, 0, -1))
        return result

    return _adjusted(p_values, steps)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg (1995): the expected share of false discoveries stays below alpha."""

    def steps(ordered: FloatArray) -> FloatArray:
        count = len(ordered)
        scaled = ordered * count / np.arange(1, count + 1)
        result: FloatArray = np.minimum.accumulate(scaled[::-1])[::-1]
        return result

    return _adjusted(p_values, steps)


def benjamini_yekutieli(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Yekutieli (2001): as above under any dependence."""

    def steps(ordered: FloatArray) -> FloatArray:
        places = np.arange(1, len(ordered) + 1)
        scaled = ordered * len(ordered) / places * np.sum(1 / places)
        result: FloatArray = np.minimum.accumulate(scaled[::-1])[::-1]
        return result

    return _adjusted(p_values, steps)


def bonferroni(p_values: Sequence[float]) -> list[float]:
    """Each p-value times their number."""
    return _adjusted(p_values, lambda ordered: ordered * len(ordered))


def _adjusted(p_values: Sequence[float], steps: Callable[[FloatArray], FloatArray]) -> list[float]:
    values = np.array(p_values, dtype=np.float64)
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(values[known], kind="stable")]
    values[order] = np.minimum(steps(values[order]), 1.0)
    return [float(one) for one in values]
