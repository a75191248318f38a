"""What training and evaluation rows share: which columns, labels, joins, histories and sampled negatives they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from easyrec.config.columns import ColumnInfo
from easyrec.config.data import KeysConfig
from easyrec.config.expressions import Expression
from easyrec.data.history import HistoryColumn
from easyrec.data.join import KeyedTable, Side
from easyrec.data.labels import Label
from easyrec.data.negatives import NegativeSampler

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """What training and evaluation rows share.

    Attributes:
        columns: All columns that features and expressions may use.
        keys: Names of the key columns.
        outputs: Columns of a chunk, histories not counted.
        histories: Columns built from the interactions.
        labels: One a task.
        weight: Sample weight, or None.
        where: Only rows for which this holds, or None.
        tables: Joined tables by side.
        on_error: What happens to rows with a wrong label or weight.
    """

    columns: Mapping[str, ColumnInfo]
    keys: KeysConfig
    outputs: Sequence[str]
    histories: Sequence[HistoryColumn]
    labels: Sequence[Label]
    weight: Expression | None
    where: Expression | None
    tables: Mapping[Side, KeyedTable]
    on_error: Literal["fail", "skip"]

    def required_keys(self) -> list[str]:
        """The user and item key, where there is one."""
        return [key for key in (self.keys.user, self.keys.item) if key is not None]


@dataclass(frozen=True)
class Negatives:
    """Sampled rows and where their item columns come from.

    Attributes:
        sampler: Draws items.
        catalogue: One row an item: the key column and the columns that describe it.
        find: Position of item keys in the catalogue, -1 for others.
        where: Which rows get negatives, or None for all.
        rows_added: How many rows an epoch gets.
    """

    sampler: NegativeSampler
    catalogue: pa.Table
    find: Callable[[pa.ChunkedArray], Positions]
    where: Expression | None
    rows_added: int
