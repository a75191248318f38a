"""Why a model predicts what it predicts for single rows: what each feature adds, see integrated gradients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from evaluation.render import TextTable, number


@dataclass(frozen=True)
class Attribution:
    """One prediction, taken apart.

    Attributes:
        row: How the row is called.
        prediction: What the model predicts for it, in `unit`.
        baseline: What it predicts for the average row.
        contributions: What each feature adds, the largest first; together with `baseline` they make `prediction` up to
            `gap`.
        values: What the row holds for each feature, in words.
        unit: "log-odds", "prediction" or "dot product".
    """

    row: str
    prediction: float
    baseline: float
    contributions: Mapping[str, float]
    values: Mapping[str, str]
    unit: str

    @property
    def gap(self) -> float:
        """What the contributions leave unexplained: the error of the numerical integral."""
        return self.prediction - self.baseline - sum(self.contributions.values())

    def table(self, most: int = 12) -> TextTable:
        """One line a feature, the `most` largest and the rest together."""
        shown = list(self.contributions.items())
        rows = [["average row", "", number(self.baseline, 3, signed=True)]]
        rows += [
            [name, self.values.get(name, ""), number(value, 3, signed=True)] for name, value in shown[:most]
        ]
        if len(shown) > most:
            rows.append(["all others", "", number(sum(value for _, value in shown[most:]), 3, signed=True)])
        rows.append([f"prediction ({self.unit})", "", number(self.prediction, 3, signed=True)])
        return TextTable(["feature", "value", "adds"], rows, frozenset({0, 1}))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "row": self.row,
            "prediction": self.prediction,
            "baseline": self.baseline,
            "contributions": dict(self.contributions),
            "values": dict(self.values),
            "unit": self.unit,
        }

    def __str__(self) -> str:
        """A table for a terminal."""
        return f"{self.row}\n\n{self.table().to_text()}"

    def _repr_html_(self) -> str:
        return f"<p><b>{escape(self.row)}</b></p>{self.table().to_html()}"


def by_size(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """Contributions by feature, those that change most first."""
    pairs = sorted(zip(names, values, strict=True), key=lambda pair: -abs(pair[1]))
    return {name: float(value) for name, value in pairs}
