"""What `compare` returns: every metric of two models with its paired difference."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from evaluation.errors import did_you_mean
from evaluation.plotting.plots import comparison_plot
from evaluation.ranking_result import won_lost
from evaluation.render import TextTable, decimals_for, interval_text, number, p_value_text, percent
from evaluation.results import Unit
from evaluation.uncertainty import Estimate, PairedDifference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = "easyrec.comparison/1"


@dataclass(frozen=True)
class Compared:
    """One metric of two models.

    Attributes:
        name: Task and metric, e.g. "liked/auc" or "ranking/ndcg@10".
        reference: The metric of the reference.
        model: The metric of the model.
        paired: Model minus reference on the same users.
        higher_is_better: Whether a larger value is better.
        is_descriptive: Whether neither direction is better.
    """

    name: str
    reference: Estimate
    model: Estimate
    paired: PairedDifference
    higher_is_better: bool
    is_descriptive: bool = False

    @property
    def verdict(self) -> str:
        """One of "better", "worse", "different" (where neither direction is better), "no clear difference"."""
        if not self.paired.is_significant:
            return "no clear difference"
        if self.is_descriptive:
            return "different"
        return "better" if (self.paired.difference.value > 0) == self.higher_is_better else "worse"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "reference": self.reference.to_dict(),
            "model": self.model.to_dict(),
            **self.paired.to_dict(),
            "higher_is_better": self.higher_is_better,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Comparison:
    """What `compare` returns.

    Attributes:
        reference: Name of the reference.
        model: Name of the model.
        metrics: Compared metrics by name.
        unit: What is resampled.
        n_units: How many there are.
        level: Confidence level.
        resamples: Number of bootstrap resamples.
        seed: Their seed.
        notes: Sentences a reader needs.
    """

    reference: str
    model: str
    metrics: Mapping[str, Compared]
    unit: Unit
    n_units: int
    level: float
    resamples: int
    seed: int
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Compared:
        """A compared metric by its name, such as "liked/auc".

        Raises:
            KeyError: There is none; the message names the nearest.
        """
        if name not in self.metrics:
            raise KeyError(f"No metric {name!r} was compared; {did_you_mean(name, self.metrics)}")
        return self.metrics[name]

    def joined(self, others: Iterable[Compared], notes: Sequence[str] = ()) -> "Comparison":
        """The comparison with further metrics, e.g. those of ranked lists."""
        return Comparison(
            self.reference,
            self.model,
            {**self.metrics, **{one.name: one for one in others}},
            self.unit,
            self.n_units,
            self.level,
            self.resamples,
            self.seed,
            (*self.notes, *notes),
        )

    def _shown(self) -> list[Compared]:
        """All metrics, but those of ranked lists at one cut-off only: 10, or the nearest below, or the smallest."""
        cutoffs = {int(name.rpartition("@")[2]) for name in self.metrics if "@" in name}
        k = max(cutoffs, key=lambda one: one if one <= 10 else -one, default=0)
        return [one for name, one in self.metrics.items() if "@" not in name or name.endswith(f"@{k}")]

    def table(self) -> TextTable:
        """One line a metric; those of ranked lists at one cut-off."""
        rows = []
        for one in self._shown():
            gap, decimals = one.paired.difference, decimals_for([one.reference, one.model])
            fine = decimals_for([gap])
            rows.append(
                [
                    one.name,
                    number(one.reference.value, max(decimals, fine)),
                    number(one.model.value, max(decimals, fine)),
                    number(gap.value, fine, signed=True),
                    interval_text(gap, fine, signed=True),
                    p_value_text(one.paired.p_value, 2 / (self.resamples + 1)),
                    won_lost(one.paired),
                    one.verdict,
                ]
            )
        interval = f"{percent(self.level)} interval"
        header = [
            "metric",
            self.reference,
            self.model,
            "difference",
            interval,
            "p",
            f"{self.unit}s won / lost",
            "verdict",
        ]
        return TextTable(header, rows, frozenset({0, 7}))

    def method(self) -> str:
        """How it was compared, in words."""
        return (
            f"Differences are {self.model} minus {self.reference} on the same {self.n_units:,} {self.unit}s: "
            f"{percent(self.level)} intervals and p-values from one paired bootstrap, {self.resamples:,} resamples, "
            f"seed {self.seed}. With many metrics some differ by chance."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form.

        Returns:
            ``{"schema": "easyrec.comparison/1", "reference", "model", "unit", "n_units", "level", "resamples", "seed",
            "metrics": {name: {"reference": {..}, "model": {..}, "difference": {..}, "p_value", "win_rate",
            "loss_rate", "higher_is_better", "verdict"}}, "notes"}``.
        """
        return {
            "schema": SCHEMA,
            "reference": self.reference,
            "model": self.model,
            "unit": self.unit,
            "n_units": self.n_units,
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
            "metrics": {name: one.to_dict() for name, one in self.metrics.items()},
            "notes": list(self.notes),
        }

    def to_markdown(self) -> str:
        """Table, notes and method."""
        notes = [f"- {note}" for note in self.notes]
        return "\n\n".join([self.table().to_markdown(), *notes, self.method()]) + "\n"

    def __str__(self) -> str:
        """A table for a terminal."""
        return "\n\n".join([self.table().to_text(), *(f"Note: {note}" for note in self.notes), self.method()])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in (*self.notes, self.method()))
        return f"{self.table().to_html()}{notes}"

    def plot(self) -> "Figure":
        """The differences of what the table shows with their intervals, each on a scale of its own.

        Returns:
            A matplotlib figure: a bar reaches over the interval, in units of half its width, and 0 is no difference.
        """
        return comparison_plot(self, self._shown())
