"""Signs that an evaluation flatters the model: rows that training saw, features that know the label or the future."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, TypeAlias

import numpy as np

from evaluation.comparable import clock, hashes
from evaluation.errors import DataError, EvaluationError
from evaluation.render import TextTable, number, percent
from evaluation.tables import Column, Predictions, column_names, nested_columns, read_columns
from evaluation.telling_features import telling_features

Severity: TypeAlias = Literal["leak", "suspicion", "note"]

_FEW = 0.001
"""A share of rows on both sides that is not called a leak."""


@dataclass(frozen=True)
class Finding:
    """One sign.

    Attributes:
        severity: "leak" is a fault, "suspicion" wants an explanation, "note" is worth knowing.
        check: Which check found it: "same rows", "same keys", "time", "feature".
        message: What was found and what to do.
        share: Share of the evaluation rows concerned, or how well the feature orders labels.
    """

    severity: Severity
    check: str
    message: str
    share: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {"severity": self.severity, "check": self.check, "message": self.message, "share": self.share}


@dataclass(frozen=True)
class LeakageReport:
    """What `check_leakage` found.

    Attributes:
        findings: The signs, gravest first.
        checks: What was checked, in words.
    """

    findings: tuple[Finding, ...]
    checks: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing graver than a note was found."""
        return all(one.severity == "note" for one in self.findings)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "LeakageReport":
        """From what `to_dict` gave."""
        return cls(tuple(Finding(**one) for one in content["findings"]), tuple(content["checks"]))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {"findings": [one.to_dict() for one in self.findings], "checks": list(self.checks)}

    def table(self) -> TextTable:
        """One line a finding."""
        rows = [[one.severity, one.check, one.message] for one in self.findings]
        return TextTable(["", "check", "finding"], rows, frozenset({0, 1, 2}))

    def __str__(self) -> str:
        """A table for a terminal, or one line."""
        checked = f"Checked: {'; '.join(self.checks)}."
        return f"{self.table().to_text()}\n\n{checked}" if self.findings else f"No sign of leakage. {checked}"

    def to_markdown(self) -> str:
        """A table, or one line."""
        checked = f"Checked: {'; '.join(self.checks)}."
        return (
            f"{self.table().to_markdown()}\n\n{checked}\n"
            if self.findings
            else f"No sign of leakage. {checked}\n"
        )

    def _repr_html_(self) -> str:
        return f"{self.table().to_html()}<p>{escape('; '.join(self.checks))}</p>"


def check_leakage(
    train: Predictions,
    evaluation: Predictions,
    *,
    label: str,
    features: Sequence[str] | None = None,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    feature_times: Mapping[str, str] | None = None,
) -> LeakageReport:
    """Look for signs of leakage from the evaluation rows into training, or from the label into features.

    Args:
        train: Training rows: any table that `evaluate` reads.
        evaluation: Evaluation rows with the same columns. Types may differ: 7, 7.0 and "7" are the same.
        label: Column of labels: numbers, or a few classes of text.
        features: Columns the model reads; by default all columns of both but those named here.
        user: Column of users.
        item: Column of items; with `user` it is checked whether the same pair is on both sides.
        time: Column of times, when the label came to be; evaluation rows should not be earlier than training rows.
            Times without a zone are taken as UTC.
        feature_times: For features that are computed from events, the column that says when the latest of them was:
            one later than `time` knows the future.

    Returns:
        The findings.

    Raises:
        DataError: A column is missing, a table is empty, `label` has missing values or too many classes of text, or
            `time` holds no times.
        EvaluationError: No features to check.
    """
    named = {name for name in (label, user, item, time, *(feature_times or {}).values()) if name is not None}
    both = [name for name in column_names(train) if name in set(column_names(evaluation))]
    chosen = list(features) if features is not None else [name for name in both if name not in named]
    if isinstance(features, str) or (features is not None and not chosen):
        raise EvaluationError(f"features must be a list of columns that is not empty, got {features!r}.")
    lists = {name for table in (train, evaluation) for name in nested_columns(table, chosen)}
    chosen = [name for name in chosen if name not in lists]
    ours = sorted({name for name in (label, user, item, time) if name is not None})
    before = read_columns(train, list(dict.fromkeys([*chosen, *ours])))
    after = read_columns(evaluation, list(dict.fromkeys([*chosen, *sorted(named)])))
    for name, side in (("train", before), ("evaluation", after)):
        if not len(side[label]):
            raise DataError(f"The {name} table has no rows, so there is nothing to compare.")
    findings: list[Finding] = []
    checks = ["the same row on both sides"]
    findings += _same_rows(
        before, after, [*chosen, *(name for name in (label, user, item, time) if name is not None)]
    )
    if user is not None and item is not None:
        checks.append("the same user and item on both sides")
        findings += _same_pairs(before, after, user, item)
    if time is not None:
        checks.append("evaluation rows earlier than training rows")
        findings += _time_order(before, after, time)
        if feature_times:
            checks.append("features later than their row")
            findings += _future_features(after, time, feature_times)
    features_told, checked = telling_features(after, chosen, label)
    checks.append(checked)
    findings += [
        Finding(
            "suspicion",
            "feature",
            f"{feature!r} alone orders the labels almost perfectly (AUC {number(strength, 3)}): it may be made from "
            "the label, or known only after it. Ask when its value is known.",
            strength,
        )
        for feature, strength in features_told.items()
    ]
    if lists:
        checks.append(f"not columns of lists ({', '.join(sorted(lists))})")
    rank = {"leak": 0, "suspicion": 1, "note": 2}
    return LeakageReport(tuple(sorted(findings, key=lambda one: rank[one.severity])), tuple(checks))


