"""The share of a catalogue that an arm was shown: one number an arm, with its error from leaving out units.

It is no mean over units, so no test of means applies: ten times the units see more items, and a unit adds what nobody
else saw. Arms are therefore compared at the same number of units (rarefaction: Hurlbert, "The nonconcept of species
diversity", 1971), and the error is the jackknife's over units, which on average is never too small (Efron and Stein,
"The jackknife estimate of variance", 1981). A bootstrap's is: a resample holds some units twice, rare items are seen
too often or not at all, and intervals meant for 95% held the truth in 85% of simulations.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from evaluation.abtest.statistics.effects import Contrast
from evaluation.arrays import FloatArray, IntArray

SURE = 30.0
"""An item that so many of the chosen units are expected to have seen is in every choice (chance to miss: 1e-13)."""


@dataclass(frozen=True)
class Shown:
    """What one arm was shown.

    Attributes:
        units: Exposed units, those that were shown nothing included.
        counts: Units that were shown each item, int64 [items]; each at least 1.
        pair_units: Unit of each pair of a unit and a rare item, 0 to units - 1, int64 [pairs].
        pair_items: Its item, 0 to items - 1, int64 [pairs]. Pairs of items that every choice holds may be left out.
    """

    units: int
    counts: IntArray
    pair_units: IntArray
    pair_items: IntArray

    def items_at(self, units: int) -> float:
        """Expected number of items that a random choice of the arm's units was shown."""
        return float((1 - _missed(self.counts, self.units, units)).sum())

    def items_se(self, units: int) -> float:
        """Jackknife standard error of `items_at`, over units; nan for a single unit."""
        rest = self.units - 1
        if rest < 1:
            return math.nan
        size = min(units, rest)
        # Without a unit that saw it, an item has one unit less; the others keep theirs.
        gained = _missed(self.counts - 1, rest, size) - _missed(self.counts, rest, size)
        influence = np.bincount(self.pair_units, weights=gained[self.pair_items], minlength=self.units)
        return float(np.sqrt(rest / self.units * ((influence - influence.mean()) ** 2).sum()))


def rare_below(units: int, chosen: int) -> float:
    """Units of an item below which a choice of `chosen` of an arm's `units` may miss it."""
    return SURE * units / chosen


def compare_coverage(control: Shown, treatment: Shown, catalogue: int) -> tuple[Contrast, Contrast]:
    """Difference and log ratio of the coverage of two arms, at as many units as the smaller one has.

    Args:
        control: One arm, with units.
        treatment: The other, with units.
        catalogue: Number of items that 100% would be.
    """
    units = min(control.units, treatment.units)
    values = [one.items_at(units) / catalogue for one in (control, treatment)]
    errors = [one.items_se(units) / catalogue for one in (control, treatment)]
    infinite: FloatArray = np.asarray(np.inf)
    absolute = Contrast(np.asarray(values[1] - values[0]), np.asarray(math.hypot(*errors)), infinite)
    if min(values) <= 0:
        return absolute, Contrast(np.asarray(np.nan), np.asarray(np.nan), infinite)
    relative = math.hypot(*(error / value for error, value in zip(errors, values, strict=True)))
    return absolute, Contrast(np.asarray(math.log(values[1] / values[0])), np.asarray(relative), infinite)


def _missed(counts: IntArray, units: int, chosen: int) -> FloatArray:
    """Chance that a choice among `units` has none of the `counts` units of an item, float64 [items]."""
    left = (units - counts).astype(np.float64)
    possible = left >= chosen
    missed = np.zeros(len(counts))
    every = gammaln(units + 1) - gammaln(units - chosen + 1)
    missed[possible] = np.exp(gammaln(left[possible] + 1) - gammaln(left[possible] - chosen + 1) - every)
    return missed
