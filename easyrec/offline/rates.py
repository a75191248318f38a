"""Sums of the training labels, of all rows and of each item: what the baselines of pointwise tasks learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from easyrec.data.rows import Rows


@dataclass
class LabelSums:
    """Sums of one label.

    Attributes:
        overall: (sum of labels, number of rows).
        by_item: The same by item key.
    """

    overall: tuple[float, float] = (0.0, 0.0)
    by_item: dict[Any, tuple[float, float]] = field(default_factory=dict)


def training_sums(rows: Rows, item: str | None, labels: Sequence[str]) -> dict[str, LabelSums]:
    """Sums up labels in one pass; rows without a label do not count.

    Args:
        rows: The training rows.
        item: The item key's column.
        labels: Columns of labels.

    Returns:
        Sums by label column.
    """
    sums = {label: LabelSums() for label in labels}
    columns = [*([item] if item is not None else []), *labels]
    for chunk in rows.chunks(columns=columns):
        for label in labels:
            _add(sums[label], chunk[label], None if item is None else chunk[item])
    return sums


def _add(sums: LabelSums, label: pa.ChunkedArray, item: pa.ChunkedArray | None) -> None:
    values = np.asarray(pc.cast(label, pa.float64()).to_numpy(), np.float64)
    known = np.isfinite(values)
    total, count = sums.overall
    sums.overall = (total + float(values[known].sum()), count + int(known.sum()))
    if item is None:
        return
    table = pa.table({"item": item, "label": values}).filter(pa.array(known))
    grouped = table.group_by("item").aggregate([("label", "sum"), ("label", "count")])
    for key, part, rows in zip(
        grouped["item"].to_pylist(),
        grouped["label_sum"].to_pylist(),
        grouped["label_count"].to_pylist(),
        strict=True,
    ):
        before = sums.by_item.get(key, (0.0, 0.0))
        sums.by_item[key] = (before[0] + part, before[1] + rows)
