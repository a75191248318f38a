"""What the funnel derives from the items of a model: popularity, segments, contents, and items that are new."""

from __future__ import annotations

import threading
import time as clocks
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from easyrec.export.candidates import NEIGHBORS
from easyrec.export.content import Content
from easyrec.export.layout import CANDIDATES
from easyrec.export.search import top_k
from easyrec.export.segments import read_segments
from serving.funnel.candidates import Found, Rows
from serving.models.served import ServedModel
from serving.stores.base import ItemChange

POPULAR = 10_000
NEW_NEIGHBORS = 200
NEW_ITEMS = 10_000


class ModelTables:
    """What is derived from one bundle; computed once.

    Args:
        model: The loaded bundle.
    """

    def __init__(self, model: ServedModel) -> None:
        self._folder = model.folder / CANDIDATES
        self.size = len(np.load(self._folder / NEIGHBORS, mmap_mode="r", allow_pickle=False))
        """Items of the bundle itself; later rows are items put through the API."""
        count, recent = model.catalogue.popularity
        rows = top_k((recent + count * 1e-9)[: self.size], POPULAR)
        self.popular = Found(rows, recent[rows].astype(np.float32))
        """The most popular items of the bundle."""

    @cached_property
    def segments(self) -> dict[tuple[str, str], Found]:
        """The most popular items of each group of users, by column and value."""
        return {key: Found(*found) for key, found in read_segments(self._folder, self.size).items()}

    @cached_property
    def content(self) -> Content | None:
        """What the items of the bundle are alike by."""
        return Content.read(self._folder, self.size)


class Tables:
    """The tables of each model in use; those of a model that is gone are forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: WeakKeyDictionary[ServedModel, ModelTables] = WeakKeyDictionary()

    def of(self, model: ServedModel) -> ModelTables:
        """The tables of a model."""
        with self._lock:
            tables = self._tables.get(model)
            if tables is None:
                tables = self._tables[model] = ModelTables(model)
            return tables

    def warm_up(self, model: ServedModel) -> None:
        """Reads what requests will need."""
        tables = self.of(model)
        _ = tables.segments, tables.content


@dataclass(frozen=True)
class _New:
    """New items of one model: a snapshot.

    Attributes:
        rows: [A] their rows, in the order they were put.
        times: [A] when each came, seconds since 1970.
        alike: [A, N] sparse: cosines with the bundle's items most alike.
    """

    rows: Rows
    times: np.ndarray
    alike: sparse.csr_array


@dataclass
class NewItems:
    """Items put through the API, which no table of a bundle knows, and what they are alike to.

    Attributes:
        tables: Of the models.
        clock: Seconds since 1970.
    """

    tables: Tables
    clock: Callable[[], float] = clocks.time
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _new: WeakKeyDictionary[ServedModel, _New] = field(default_factory=WeakKeyDictionary)

    def put(self, model: ServedModel, changes: Sequence[ItemChange]) -> None:
        """Takes notice of items that were put into a model's catalogue."""
        catalogue = model.catalogue
        rows = catalogue.rows([change.item_id for change in changes])
        size = self.tables.of(model).size
        kept = np.flatnonzero(rows >= 0)
        rows, times = rows[kept], np.array([change.time for change in changes])[kept]
        alike = self._alike(model, rows, size)
        with self._lock:
            before = self._new.get(model)
            if before is not None:
                old = ~np.isin(before.rows, rows)
                rows = np.concatenate([before.rows[old], rows])
                times = np.concatenate([before.times[old], times])
                alike = sparse.csr_array(sparse.vstack([before.alike[np.flatnonzero(old)], alike]))
            if len(rows) > NEW_ITEMS:
                rows, times, alike = rows[-NEW_ITEMS:], times[-NEW_ITEMS:], alike[-NEW_ITEMS:]
            self._new[model] = _New(rows, times, alike)

    def newest(self, model: ServedModel, n: int, since: float) -> Found:
        """Items that came since a time, the newest first."""
        new = self._new.get(model)
        if new is None:
            return Found.nothing()
        kept = np.flatnonzero((new.times >= since) & (new.rows >= 0))
        kept = kept[np.argsort(-new.times[kept], kind="stable")][:n]
        return Found(new.rows[kept], new.times[kept].astype(np.float32))

    def alike(self, model: ServedModel, rows: Rows, weights: np.ndarray) -> Found:
        """New items that are alike to given ones, with the weighted sum of their cosines."""
        new = self._new.get(model)
        if new is None or not len(new.rows):
            return Found.nothing()
        query = np.zeros(new.alike.shape[1], np.float32)
        inside = (rows >= 0) & (rows < len(query))
        query[rows[inside]] = weights[inside]
        scores = np.asarray(new.alike @ query, np.float32)
        hits = np.flatnonzero(scores > 0)
        return Found(new.rows[hits], scores[hits])

    def neighbors(self, model: ServedModel, row: int) -> Found:
        """The bundle's items most alike to a new one."""
        new = self._new.get(model)
        if new is None or not (new.rows == row).any():
            return Found.nothing()
        places = np.flatnonzero(new.rows == row)
        line = sparse.csr_array(new.alike[[places[0]]])
        order = np.argsort(-line.data, kind="stable")
        return Found(line.indices[order].astype(np.int64), line.data[order].astype(np.float32))

    def _alike(self, model: ServedModel, rows: Rows, size: int) -> sparse.csr_array:
        content = self.tables.of(model).content
        if content is None or not len(rows):
            nowhere = np.empty(0, np.int64)
            return sparse.csr_array((np.empty(0, np.float32), (nowhere, nowhere)), shape=(len(rows), size))
        vectors = content.vectors(model.catalogue.table(rows))
        rows_alike = sparse.vstack(list(_nearest(content, vectors, size)))
        return sparse.csr_array(rows_alike, shape=(len(rows), size))


def _nearest(content: Content, vectors: sparse.csr_array, size: int) -> Iterable[sparse.csr_array]:
    for place in range(vectors.shape[0]):
        found, scores = content.similar(vectors[[place]], NEW_NEIGHBORS)
        yield sparse.csr_array((scores, (np.zeros(len(found), np.int64), found)), shape=(1, size))
