"""The adapter to tea-tasting: the same effects from the same moments, computed by a library of others.

Our own formulas work on arrays and give the errors that sequential bounds need; tea-tasting does one fixed test at a
time and does it well. So it checks every effect of a report before anybody believes it.
"""

import math
from collections.abc import Mapping

import numpy as np

from evaluation.abtest.analysis.results import Check
from evaluation.abtest.statistics.effects import compare
from evaluation.abtest.statistics.moments import Moments

TITLE = "computed twice"
_NAMES = ("numerator", "denominator", "pre_numerator", "pre_denominator")
_CLOSE = 1e-6


def second_opinion(pairs: Mapping[str, tuple[Moments, Moments, bool]]) -> Check:
    """Compare effects, errors and relative intervals with tea-tasting's.

    Args:
        pairs: By name of the effect: moments of control and treatment, and whether CUPED is used.

    Returns:
        The check "computed_twice", red if any number differs by more than a millionth.
    """
    wrong, seen = [], 0
    for name, (control, treatment, cuped) in pairs.items():
        if min(control.count, treatment.count) < 2 or not float(compare(control, treatment).absolute.se) > 0:
            continue
        seen += 1
        ours, theirs = _ours(control, treatment, cuped), _theirs(control, treatment, cuped)
        # A relative interval that is not defined is no disagreement.
        known = [both for both in zip(ours, theirs, strict=True) if all(map(math.isfinite, both))]
        if not all(math.isclose(a, b, rel_tol=_CLOSE, abs_tol=1e-12) for a, b in known):
            wrong.append(name)
    return Check(
        "computed_twice",
        TITLE,
        "red" if wrong else "green" if seen else "skipped",
        f"{seen - len(wrong)} of {seen} effects agree with tea-tasting"
        + (f"; not: {', '.join(wrong)}" if wrong else ""),
        "red if an effect, its interval or its p-value differs by more than a millionth",
        "Two programs disagree on the same moments. Report it, with experiment.json.",
    )


def _ours(control: Moments, treatment: Moments, cuped: bool) -> list[float]:
    compared = compare(control, treatment, cuped=cuped)
    low, high = compared.absolute.interval()
    relative = compared.relative_interval()
    numbers = [compared.absolute.estimate, low, high, compared.absolute.p_value(), *relative]
    return [float(one) for one in numbers]


def _theirs(control: Moments, treatment: Moments, cuped: bool) -> list[float]:
    import tea_tasting  # it takes two seconds, and only an analysis needs it

    covariates = {"numer_covariate": _NAMES[2], "denom_covariate": _NAMES[3]} if cuped else {}
    metric = tea_tasting.RatioOfMeans(_NAMES[0], _NAMES[1], **covariates)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = metric.analyze_aggregates(*(_aggregates(one) for one in (control, treatment)))
    return [
        found.effect_size,
        found.effect_size_ci_lower,
        found.effect_size_ci_upper,
        found.pvalue,
        found.rel_effect_size_ci_lower,
        found.rel_effect_size_ci_upper,
    ]


def _aggregates(one: Moments) -> object:
    import tea_tasting.aggr

    pairs = [(i, j) for i in range(len(_NAMES)) for j in range(i)]
    return tea_tasting.aggr.Aggregates(
        count_=int(one.count),
        mean_={name: float(one.mean[k]) for k, name in enumerate(_NAMES)},
        var_={name: float(one.cov[k, k]) for k, name in enumerate(_NAMES)},
        cov_={tuple(sorted((_NAMES[i], _NAMES[j]))): float(one.cov[i, j]) for i, j in pairs},
    )
