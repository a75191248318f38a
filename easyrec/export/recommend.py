"""Recommendations for one user: candidates, ranking, and popularity where nothing is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from easyrec.errors import BundleError, SchemaError, nearest
from easyrec.export.candidates import Candidates
from easyrec.export.ranking import Ranker, Scores
from easyrec.export.search import top_k
from easyrec.export.tables import KeyedTable, Positions
from easyrec.export.users import KnownUser, Users

FUNNEL = 200
SCORE, POSITION = "score", "position"


@dataclass(frozen=True)
class Catalogue:
    """What a recommender needs of a bundle.

    Attributes:
        name: Name of the pipeline.
        ranker: Scores and ranks items.
        candidates: The items and what is known of them without a model.
        users: What is known of users.
    """

    name: str
    ranker: Ranker
    candidates: Candidates
    users: Users


class Recommender:
    """Recommends the items of a catalogue.

    Args:
        ranker: Its model scores the items.
        retriever: A two-tower model that finds the candidates which `ranker` scores; without it, `ranker` scores the
            whole catalogue.
        funnel: How many candidates the retriever finds.

    Raises:
        BundleError: The retriever's model has no vectors.
    """

    def __init__(self, ranker: Catalogue, retriever: Catalogue | None = None, funnel: int = FUNNEL) -> None:
        if retriever is not None and not retriever.ranker.two_tower:
            raise BundleError(
                f"{retriever.name} cannot find candidates: that needs a two_tower model; leave it out, or swap the two"
            )
        self._ranker = ranker
        self._retriever = retriever
        self._funnel = funnel
        self._items: KeyedTable = ranker.candidates.items

    def recommend(
        self,
        user: Any = None,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        item_ids: Iterable[Any] | None = None,
        exclude_ids: Iterable[Any] = (),
        candidates: int | None = None,
        profile: Mapping[str, Any] | None = None,
        history: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        task: str | None = None,
    ) -> pd.DataFrame:
        """The best items for one user.

        A user of whom nothing is known gets what is popular now. `.attrs["source"]` of the result says how it was made
        (`model`, `retrieval`, `retrieval+model` or `popularity`), `.attrs["reason"]` why.

        Args:
            user: Key of the user.
            n: At most this many items.
            exclude_seen: Leave out what the user has interacted with, `history` included.
            item_ids: Only these items; those that are not in the catalogue are left out.
            exclude_ids: Not these items.
            candidates: How many candidates the retriever finds, for this call.
            profile: Raw columns of the user and of the context, in place of those in the bundle.
            history: Keys of the items the user took, oldest first, in place of the history in the bundle.
            columns: Columns of the item table to return; all that hold single values unless given.
            task: What to rank by, the first task unless given; several classes rank by the expected class.

        Returns:
            The item key, `score`, `position` (from 1) and columns of the item table, best first.

        Raises:
            EasyRecError: An argument cannot be used.
        """
        if n < 1:
            raise SchemaError(f"n is how many items are wanted, at least 1; got {n}")
        known = self._ranker.users.find(user, profile, history)
        other = None if self._retriever is None else self._retriever.users.find(user, profile, history)
        allowed = self._allowed(known.seen if exclude_seen else None, item_ids, exclude_ids)
        if not (known.known or (other is not None and other.known)):
            popular = self._ranker.candidates.popular(n, allowed)
            weights = self._ranker.candidates.recent[popular].astype(np.float32)
            return self._frame(popular, weights, columns, "popularity", self._why_unknown(user))
        found = np.flatnonzero(allowed)
        if self._retriever is not None and other is not None:
            found = self._retrieve(self._retriever, other, allowed, candidates or self._funnel)
        positions, scores = self._rank(known.columns, found, n, task)
        source = "retrieval" if self._ranker.ranker.two_tower else "model"
        reason = "ranked by the model" if self._retriever is None else f"ranked {len(found)} candidates"
        return self._frame(positions, scores, columns, source if other is None else "retrieval+model", reason)

    def _allowed(
        self, seen: Positions | None, item_ids: Iterable[Any] | None, exclude_ids: Iterable[Any]
    ) -> npt.NDArray[np.bool_]:
        allowed = np.full(len(self._items), item_ids is None)
        if item_ids is not None:
            wanted = self._items.positions(item_ids)
            allowed[wanted[wanted >= 0]] = True
        hidden = self._items.positions(exclude_ids)
        allowed[hidden[hidden >= 0]] = False
        if seen is not None:
            allowed[seen] = False
        return allowed

    def _retrieve(
        self, retriever: Catalogue, user: KnownUser, allowed: npt.NDArray[np.bool_], k: int
    ) -> Positions:
        """Rows of the ranker's catalogue that the retriever finds, in their order there."""
        rows = self._items.positions(retriever.candidates.items.keys)
        usable = (rows >= 0) & allowed[rows]
        scores = np.where(usable, next(retriever.ranker.scores(user.columns)), -np.inf)
        return np.sort(rows[top_k(scores, k)])

    def _rank(self, user: pa.Table, found: Positions, n: int, task: str | None) -> tuple[Positions, Scores]:
        ranker = self._ranker.ranker
        if 2 * len(found) > len(
            self._items
        ):  # taking most of the items would cost more than scoring the others
            scores = next(ranker.scores(user, task=task))[found]
        else:
            scores = next(ranker.scores(user, found, task))
        order = np.lexsort((found, -scores))[:n]
        return found[order], ranker.predict_pairs(user, found[order], task) if ranker.two_tower else scores[
            order
        ]

    def _why_unknown(self, user: Any) -> str:
        table = self._ranker.users.table
        if user is None:
            return "neither a user nor a profile or history was given"
        if table is None:
            return "the bundle keeps no users (export.users: false)"
        return f"the user {user!r} is not among the {len(table)} users of the bundle"

    def _frame(
        self, positions: Positions, scores: Scores, columns: Sequence[str] | None, source: str, reason: str
    ) -> pd.DataFrame:
        rows = self._items.rows(positions)
        frame = pd.DataFrame({self._items.key: _to_pandas(rows[self._items.key])})
        frame[SCORE] = scores
        frame[POSITION] = np.arange(1, len(positions) + 1)
        for name in self._described(columns):
            frame[f"item_{name}" if name in (SCORE, POSITION) else name] = _to_pandas(rows[name])
        frame.attrs.update(source=source, reason=reason)
        return frame

    def _described(self, columns: Sequence[str] | None) -> list[str]:
        schema = self._items.table.schema
        if columns is None:
            return [
                field.name for field in schema if field.name != self._items.key and not _is_nested(field.type)
            ]
        for name in columns:
            if name not in schema.names:
                raise SchemaError(f"the item table has no column {name!r}.{nearest(name, schema.names)}")
        return [name for name in columns if name != self._items.key]


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def _to_pandas(column: pa.ChunkedArray) -> pd.Series[Any]:
    """A column as pandas has it, but whole numbers stay whole where some are missing."""
    integers = {pa.int64(): pd.Int64Dtype()} if column.null_count else {}
    return column.to_pandas(types_mapper=integers.get)
