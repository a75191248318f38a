"""What off-policy evaluation returns: estimates side by side with what they rest on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from evaluation.render import TextTable, decimals_for, interval_text, number, percent
from evaluation.uncertainty import Estimate


@dataclass(frozen=True)
class Support:
    """How much the logs say about the new policy.

    Attributes:
        n_rows: Number of logged rows.
        n_units: Number of users, or of rows where users are unknown.
        effective_rows: Effective sample size, (sum of weights)^2 / sum of squared weights: so many rows of the new
            policy itself would tell as much.
        max_weight: Largest importance weight.
        mean_weight: Mean importance weight; 1 in expectation, so far from it the propensities are wrong or support is
            missing.
        matched: Share of rows whose action the new policy takes at all.
        unsupported: Probability the new policy gives to actions that are never logged, where known.
    """

    n_rows: int
    n_units: int
    effective_rows: float
    max_weight: float
    mean_weight: float
    matched: float
    unsupported: float

    @property
    def share(self) -> float:
        """Effective rows as a share of all."""
        return self.effective_rows / self.n_rows if self.n_rows else math.nan

    def to_dict(self) -> dict[str, float]:
        """JSON-able form."""
        return {
            "n_rows": self.n_rows,
            "n_units": self.n_units,
            "effective_rows": self.effective_rows,
            "max_weight": self.max_weight,
            "mean_weight": self.mean_weight,
            "matched": self.matched,
            "unsupported": self.unsupported,
        }

    def __str__(self) -> str:
        """One sentence."""
        text = (
            f"{self.n_rows:,} logged rows are worth {self.effective_rows:,.0f} of the new policy "
            f"({percent(self.share, 1)}); the largest weight is {number(self.max_weight, 1)}, the mean weight "
            f"{number(self.mean_weight, 3)}."
        )
        if self.unsupported:
            text += f" The new policy takes actions that are never logged {percent(self.unsupported, 1)} of the time."
        return text


@dataclass(frozen=True)
class PolicyEstimate:
    """One estimator's value of the new policy.

    Attributes:
        estimator: Its name.
        estimate: The value with its interval.
        meaning: What the estimator does, in a few words.
    """

    estimator: str
    estimate: Estimate
    meaning: str


@dataclass(frozen=True)
class OffPolicyResult:
    """The value of a policy by several estimators.

    Attributes:
        estimates: By estimator.
        logged: Mean reward of the logging policy, what the new one is compared with.
        support: What the estimates rest on.
        refused: Estimators that were not computed, and why.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Their seed.
    """

    estimates: Mapping[str, PolicyEstimate]
    logged: Estimate
    support: Support
    refused: Mapping[str, str]
    level: float
    resamples: int
    seed: int

    def value(self, estimator: str) -> float:
        """The value by an estimator.

        Raises:
            KeyError: It was not computed; the message says why.
        """
        if estimator not in self.estimates:
            raise KeyError(self.refused.get(estimator, f"{estimator!r} was not asked for"))
        return self.estimates[estimator].estimate.value

    def table(self) -> TextTable:
        """One line an estimator, the logged reward first."""
        decimals = decimals_for([self.logged, *(one.estimate for one in self.estimates.values())])
        rows = [
            [
                "logged",
                number(self.logged.value, decimals),
                interval_text(self.logged, decimals),
                "the logging policy",
            ]
        ]
        rows += [
            [name, number(one.estimate.value, decimals), interval_text(one.estimate, decimals), one.meaning]
            for name, one in self.estimates.items()
        ]
        return TextTable(
            ["estimator", "reward", f"{percent(self.level)} interval", "meaning"], rows, frozenset({0, 3})
        )

    def notes(self) -> list[str]:
        """What was refused and why."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.refused.items():
            by_reason.setdefault(reason, []).append(name)
        return [f"Not computed: {', '.join(names)}: {reason}." for reason, names in by_reason.items()]

    def method(self) -> str:
        """How the intervals were made, in words."""
        return (
            f"Intervals: {percent(self.level)}, percentile bootstrap over {self.support.n_units:,} users or rows, "
            f"{self.resamples:,} resamples, seed {self.seed}."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form: estimates by name, logged, support, refused, level, resamples, seed."""
        return {
            "estimates": {name: one.estimate.to_dict() for name, one in self.estimates.items()},
            "logged": self.logged.to_dict(),
            "support": self.support.to_dict(),
            "refused": dict(self.refused),
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
        }

    def to_markdown(self) -> str:
        """Support, table, notes and method."""
        return (
            "\n\n".join([str(self.support), self.table().to_markdown(), *self.notes(), self.method()]) + "\n"
        )

    def __str__(self) -> str:
        """A table for a terminal."""
        return "\n\n".join([str(self.support), self.table().to_text(), *self.notes(), self.method()])

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(text)}</p>" for text in (*self.notes(), self.method()))
        return f"<p>{escape(str(self.support))}</p>{self.table().to_html()}{words}"
