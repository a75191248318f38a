"""Decisions about columns, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Choice:
    """One decision and why.

    Attributes:
        value: What was decided.
        why: The reason, one line.
    """

    value: Any
    why: str


@dataclass
class Findings:
    """What the columns of a data set mean.

    Attributes:
        keys: Column by key (`user`, `item`, `time`).
        task: Options of the task, its name included.
        label_columns: Columns the label is read from.
        features: Options of each feature, by column.
        left_out: Columns that are no feature.
        others: Further columns that could be labels.
    """

    keys: dict[str, Choice] = field(default_factory=dict)
    task: Choice | None = None
    task_name: str = ""
    label_columns: tuple[str, ...] = ()
    features: dict[str, Choice] = field(default_factory=dict)
    left_out: dict[str, Choice] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
