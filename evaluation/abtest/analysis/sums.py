"""The sums over units that moments are made of, as columns of one aggregation.

A mean and a proportion divide by 1, so of their ten products only three have to be computed: a product with 1 is the
sum of the other side.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from evaluation.abtest.metrics import MeanMetric, ProportionMetric, RatioMetric
from evaluation.abtest.statistics.moments import COLUMNS, NUMERATOR, PRE_NUMERATOR
from evaluation.arrays import FloatArray

AveragedMetric = MeanMetric | ProportionMetric | RatioMetric


def _varying(metric: AveragedMetric) -> list[int]:
    return list(range(COLUMNS)) if isinstance(metric, RatioMetric) else [NUMERATOR, PRE_NUMERATOR]


def sums_of(
    metric: AveragedMetric,
    number: int,
    count: Any,
    single: Callable[[int], Any],
    product: Callable[[int, int], Any],
) -> dict[str, Any]:
    """The aggregates of a metric.

    Args:
        metric: The metric.
        number: That keeps it apart from others of the same aggregation.
        count: Sum of the units that count.
        single: Sum of a column.
        product: Sum of the product of two columns.
    """
    varying = _varying(metric)
    return {
        f"c{number}": count,
        **{f"s{number}_{k}": single(k) for k in varying},
        **{f"x{number}_{i}_{j}": product(i, j) for i, j in combinations_with_replacement(varying, 2)},
    }


def weighted(weight: Any, parts: Sequence[Any]) -> tuple[Callable[[int], Any], Callable[[int, int], Any]]:
    """Sums of columns, and of their products, over the units that a weight of 1 chooses."""
    return (lambda k: (weight * parts[k]).sum()), (lambda i, j: (weight * parts[i] * parts[j]).sum())


def changes(new: Sequence[Any], old: Sequence[Any]) -> tuple[Callable[[int], Any], Callable[[int, int], Any]]:
    """Sums of what columns, and their products, grew by."""
    return (lambda k: (new[k] - old[k]).sum()), (lambda i, j: (new[i] * new[j] - old[i] * old[j]).sum())


def read_sums(
    metric: AveragedMetric, number: int, row: Mapping[str, Any]
) -> tuple[float, FloatArray, FloatArray]:
    """Count, sums [4] and products [4, 4] of a metric from one row of the aggregation."""
    count, varying = float(row[f"c{number}"] or 0.0), _varying(metric)
    sums = np.full(COLUMNS, count)
    for k in varying:
        sums[k] = row[f"s{number}_{k}"] or 0.0
    products = np.where(np.isin(np.arange(COLUMNS), varying)[:, None], sums[:, None], sums[None, :])
    for i, j in combinations_with_replacement(varying, 2):
        products[i, j] = products[j, i] = row[f"x{number}_{i}_{j}"] or 0.0
    return count, sums, products
