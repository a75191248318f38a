"""How each class of a multi-class task fares: how often it occurs, is predicted, and is predicted right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.arrays import FloatArray, IntArray, sum_by_code
from evaluation.metrics.rows import Rows
from evaluation.render import TextTable, number
from evaluation.uncertainty import finite_or_none

_MOST_SHOWN = 20


@dataclass(frozen=True)
class ClassResult:
    """One class.

    Attributes:
        name: The class.
        rows: Weight of its rows.
        predicted: Weight of rows that are predicted to be of it.
        precision: Share of those that are; nan if there are none.
        recall: Share of its rows that are predicted so; nan if it has none.
        f1: Harmonic mean of both; nan if it neither occurs nor is predicted.
        taken_for: The other class that its rows are predicted to be of most often; empty if none is.
    """

    name: str
    rows: float
    predicted: float
    precision: float
    recall: float
    f1: float
    taken_for: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form; a missing number is None."""
        return {
            "name": self.name,
            "rows": self.rows,
            "predicted": self.predicted,
            "precision": finite_or_none(self.precision),
            "recall": finite_or_none(self.recall),
            "f1": finite_or_none(self.f1),
            "taken_for": self.taken_for,
        }


def classes_of(rows: Rows, names: Sequence[str] = ()) -> tuple[ClassResult, ...]:
    """The classes in the order of their scores.

    Args:
        rows: Checked rows of a multi-class task [n].
        names: Names of the classes; their numbers unless given.

    Returns:
        One a class.
    """
    n_classes = rows.score.shape[1]
    called = list(names) or [str(number) for number in range(n_classes)]
    truth, predicted = rows.label.astype(np.int64), np.argmax(rows.score, axis=1)
    hits = sum_by_code(rows.weight * (truth == predicted), truth, n_classes)
    of_class = sum_by_code(rows.weight, truth, n_classes)
    as_class = sum_by_code(rows.weight, predicted, n_classes)
    confused = _taken_for(truth, predicted, rows.weight, n_classes)
    return tuple(
        ClassResult(
            called[place],
            float(of_class[place]),
            float(as_class[place]),
            _share(hits[place], as_class[place]),
            _share(hits[place], of_class[place]),
            _share(2 * hits[place], as_class[place] + of_class[place]),
            "" if confused[place] < 0 else called[confused[place]],
        )
        for place in range(n_classes)
    )


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")


def _taken_for(truth: IntArray, predicted: IntArray, weight: FloatArray, n_classes: int) -> IntArray:
    """For each class the other one its wrong rows are predicted to be of most, or -1; no matrix of classes is held."""
    wrong = (truth != predicted) & (weight > 0)
    pairs, place = np.unique(truth[wrong] * n_classes + predicted[wrong], return_inverse=True)
    totals = sum_by_code(weight[wrong], place.astype(np.int64), len(pairs))
    found = np.full(n_classes, -1)
    for pair in pairs[np.argsort(totals, kind="stable")]:  # the heaviest comes last and stays
        found[pair // n_classes] = pair % n_classes
    return found


def class_table(classes: Sequence[ClassResult]) -> TextTable:
    """One line a class, the most frequent twenty."""
    shown = sorted(classes, key=lambda one: -one.rows)[:_MOST_SHOWN]
    lines = [
        [
            one.name,
            *(number(count, 0) for count in (one.rows, one.predicted)),
            *(number(rate, 3) for rate in (one.precision, one.recall, one.f1)),
            one.taken_for or "–",
        ]
        for one in shown
    ]
    if len(classes) > len(shown):
        lines.append([f"and {len(classes) - len(shown):,} rarer classes", *[""] * 6])
    header = ["class", "rows", "predicted", "precision", "recall", "F1", "most often taken for"]
    return TextTable(header, lines, frozenset({0, 6}))