def _same_rows(
    before: Mapping[str, Column], after: Mapping[str, Column], names: Sequence[str]
) -> list[Finding]:
    train, test = hashes(before, after, names)
    again = np.isin(test, train)
    if not again.any():
        return []
    share = float(again.mean())
    # How many training rows are equal to another one is how many fresh rows would be found among them: columns that
    # take few values, such as sex and age, make rows equal that have nothing to do with each other.
    _, place, count = np.unique(train, return_inverse=True, return_counts=True)
    expected = float((count[place] > 1).mean())
    error = math.sqrt(expected * (1 - expected) / len(again))
    found = f"{int(again.sum()):,} evaluation rows ({percent(share, 1)}) are in the training rows too, equal in all "
    if expected > 0 and share - expected <= max(_FEW, 3 * error):
        words = (
            f"{found}columns that were looked at. So are training rows among each other ({percent(expected, 1)}): "
            "these columns do not tell rows apart, and say nothing of leakage."
        )
        return [Finding("note", "same rows", words, share)]
    severity: Severity = "leak" if share > _FEW else "note"
    words = f"{found}columns: the model may simply remember them. Remove them from one side."
    return [Finding(severity, "same rows", words, share)]


def _same_pairs(
    before: Mapping[str, Column], after: Mapping[str, Column], user: str, item: str
) -> list[Finding]:
    train, test = hashes(before, after, [user, item])
    again = np.isin(test, train)
    if not again.any():
        return []
    share = float(again.mean())
    return [
        Finding(
            "note",  # where users come back to items that is as it should be
            "same keys",
            f"{int(again.sum()):,} evaluation rows ({percent(share, 1)}) are of a user and item that training has seen "
            "together. Where users do not come back to items, these rows are on both sides.",
            share,
        )
    ]


def _time_order(before: Mapping[str, Column], after: Mapping[str, Column], time: str) -> list[Finding]:
    train_times, times = clock(before[time], time), clock(after[time], time)
    known = train_times[~np.isnan(train_times)]
    early = times < known.max() if len(known) else np.zeros(len(times), dtype=bool)
    if not early.any():
        return []
    share = float(early.mean())
    return [
        Finding(
            "note",  # as it is in any split by user or at random
            "time",
            f"{int(early.sum()):,} evaluation rows ({percent(share, 1)}) are earlier than the latest training row: "
            "what the model learned from later rows may be what they test. Split by time to measure how it will do "
            "in future.",
            share,
        )
    ]


def _future_features(
    after: Mapping[str, Column], time: str, feature_times: Mapping[str, str]
) -> list[Finding]:
    found = []
    times = clock(after[time], time)
    for feature, column in feature_times.items():
        later = clock(after[column], column) > times
        if later.any():
            share = float(later.mean())
            found.append(
                Finding(
                    "leak",
                    "time",
                    f"{feature!r} is from after its own row in {int(later.sum()):,} evaluation rows "
                    f"({percent(share, 1)}, by {column!r}): it knows the future. Compute it as of the row's time.",
                    share,
                )
            )
    return found
