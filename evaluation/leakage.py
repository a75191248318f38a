"""Signs that an evaluation flatters the model: rows that training saw, features that know the label or the future."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from evaluation.arrays import floats
from evaluation.errors import EvaluationError
from evaluation.metrics.concordance import xauc_value
from evaluation.metrics.rows import Rows
from evaluation.render import TextTable, number, percent
from evaluation.tables import Column, Predictions, column_names, read_columns

Severity: TypeAlias = Literal["leak", "suspicion", "note"]

NEAR_PERFECT = 0.98
"""A single feature that orders labels this well (AUC, either way round) is suspected of knowing the label."""

_SAMPLE_ROWS = 200_000


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
        evaluation: Evaluation rows with the same columns.
        label: Column of labels, numbers.
        features: Columns the model reads; by default all columns of both but those named here.
        user: Column of users.
        item: Column of items; with `user` it is checked whether the same pair is on both sides.
        time: Column of times, when the label came to be; evaluation rows should not be earlier than training rows.
        feature_times: For features that are computed from events, the column that says when the latest of them was:
            one later than `time` knows the future.

    Returns:
        The findings.

    Raises:
        DataError: A column is missing, or `label` holds no numbers.
        EvaluationError: No features to check.
    """
    named = {name for name in (label, user, item, time, *(feature_times or {}).values()) if name is not None}
    both = [name for name in column_names(train) if name in set(column_names(evaluation))]
    chosen = list(features) if features is not None else [name for name in both if name not in named]
    if isinstance(features, str) or (features is not None and not chosen):
        raise EvaluationError(f"features must be a list of columns that is not empty, got {features!r}.")
    columns = list(dict.fromkeys([*chosen, *sorted(named)]))
    before, after = read_columns(train, columns), read_columns(evaluation, columns)
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
    checks.append(f"single features that order labels with an AUC of {NEAR_PERFECT} or more")
    findings += _telling_features(after, chosen, label)
    rank = {"leak": 0, "suspicion": 1, "note": 2}
    return LeakageReport(tuple(sorted(findings, key=lambda one: rank[one.severity])), tuple(checks))


def _hashes(columns: Mapping[str, Column], names: Sequence[str]) -> "pd.Series[Any]":
    plain = {name: pd.Series(np.asarray(columns[name])) for name in names if np.ndim(columns[name]) == 1}
    return pd.util.hash_pandas_object(pd.DataFrame(plain), index=False)


def _same_rows(
    before: Mapping[str, Column], after: Mapping[str, Column], names: Sequence[str]
) -> list[Finding]:
    again = np.isin(_hashes(after, names).to_numpy(), _hashes(before, names).to_numpy())
    if not again.any():
        return []
    share = float(again.mean())
    severity: Severity = "leak" if share > 0.001 else "note"
    return [
        Finding(
            severity,
            "same rows",
            f"{int(again.sum()):,} evaluation rows ({percent(share, 1)}) are in the training rows too, equal in all "
            "columns: the model may simply remember them. Remove them from one side.",
            share,
        )
    ]


def _same_pairs(
    before: Mapping[str, Column], after: Mapping[str, Column], user: str, item: str
) -> list[Finding]:
    again = np.isin(_hashes(after, [user, item]).to_numpy(), _hashes(before, [user, item]).to_numpy())
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
    train_times, times = pd.Series(np.asarray(before[time])), pd.Series(np.asarray(after[time]))
    latest = train_times.max()
    early = np.asarray((times < latest).to_numpy(), dtype=bool)
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
    times = pd.Series(np.asarray(after[time]))
    for feature, column in feature_times.items():
        later = np.asarray((pd.Series(np.asarray(after[column])) > times).to_numpy(), dtype=bool)
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


def _telling_features(after: Mapping[str, Column], features: Sequence[str], label: str) -> list[Finding]:
    labels = floats(after[label], f"column {label!r}")
    take = np.arange(len(labels))
    if len(labels) > _SAMPLE_ROWS:
        take = np.sort(np.random.default_rng(0).choice(len(labels), _SAMPLE_ROWS, replace=False))
    found = []
    for feature in features:
        score = _as_score(after[feature], labels, take)
        if score is None:
            continue
        value = xauc_value(Rows(labels[take], score, np.ones(len(take))))
        strength = max(value, 1 - value)
        if strength >= NEAR_PERFECT:
            found.append(
                Finding(
                    "suspicion",
                    "feature",
                    f"{feature!r} alone orders the labels almost perfectly (AUC {number(strength, 3)}): it may be made "
                    "from the label, or known only after it. Ask when its value is known.",
                    strength,
                )
            )
    return found


def _as_score(column: Column, labels: np.ndarray[Any, Any], take: np.ndarray[Any, Any]) -> Any:
    """A feature as numbers: itself, whether it is missing, or the mean label of a value of text in the other half."""
    values = pd.Series(np.asarray(column)) if np.ndim(column) == 1 else None
    if values is None:
        return None
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)[take]
        return np.where(
            np.isfinite(numbers), numbers, np.nanmin(np.append(numbers[np.isfinite(numbers)], 0.0)) - 1.0
        )
    if pd.api.types.is_datetime64_any_dtype(values):
        return values.to_numpy().astype("datetime64[us]").astype(np.int64).astype(np.float64)[take]
    # A missing value is a value of its own: that it is missing may tell.
    codes, _ = pd.factorize(values.astype(str).to_numpy()[take], use_na_sentinel=False)
    # The mean label of each value, taken from the rows of the other half, so that rare values give nothing away.
    half = np.arange(len(take)) % 2
    scores = np.empty(len(take))
    for side in (0, 1):
        other = half != side
        size = int(codes.max()) + 1
        sums = np.bincount(codes[other], labels[take][other], size)
        counts = np.bincount(codes[other], minlength=size)
        mean = labels[take][other].mean()
        scores[half == side] = ((sums + mean) / (counts + 1))[codes[half == side]]
    return scores
