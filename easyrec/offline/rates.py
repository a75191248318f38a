"""Sums of the training labels, of all rows, each item and each user: what the simplest baselines and slices know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from easyrec.config.data import KeysConfig
from easyrec.data.rows import Rows
from evaluation import TaskColumns


@dataclass
class LabelSums:
    """Sums of one label.

    Attributes:
        overall: (sum of labels, number of rows).
        by_item: The same by item key.
        by_user: Number of rows by user key.
    """

    overall: tuple[float, float] = (0.0, 0.0)
    by_item: dict[Any, tuple[float, float]] = field(default_factory=dict)
    by_user: dict[Any, float] = field(default_factory=dict)

    @property
    def rows_by_item(self) -> dict[Any, float]:
        """Number of rows by item key."""
        return {key: rows for key, (_, rows) in self.by_item.items()}


def training_sums(rows: Rows, keys: KeysConfig, tasks: Iterable[TaskColumns]) -> dict[str, LabelSums]:
    """Sums up labels in one pass; rows without a label do not count.

    Args:
        rows: The training rows.
        keys: Their keys.
        tasks: The tasks.

    Returns:
        Sums by label column.
    """
    sums = {task.label: LabelSums() for task in tasks}
    columns = list(dict.fromkeys([*(key for key in (keys.item, keys.user) if key is not None), *sums]))
    for chunk in rows.chunks(columns=columns):
        for label, known in sums.items():
            _add(known, chunk, label, keys)
    return sums


def _add(sums: LabelSums, chunk: pa.Table, label: str, keys: KeysConfig) -> None:
    values = np.asarray(pc.cast(chunk[label], pa.float64()).to_numpy(), np.float64)
    known = np.isfinite(values)
    total, count = sums.overall
    sums.overall = (total + float(values[known].sum()), count + int(known.sum()))
    for key in (keys.item, keys.user):
        if key is None:
            continue
        table = pa.table({"key": chunk[key], "label": values}).filter(pa.array(known))
        grouped = table.group_by("key").aggregate([("label", "sum"), ("label", "count")])
        parts = (grouped[name].to_pylist() for name in ("key", "label_sum", "label_count"))
        for value, part, rows in zip(*parts, strict=True):
            if key == keys.item:
                before = sums.by_item.get(value, (0.0, 0.0))
                sums.by_item[value] = (before[0] + part, before[1] + rows)
            if key == keys.user:
                sums.by_user[value] = sums.by_user.get(value, 0.0) + rows
