"""Looking before the end without fooling oneself.

`SpendingBounds`: group-sequential tests with the spending function alpha t^rho (Kim and DeMets, 1987), for looks at
batches towards a planned size. `confidence_sequence`: intervals that hold at all times at once (Waudby-Smith,
Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences", 2023), for
streams and for sizes nobody planned.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.statistics.effects import Contrast
from evaluation.arrays import FloatArray

# Beyond it the tail of the normal distribution, 2e-17, is less than rounding.
_MAX_BOUND = 8.5


class SpendingBounds:
    """Two-sided bounds on |z| at the looks of one experiment.

    Args:
        information: Share of the planned information at each look, ascending, above 0. At the first look with 1 or
            more all that is left of alpha is spent.
        rho: Power of the spending function alpha t^rho; 1 spends evenly, 3 is close to O'Brien and Fleming.

    Raises:
        ExperimentDataError: Looks that do not ascend.
    """

    def __init__(self, information: Sequence[float], rho: float = 2.0) -> None:
        times = [min(float(one), 1.0) for one in information]
        if not times or times[0] <= 0 or any(b <= a for a, b in pairwise(times)):
            raise ExperimentDataError(f"Looks need ascending shares of information above 0, got {times}.")
        self.information = times
        self.rho = rho

    def bounds(self, alpha: float) -> list[float]:
        """Bound on |z| at each look, so that crossing any of them without an effect has probability alpha."""
        result: list[float] = []
        spent = 0.0
        nodes, density = np.zeros(1), np.ones(1)
        before = 0.0
        for time in self.information:
            step = np.sqrt(time - before)
            target = alpha * time**self.rho - spent
            bound = _solve(nodes, density, np.sqrt(time), step, target)
            result.append(bound)
            spent += target
            nodes, density = _advance(nodes, density, bound * np.sqrt(time), step)
            before = time
        return result

    def power(self, alpha: float, drift: float) -> float:
        """Chance that a bound is crossed at some look if z has mean `drift` at full information."""
        nodes, density, before, crossed = np.zeros(1), np.ones(1), 0.0, 0.0
        for time, bound in zip(self.information, self.bounds(alpha), strict=True):
            step, edge = np.sqrt(time - before), bound * np.sqrt(time)
            moved = nodes + drift * (time - before)
            crossed += float(density @ (ndtr((-edge - moved) / step) + ndtr((moved - edge) / step)))
            nodes, density = _advance(moved, density, edge, step)
            before = time
        return crossed

    def drift(self, alpha: float, power: float) -> float:
        """The mean of z at full information that is seen with a power."""
        found: float = brentq(lambda drift: self.power(alpha, drift) - power, 0.0, 20.0, xtol=1e-8)
        return found

    def p_value(self, statistic: float, alpha: float) -> float:
        """The smallest level whose bound at the last look is crossed; below `alpha` exactly if `alpha`'s bound is."""
        z = abs(statistic)

        def excess(log_level: float) -> float:
            return self.bounds(float(np.exp(log_level)))[-1] - z

        crossed = z > self.bounds(alpha)[-1]
        low, high = (np.log(1e-16), np.log(alpha)) if crossed else (np.log(alpha), np.log(0.999))
        if excess(low) <= 0:
            return float(np.exp(low))
        if excess(high) >= 0:
            p = float(np.exp(high)) if crossed else 1.0
        else:
            root: float = brentq(excess, low, high, xtol=1e-5)
            p = float(np.exp(root))
        # Rounding may end on the other side of alpha.
        return p if crossed == (p < alpha) else float(np.nextafter(alpha, 0.0 if crossed else 1.0))


def _solve(nodes: FloatArray, density: FloatArray, root: float, step: float, target: float) -> float:
    def excess(bound: float) -> float:
        edge = bound * root
        return float(density @ (ndtr((-edge - nodes) / step) + ndtr((nodes - edge) / step))) - target

    if target <= 0 or excess(_MAX_BOUND) >= 0:
        return _MAX_BOUND
    found: float = brentq(excess, 0.0, _MAX_BOUND, xtol=1e-10)
    return found


def _advance(
    nodes: FloatArray, density: FloatArray, edge: float, step: float
) -> tuple[FloatArray, FloatArray]:
    """Weights of the process that has not crossed, at Gauss-Legendre nodes of the next look."""
    # Nodes must stand closer together than the process moves in one step.
    places, weights = _nodes(min(int(6 * edge / step) // 50 + 1, 12) * 50)
    places, weights = places * edge, weights * edge
    moves = np.exp(-0.5 * ((places[:, None] - nodes[None, :]) / step) ** 2) / (step * np.sqrt(2 * np.pi))
    return places, weights * (moves @ density)


@lru_cache
def _nodes(count: int) -> tuple[FloatArray, FloatArray]:
    places, weights = np.polynomial.legendre.leggauss(count)
    return places, weights


def confidence_sequence(
    contrast: Contrast, count: FloatArray, alpha: float, planned: float
) -> tuple[FloatArray, FloatArray]:
    """An interval that holds at all sample sizes at once (equation 9 of the paper).

    Args:
        contrast: Estimate and error now.
        count: Units in both arms now.
        alpha: Chance that the true value is ever outside.
        planned: Size at which the interval is tightest (equation 161).
    """
    spread = count * _rho(alpha, planned) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = contrast.se * np.sqrt(2 * (spread + 1) * np.log(np.sqrt(spread + 1) / alpha) / spread)
    return contrast.estimate - reach, contrast.estimate + reach


def always_valid_p(contrast: Contrast, count: FloatArray, alpha: float, planned: float) -> FloatArray:
    """The p-value that may be looked at any time (equation 155); `alpha` and `planned` as in the interval."""
    spread = count * _rho(alpha, planned) ** 2
    with np.errstate(invalid="ignore", over="ignore"):
        log_p = 0.5 * np.log(spread + 1) - contrast.statistic**2 * spread / (2 * (spread + 1))
    return np.exp(np.minimum(log_p, 0.0))


def _rho(alpha: float, planned: float) -> float:
    return float(np.sqrt((-2 * np.log(alpha) + np.log(-2 * np.log(alpha) + 1)) / planned))


def normal_bound(alpha: float) -> float:
    """The bound on |z| of a single look."""
    return float(-ndtri(alpha / 2))
