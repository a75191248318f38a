"""Looks for leakage between the training and the evaluation rows of a pipeline."""

from __future__ import annotations

import pyarrow as pa

from easyrec.config.pipeline import PipelineConfig
from easyrec.data.bound import BoundDataset
from easyrec.data.rows import Rows
from easyrec.features.encoder import Encoder
from easyrec.offline.errors import raises_easyrec_errors
from evaluation import LeakageReport, check_leakage

MAX_ROWS = 200_000
"""Rows looked at on each side."""


@raises_easyrec_errors
def look_for_leakage(
    config: PipelineConfig, data: BoundDataset, encoder: Encoder, max_rows: int = MAX_ROWS
) -> LeakageReport | None:
    """Checks the rows of a pipeline, as far as `max_rows` of each side show.

    Args:
        config: The resolved configuration.
        data: The data.
        encoder: The features, whose single-valued columns are checked.
        max_rows: Rows looked at on each side.

    Returns:
        The findings; None without evaluation rows or without a label.
    """
    if data.eval is None or not data.train.labels:
        return None
    keys, label = config.data.keys, data.train.labels[0].column
    read = [spec.name for transform in encoder.transforms.values() for spec in transform.inputs()]
    features = list(dict.fromkeys(name for name in read if name not in (keys.user, keys.item, keys.time)))
    columns = [*features, *(name for name in (keys.user, keys.item, keys.time) if name is not None), label]
    train, after = (_rows(rows, list(dict.fromkeys(columns)), max_rows) for rows in (data.train, data.eval))
    if not len(train) or not len(after):
        return None
    known = [
        name
        for name in train.column_names
        if name in after.column_names and not _is_list(train.field(name).type)
    ]
    return check_leakage(
        train.select(known),
        after.select(known),
        label=label,
        user=keys.user if keys.user in known else None,
        item=keys.item if keys.item in known else None,
        time=keys.time if keys.time in known else None,
    )


def _rows(rows: Rows, columns: list[str], limit: int) -> pa.Table:
    parts: list[pa.Table] = []
    for chunk in rows.chunks():
        names = [name for name in columns if name in chunk.column_names]
        parts.append(chunk.select(names))
        if sum(len(part) for part in parts) >= limit:
            break
    return pa.concat_tables(parts).slice(0, limit) if parts else pa.table({})


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
