"""What `evaluate_slices` returns: a metric by slice, printable in a terminal, a notebook and a report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from evaluation.plotting.plots import slice_plot
from evaluation.render import (
    TextTable,
    decimals_for,
    interval_text,
    metric_title,
    number,
    p_value_text,
    percent,
)
from evaluation.uncertainty import DEFAULT_LEVEL, Estimate, finite_or_none

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SLICE_RESAMPLES = 1000
"""More than for plain intervals: adjusted p-values live far out in the tails."""

FEWEST_UNITS = 10
"""Of fewer users than this, resamples are so much alike that intervals come out far too narrow."""


@dataclass(frozen=True)
class Slice:
    """One slice of the rows.

    Attributes:
        column: The column that cuts.
        value: The value or range, in words.
        n_rows: Number of rows.
        n_units: Number of users (or rows) with a row in it.
        estimate: The metric in the slice.
        difference: The metric in the slice minus that of all rows.
        p_value: Two-sided, of no difference.
        adjusted_p: `p_value` adjusted for the number of slices (Benjamini-Hochberg: of the slices called different, at
            most a share of 1 - level is expected to be so by chance).
    """

    column: str
    value: str
    n_rows: int
    n_units: int
    estimate: Estimate
    difference: Estimate
    p_value: float
    adjusted_p: float = float("nan")

    @property
    def is_large(self) -> bool:
        """Whether it has enough users to be compared with the others."""
        return self.n_units >= FEWEST_UNITS

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "column": self.column,
            "value": self.value,
            "n_rows": self.n_rows,
            "n_units": self.n_units,
            "estimate": self.estimate.to_dict(),
            "difference": self.difference.to_dict(),
            "p_value": finite_or_none(self.p_value),
            "adjusted_p": finite_or_none(self.adjusted_p),
        }


@dataclass(frozen=True)
class SliceResult:
    """A metric by slice.

    Attributes:
        task: The task.
        metric: The metric.
        overall: The metric of all rows.
        slices: The slices, by column.
        gaps: Largest minus smallest value among the slices of a column, by column: how unfair a model is to groups.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        unit: What is resampled.
    """

    task: str
    metric: str
    overall: Estimate
    slices: tuple[Slice, ...]
    gaps: Mapping[str, Estimate] = field(default_factory=dict)
    level: float = DEFAULT_LEVEL
    resamples: int = SLICE_RESAMPLES
    unit: str = "row"

    def different(self) -> list[Slice]:
        """The slices that differ from all rows beyond chance, their number taken into account."""
        return [one for one in self.slices if one.adjusted_p < 1 - self.level]

    def table(self) -> TextTable:
        """One line a slice."""
        decimals = decimals_for([self.overall, *(one.estimate for one in self.slices)])
        floor = 2 / (self.resamples + 1)
        units = [] if self.unit == "row" else [f"{self.unit}s"]
        overall = [number(self.overall.value, decimals), interval_text(self.overall, decimals)]
        rows = [["all rows", "", *("" for _ in units), *overall, "", ""]]
        rows += [
            [
                f"{one.column} = {one.value}",
                f"{one.n_rows:,}",
                *(f"{one.n_units:,}" for _ in units),
                number(one.estimate.value, decimals),
                interval_text(one.estimate, decimals),
                number(one.difference.value, decimals, signed=True),
                p_value_text(one.adjusted_p, floor),
            ]
            for one in self.slices
        ]
        interval = f"{percent(self.level)} interval"
        shown = metric_title(self.metric)
        return TextTable(["slice", "rows", *units, shown, interval, "difference", "adjusted p"], rows)

    def remarks(self) -> list[str]:
        """Which slices stand out, and the gap of each column."""
        found = [
            f"{one.column} = {one.value} differs from all rows by {number(one.difference.value, signed=True)} "
            f"{metric_title(self.metric)} (adjusted p {p_value_text(one.adjusted_p, 2 / (self.resamples + 1))})."
            for one in self.different()
        ]
        gaps = [
            f"Gap between the slices of {column}: {number(gap.value)} {metric_title(self.metric)} "
            f"({percent(self.level)} interval {interval_text(gap)})"
            f"{', not clearly more than slices that are alike would show' if gap.low == 0 else ''}."
            for column, gap in self.gaps.items()
        ]
        return [*(found or ["No slice differs from all rows beyond chance."]), *gaps]

    def method(self) -> str:
        """How it was computed, in words."""
        small = sum(not one.is_large for one in self.slices)
        words = (
            f" Slices of fewer than {FEWEST_UNITS} {self.unit}s have no interval and are not compared."
            if small
            else ""
        )
        return (
            f"Slices are compared with all rows by one bootstrap over {self.unit}s, {self.resamples:,} resamples; "
            f"p-values are adjusted for the {len(self.slices) - small:,} slices (Benjamini-Hochberg).{words}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form: task, metric, overall, slices, gaps by column, level, resamples, unit."""
        return {
            "task": self.task,
            "metric": self.metric,
            "overall": self.overall.to_dict(),
            "slices": [one.to_dict() for one in self.slices],
            "gaps": {column: gap.to_dict() for column, gap in self.gaps.items()},
            "level": self.level,
            "resamples": self.resamples,
            "unit": self.unit,
        }

    def to_markdown(self) -> str:
        """Table, remarks and method."""
        remarks = "\n".join(f"- {text}" for text in self.remarks())
        return "\n\n".join([self.table().to_markdown(), remarks, self.method()]) + "\n"

    def __str__(self) -> str:
        """A table for a terminal."""
        return "\n\n".join([self.table().to_text(), "\n".join(self.remarks()), self.method()])

    def _repr_html_(self) -> str:
        return self.table().to_html() + "".join(
            f"<p>{escape(text)}</p>" for text in (*self.remarks(), self.method())
        )

    def plot(self) -> "Figure":
        """The metric of each slice with its interval, and that of all rows."""
        return slice_plot(self)
