"""Ranks a catalogue for users, each side encoded once; with a bundle's model or one that is still in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from easyrec.errors import BundleError, nearest
from easyrec.export.manifest import TaskEntry
from easyrec.export.runtime import ITEM_EMBEDDING, SCORE, USER_EMBEDDING, Predictions, Runtime
from easyrec.export.search import search, top_k
from easyrec.export.tables import KeyedTable, Positions
from easyrec.features.batch import EncodedBatch

Scores = npt.NDArray[np.float32]

_USER_BLOCK = 1024


class Ranker:
    """Scores and ranks the items of a catalogue.

    Args:
        runtime: The model.
        items: The catalogue.
        vectors: [N, D] Item vectors, if they are stored.

    Raises:
        BundleError: The model has no two-stage functions, because its data have no item key.
    """

    def __init__(self, runtime: Runtime, items: KeyedTable, vectors: Scores | None = None) -> None:
        if not runtime.has(SCORE):
            raise BundleError(
                "the model cannot rank a catalogue: it was trained without `data.keys.item`, so nothing is known of "
                "single items; predict rows instead"
            )
        self.runtime = runtime
        self.items = items
        self._vectors = vectors

    @property
    def two_tower(self) -> bool:
        """Whether items are found by their vectors."""
        return self.runtime.has(USER_EMBEDDING)

    @cached_property
    def encoded_items(self) -> EncodedBatch:
        """The items' side of the whole catalogue; ids do not change while a model is trained."""
        return self.runtime.encode_items(self.items.table)

    def item_vectors(self) -> Scores:
        """[N, D] Vectors of a two-tower model: the stored ones, else computed now."""
        return (
            self.runtime.embed(ITEM_EMBEDDING, self.items.table) if self._vectors is None else self._vectors
        )

    def scores(
        self, users: pa.Table, positions: Positions | None = None, task: str | None = None
    ) -> Iterator[Scores]:
        """Scores of items for each user.

        A two-tower model gives dot products, in the order of its predictions.

        Args:
            users: Raw columns of the users and of the context, a row a user.
            positions: [M] Rows of the catalogue; all of it unless given.
            task: What to rank by; the first task unless given. A task of several classes ranks by the expected class.

        Yields:
            [M] for each user.
        """
        if self.two_tower:
            vectors = self.item_vectors()
            vectors = vectors if positions is None else vectors[positions]
            for start in range(0, len(users), _USER_BLOCK):
                yield from self.runtime.embed(USER_EMBEDDING, users.slice(start, _USER_BLOCK)) @ vectors.T
            return
        items = self.encoded_items if positions is None else self.encoded_items.take(positions)
        entry = self.task(task)
        for start in range(0, len(users), _USER_BLOCK):
            block = self.runtime.encode_user(users.slice(start, _USER_BLOCK))
            for row in range(len(block)):
                yield ranking_score(self.runtime.score(block.slice(row, row + 1), items), entry)

    def rank(
        self, users: pa.Table, k: int, excluded: Sequence[Positions] | None = None, task: str | None = None
    ) -> Iterator[tuple[Positions, Scores]]:
        """The best items of the catalogue for each user.

        Args:
            users: Raw columns of the users and of the context, a row a user.
            k: At most this many items a user.
            excluded: Rows of the catalogue that each user must not get.
            task: What to rank by, see `scores`.

        Yields:
            For each user: rows of the catalogue and scores, best first.
        """
        if self.two_tower:
            vectors = self.item_vectors()
            for start in range(0, len(users), _USER_BLOCK):
                queries = self.runtime.embed(USER_EMBEDDING, users.slice(start, _USER_BLOCK))
                hidden = None if excluded is None else excluded[start : start + _USER_BLOCK]
                yield from search(queries, vectors, k, hidden)
            return
        for row, scores in enumerate(self.scores(users, task=task)):
            if excluded is not None:
                scores = np.array(scores)  # what TensorFlow returns may be read-only
                scores[excluded[row]] = -np.inf
            best = top_k(scores, k)
            yield best, scores[best]

    def predict_pairs(self, user: pa.Table, positions: Positions, task: str | None = None) -> Scores:
        """What the model predicts for one user and the items at `positions`, [M]."""
        items = self.runtime.encode_items(self.items.rows(positions))
        return ranking_score(self.runtime.score(self.runtime.encode_user(user), items), self.task(task))

    def task(self, name: str | None = None) -> TaskEntry:
        """The task that ranks: the named one, or the first.

        Raises:
            BundleError: The model has no such task.
        """
        by_name = {entry.task: entry for entry in self.runtime.tasks}
        if name is None:
            return self.runtime.tasks[0]
        if name not in by_name:
            raise BundleError(f"the model has no task {name!r}.{nearest(name, by_name)}")
        return by_name[name]


def ranking_score(predictions: Predictions, task: TaskEntry) -> Scores:
    """One number an item: the prediction itself, or the expected class of a task of several classes."""
    values = predictions[task.task]
    if values.ndim == 1:
        return values
    return np.asarray(values @ np.arange(values.shape[1]), np.float32)
