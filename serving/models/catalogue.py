"""The items of a served model as one immutable snapshot: those of the bundle, and what was put or removed since.

Row numbers are stable: an item keeps its row for as long as the model is served, whatever becomes of it, and new items
get the next ones. So rows that one request looked up stay right while another request changes the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from easyrec.errors import SchemaError, nearest
from easyrec.export.candidates import Candidates
from easyrec.export.runtime import padded
from easyrec.export.tables import as_keys
from easyrec.features.batch import EncodedBatch
from serving.models.search import VectorSearch

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


class _Takes(Protocol):
    def take(self, indices: Any, /) -> Any: ...


TakesT = TypeVar("TakesT", bound=_Takes)


@dataclass(frozen=True)
class Changes:
    """What was put since the bundle was written.

    Attributes:
        table: [M] the items as they are now, with the columns of the item table.
        encoded: [M] the same, encoded.
        vectors: [M, D] their vectors, of a two-tower model.
        slots: [N] by row of the catalogue: where it is in `table`, -1 where the bundle's own row holds.
        rows: Rows of the items that the bundle does not have, by key.
    """

    table: pa.Table
    encoded: EncodedBatch
    vectors: Scores | None
    slots: npt.NDArray[np.int32]
    rows: Mapping[Any, int]


class Catalogue:
    """A snapshot of N items.

    Args:
        base: The bundle's own items.
        encoded: The same, encoded.
        changes: What was put since, or None.
        available: [N] False for items that were removed; all available unless given.
        search: Finds the bundle's own items by their vectors, of a two-tower model.
    """

    def __init__(
        self,
        base: Candidates,
        encoded: EncodedBatch,
        changes: Changes | None = None,
        available: npt.NDArray[np.bool_] | None = None,
        search: VectorSearch | None = None,
    ) -> None:
        self._base = base
        self._encoded = encoded
        self._changes = changes
        self._search = search
        self.available = np.ones(len(base.items), bool) if available is None else available
        self.available.setflags(write=False)

    def __len__(self) -> int:
        """N, items that were removed included."""
        return len(self.available)

    # Keys

    @property
    def key(self) -> str:
        """Name of the key column."""
        return self._base.items.key

    @property
    def ids(self) -> ItemIds:
        """The key of each row."""
        return ItemIds(self)

    def rows(self, ids: Iterable[Any]) -> Rows:
        """[M] the row of each key, -1 for one that is unknown; an integer and its decimal text are the same key."""
        keys = as_keys(list(ids), self._base.items.keys.type)
        rows = self._base.items.positions(keys)
        if self._changes is not None and self._changes.rows:
            for place in np.flatnonzero(rows < 0):
                rows[place] = self._changes.rows.get(keys[place].as_py(), -1)
        return rows

    # Columns of the item table

    @property
    def columns(self) -> list[str]:
        """Columns of the item table, the key included."""
        return list(self._base.items.table.column_names)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._base.items.table.schema

    def table(self, rows: Rows | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of the item table as they are now.

        Args:
            rows: [M]; all unless given.
            columns: All unless given.

        Raises:
            SchemaError: There is no such column.
        """
        names = self.columns if columns is None else list(columns)
        for name in names:
            if name not in self.columns:
                raise SchemaError(f"the item table has no column {name!r}.{nearest(name, self.columns)}")
        base = self._base.items.table.select(names)
        if self._changes is None:
            return base if rows is None else base.take(pa.array(rows))
        rows = np.arange(len(self)) if rows is None else rows
        return self._gather(rows, base, self._changes.table.select(names), pa.concat_tables)

    def column(self, name: str, rows: Rows | None = None) -> pa.ChunkedArray:
        """One column of the item table, [N], or [M] of the given rows; see `table`."""
        return self.table(rows, [name]).column(0)

    def properties(self, rows: Rows, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Rows of the item table as dictionaries; see `table`."""
        table = self.table(rows, columns)
        if not table.num_columns:  # which has no rows either
            return [{} for _ in rows]
        found: list[dict[str, Any]] = table.to_pylist()
        return found

    # Known without a model

    @property
    def popularity(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """How often each item was taken in the training data, [N], and the same with older times counting less, [N]."""
        missing = len(self) - len(self._base.items)
        if not missing:
            return self._base.count, self._base.recent
        return np.pad(self._base.count, (0, missing)), np.pad(self._base.recent, (0, missing))

    def neighbors(self, row: int, n: int) -> tuple[Rows, Scores]:
        """Rows and scores of the `n` items most often taken by the users of an item, best first; none of a new item."""
        if row >= len(self._base.items):
            return np.empty(0, np.int64), np.empty(0, np.float32)
        return self._base.similar(row, n)

    # For the model

    def encoded(self, rows: Rows) -> EncodedBatch:
        """[M] the encoded features of items.

        Raises:
            SchemaError: A row is not one of the catalogue's.
        """
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise SchemaError(
                f"rows must lie between 0 and {len(self) - 1}, got {rows.min()} to {rows.max()}"
            )
        if self._changes is None:
            return self._encoded.take(rows)
        found: EncodedBatch = self._gather(rows, self._encoded, self._changes.encoded, _concat)
        return found

    @property
    def vectors(self) -> Scores | None:
        """[N, D] item vectors of a two-tower model, or None."""
        if self._base.vectors is None or self._changes is None or self._changes.vectors is None:
            return self._base.vectors
        return self.vectors_of(np.arange(len(self)))

    def vectors_of(self, rows: Rows) -> Scores:
        """[M, D] the vectors of items, of a two-tower model.

        Raises:
            SchemaError: The model has no vectors.
        """
        if self._base.vectors is None:
            raise SchemaError("only a two_tower model has vectors of items")
        if self._changes is None or self._changes.vectors is None:
            return np.asarray(self._base.vectors[rows])
        slots = self._changes.slots[rows]
        vectors = self._changes.vectors[slots]
        older = slots < 0
        vectors[older] = self._base.vectors[rows[older]]
        return vectors

    def search(
        self, vector: Scores, k: int, mask: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Rows, Scores]:
        """The available items whose vectors have the largest dot product with `vector`.

        Args:
            vector: [D].
            k: At most this many.
            mask: [N] Which items may be found; all unless given.

        Returns:
            Rows and dot products, best first.

        Raises:
            SchemaError: The model has no vectors.
        """
        if self._search is None:
            raise SchemaError("only a two_tower model finds items by their vectors")
        allowed = self.available if mask is None else self.available & mask
        size = len(self._base.items)
        if self._changes is None or self._changes.vectors is None:
            return self._search(vector, k, allowed[:size])
        changed = np.flatnonzero((self._changes.slots >= 0) & allowed)
        unchanged = (allowed & (self._changes.slots < 0))[:size]
        rows, scores = self._search(vector, k, unchanged)
        rows = np.concatenate([rows, changed])
        scores = np.concatenate([scores, self._changes.vectors[self._changes.slots[changed]] @ vector])
        order = np.lexsort((rows, -scores))[:k]
        return rows[order], scores[order]

    # The next snapshot

    def with_items(self, table: pa.Table, encoded: EncodedBatch, vectors: Scores | None) -> Catalogue:
        """The snapshot in which the items of a table are new, or are as it says.

        Args:
            table: [M] items with different keys, with the columns of the item table.
            encoded: [M] the same, encoded.
            vectors: [M, D] their vectors, of a two-tower model.
        """
        keys = table[self.key].to_pylist()
        rows = self.rows(keys)
        new = np.flatnonzero(rows < 0)
        rows[new] = np.arange(len(self), len(self) + len(new))
        size = len(self) + len(new)
        available = np.concatenate([self.available, np.ones(len(new), bool)])
        available[rows] = True
        slots = np.full(size, -1, np.int32)
        added: dict[Any, int] = {keys[place]: int(rows[place]) for place in new}
        if self._changes is None:
            slots[rows] = np.arange(len(rows))
            return self._next(Changes(table, encoded, vectors, slots, added), available)
        before = self._changes
        slots[: len(self)] = before.slots
        slots[rows] = -1
        kept = np.flatnonzero(slots >= 0)
        from_before = slots[kept]
        slots[kept] = np.arange(len(kept))
        slots[rows] = len(kept) + np.arange(len(rows))
        changes = Changes(
            pa.concat_tables([before.table.take(pa.array(from_before)), table]).combine_chunks(),
            _concat([before.encoded.take(from_before), encoded]),
            None
            if vectors is None or before.vectors is None
            else np.concatenate([before.vectors[from_before], vectors]),
            slots,
            {**before.rows, **added},
        )
        return self._next(changes, available)

    def without_items(self, ids: Iterable[Any]) -> Catalogue:
        """The snapshot in which the items are not available."""
        rows = self.rows(ids)
        available = self.available.copy()
        available[rows[rows >= 0]] = False
        return self._next(self._changes, available)

    def _next(self, changes: Changes | None, available: npt.NDArray[np.bool_]) -> Catalogue:
        return Catalogue(self._base, self._encoded, changes, available, self._search)

    def key_of(self, row: int) -> Any:
        """The key of one row."""
        return self.table(np.array([row]), [self.key]).column(0)[0].as_py()

    def _gather(
        self, rows: Rows, base: TakesT, changed: TakesT, concat: Callable[[list[TakesT]], TakesT]
    ) -> Any:
        """Rows of `base`, or of `changed` where there is a newer one."""
        slots = np.full(len(rows), -1) if self._changes is None else self._changes.slots[rows]
        newer = slots >= 0
        if not newer.any():
            return base.take(rows)
        older = np.flatnonzero(~newer)
        order = np.empty(len(rows), np.int64)
        order[older] = np.arange(len(older))
        order[newer] = len(older) + np.arange(len(rows) - len(older))
        return concat([base.take(rows[older]), changed.take(slots[newer])]).take(order)


class ItemIds(Sequence[Any]):
    """The keys of a catalogue by row."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def __len__(self) -> int:
        return len(self._catalogue)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a catalogue of {len(self)} items")
        return self._catalogue.key_of(int(row) % len(self))

    def take(self, rows: Rows) -> list[Any]:
        """The keys of several rows."""
        return list(self._catalogue.column(self._catalogue.key, np.asarray(rows, np.int64)).to_pylist())


def _concat(batches: list[EncodedBatch]) -> EncodedBatch:
    """Batches one after the other; raw lists are padded to the longest."""
    widths: dict[str, int] = {}
    for batch in batches:
        for name, array in batch.dense.items():
            widths[name] = max(widths.get(name, 0), array.shape[-1])
    return EncodedBatch.concat(
        [
            replace(batch, dense={name: padded(array, widths[name]) for name, array in batch.dense.items()})
            if any(array.ndim == 2 and array.shape[1] < widths[name] for name, array in batch.dense.items())
            else batch
            for batch in batches
        ]
    )
