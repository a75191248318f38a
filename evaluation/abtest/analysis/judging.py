"""From moments to effects, intervals and p-values, paid for by the method that was registered."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

from evaluation.abtest.analysis.results import Interval
from evaluation.abtest.statistics.effects import Comparison, Contrast
from evaluation.abtest.statistics.proportions import newcombe
from evaluation.abtest.statistics.sequential import SpendingBounds, always_valid_p, confidence_sequence

FEW_UNITS = 100
FEW_SLOTS = 20
FEW_EVENTS = 20
DEFAULT_HORIZON = 5000
_ALL_IN = 0.995


@dataclass(frozen=True)
class Judged:
    """One look.

    Attributes:
        absolute: Difference.
        relative: Relative difference.
        p_value: Two-sided, paid for all looks so far; nan if nothing may be said yet.
        crossed: Whether the bound was crossed at this look.
        tested: Whether this look could decide anything.
    """

    absolute: Interval
    relative: Interval
    p_value: float
    crossed: bool
    tested: bool = True


@dataclass(frozen=True)
class Judge:
    """The method.

    Attributes:
        method: "group_sequential", "always_valid" or "fixed".
        alpha: Level.
        spending: Power of the spending function.
        planned: Units of all arms at the end; None if unknown.
        over: Whether the end was reached, which the fixed method waits for.
        few: Units of an arm below which nothing is shown.
        planned_days: Days until the end; None if unknown.
    """

    method: str
    alpha: float
    spending: float
    planned: int | None
    over: bool
    few: int = FEW_UNITS
    planned_days: float | None = None

    def information(self, units: float, days: float) -> float:
        """Share of what was planned, units and days, that is in; nan if nothing was planned.

        Days count too, because users who are all in early go on to act: their sums change while the number of units
        stays, and a look at them is another look. For such users z moves less than the bounds assume, which keeps the
        promise.
        """
        if not self.planned and self.method != "group_sequential":
            return math.nan
        shares = [units / self.planned] if self.planned else []
        shares += [days / self.planned_days] if self.planned_days else []
        share = min(shares, default=math.nan)
        # The first exposure comes a little after the start, so the last day ends a little short of the plan.
        return 1.0 if _ALL_IN <= share < 1 else share

    def looks(
        self,
        comparisons: Sequence[Comparison],
        units: Sequence[float],
        days: Sequence[float] | None = None,
    ) -> list[Judged]:
        """Judge the looks of one metric, in order.

        Args:
            comparisons: At each look.
            units: Units of all arms at each look.
            days: Days since the start at each look; as many as are planned unless given.
        """
        if self.method == "group_sequential" and (self.planned or self.planned_days):
            past = days if days is not None else [self.planned_days or 0.0] * len(units)
            shares = [self.information(*pair) for pair in zip(units, past, strict=True)]
            return self._group_sequential(comparisons, shares)
        if self.method == "fixed":
            return [self._fixed(one, over=self.over and one is comparisons[-1]) for one in comparisons]
        return self._always_valid(comparisons, units)

    def _group_sequential(self, comparisons: Sequence[Comparison], shares: Sequence[float]) -> list[Judged]:
        times: list[float] = []
        # A look without new information, and any look after the planned end, has nothing to spend and decides nothing.
        tested: list[bool] = []
        places: list[int | None] = []
        for share in (min(one, 1.0) for one in shares):
            tested.append(share > 0 and (not times or share > times[-1] + 1e-9))
            if tested[-1]:
                times.append(share)
            places.append(len(times) - 1 if times else None)
        bounds = SpendingBounds(times, self.spending).bounds(self.alpha) if times else []
        scores = [_z(one.absolute) for one in comparisons]
        crossed = [
            is_tested and place is not None and abs(z) > bounds[place]
            for is_tested, place, z in zip(tested, places, scores, strict=True)
        ]
        last = max((look for look, is_tested in enumerate(tested) if is_tested), default=len(tested) - 1)
        best = self._best(times, places, scores, bounds, crossed, last)
        return [
            _unknown(one)
            if place is None or math.isnan(z)
            else Judged(*_intervals(one, bounds[place]), best if look == last else math.nan, over, is_tested)
            for look, (one, place, z, over, is_tested) in enumerate(
                zip(comparisons, places, scores, crossed, tested, strict=True)
            )
        ]

    def _best(
        self,
        times: Sequence[float],
        places: Sequence[int | None],
        scores: Sequence[float],
        bounds: Sequence[float],
        crossed: Sequence[bool],
        last: int,
    ) -> float:
        """The p-value over all looks: that of the last one, or of the look that crossed its bound the furthest."""
        looks = [last] if scores else []
        over = [look for look, is_over in enumerate(crossed) if is_over]
        looks += sorted(over, key=lambda look: bounds[places[look] or 0] - abs(scores[look]))[:1]
        found = [
            SpendingBounds(times[: place + 1], self.spending).p_value(scores[look], self.alpha)
            for look in set(looks)
            if (place := places[look]) is not None and not math.isnan(scores[look])
        ]
        return min(found, default=math.nan)

    def _always_valid(self, comparisons: Sequence[Comparison], units: Sequence[float]) -> list[Judged]:
        horizon = float(self.planned or DEFAULT_HORIZON)
        judged, best = [], math.nan
        for one, count in zip(comparisons, units, strict=True):
            total = np.asarray(count, dtype=np.float64)
            low, high = confidence_sequence(one.absolute, total, self.alpha, horizon)
            relative = np.expm1(confidence_sequence(one.log_ratio, total, self.alpha, horizon))
            p = float(always_valid_p(one.absolute, total, self.alpha, horizon))
            best = p if math.isnan(best) else min(best, p) if not math.isnan(p) else best
            judged.append(
                Judged(
                    Interval(float(one.absolute.estimate), float(low), float(high)),
                    Interval(_relative(one), float(relative[0]), float(relative[1])),
                    best,
                    bool(low > 0 or high < 0),
                )
            )
        return judged

    def _fixed(self, one: Comparison, *, over: bool) -> Judged:
        low, high = one.absolute.interval(self.alpha)
        relative = one.relative_interval(self.alpha)
        p = float(one.absolute.p_value()) if over else math.nan
        return Judged(
            Interval(float(one.absolute.estimate), float(low), float(high)),
            Interval(_relative(one), float(relative[0]), float(relative[1])),
            p,
            p < self.alpha,
        )


def _relative(one: Comparison) -> float:
    return float(one.relative.estimate)


def _z(contrast: Contrast) -> float:
    """The statistic as a normal one: the t distribution's tail is looked up, so that few units stay honest."""
    statistic = float(contrast.statistic)
    if not math.isfinite(statistic) or float(contrast.df) > 1e4:
        return statistic
    tail = float(contrast.p_value()) / 2
    return math.copysign(abs(float(ndtri(max(tail, 1e-300)))), statistic)


def _intervals(one: Comparison, bound: float) -> tuple[Interval, Interval]:
    """Estimate +- bound standard errors, with the bound stretched to the t distribution."""
    result = []
    for contrast in (one.absolute, one.log_ratio):
        tail = Contrast(contrast.estimate, contrast.se, contrast.df)
        level = 2 * float(_normal_tail(bound))
        low, high = tail.interval(level) if 0 < level < 1 else (np.nan, np.nan)
        result.append((float(low), float(high)))
    (low, high), (log_low, log_high) = result
    return (
        Interval(float(one.absolute.estimate), low, high),
        Interval(_relative(one), math.expm1(log_low), math.expm1(log_high)),
    )


def _normal_tail(bound: float) -> float:
    return 0.5 * math.erfc(bound / math.sqrt(2))


def _unknown(one: Comparison) -> Judged:
    return Judged(Interval(float(one.absolute.estimate)), Interval(_relative(one)), math.nan, crossed=False)


def rare_events(
    control: tuple[float, float], treatment: tuple[float, float], alpha: float
) -> tuple[Interval, float]:
    """Interval and p-value of a rate with few events, both of Newcombe's method, so that they agree.

    Args:
        control: Units with an event, and units.
        treatment: The same of the variant.
        alpha: Level of the interval.
    """
    low, high = newcombe(*control, *treatment, alpha)
    difference = treatment[0] / treatment[1] - control[0] / control[1]

    def excludes(level: float) -> float:
        ends = newcombe(*control, *treatment, level)
        return float(ends[0] if difference > 0 else -ends[1])

    if difference == 0 or excludes(1 - 1e-9) < 0:
        p = 1.0
    elif excludes(1e-15) > 0:
        p = 1e-15
    else:
        p = math.exp(brentq(lambda log_p: excludes(math.exp(log_p)), math.log(1e-15), math.log(1 - 1e-9)))
    return Interval(difference, float(low), float(high)), p


def detectable(one: Comparison, alpha: float, power: float) -> float:
    """Relative effect that an error of this size shows with a power."""
    reach = float(-ndtri(alpha / 2) + ndtri(power))
    control = abs(float(one.control))
    return reach * float(one.absolute.se) / control if control > 0 else math.nan
