"""Candidates as arrays: rows of the catalogue, scores, and which sources found each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

MAX_SOURCES = 63


@dataclass(frozen=True)
class Found:
    """What a source found, best first.

    Attributes:
        rows: [K] rows of the ranking model's catalogue; -1 for items that it does not know.
        scores: [K] in the source's own scale.
    """

    rows: Rows
    scores: Scores

    @classmethod
    def nothing(cls) -> Found:
        """No candidates."""
        return cls(np.empty(0, np.int64), np.empty(0, np.float32))


@dataclass(frozen=True)
class Candidates:
    """Different items, best first.

    Attributes:
        rows: [M] rows of the catalogue.
        scores: [M] what they are ordered by.
        masks: [M] uint64, bit s set where source s found the item.
        found: [S, M] the score each source gave, NaN where it did not find the item.
    """

    rows: Rows
    scores: Scores
    masks: npt.NDArray[np.uint64]
    found: Scores

    @classmethod
    def of_rows(cls, rows: Rows) -> Candidates:
        """Given items, which no source found."""
        size = len(rows)
        return cls(
            rows,
            np.zeros(size, np.float32),
            np.zeros(size, np.uint64),
            np.empty((0, size), np.float32),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: npt.NDArray[np.int64] | Mask | slice) -> Candidates:
        """Some of them, in the order of `index`."""
        return Candidates(self.rows[index], self.scores[index], self.masks[index], self.found[:, index])

    def with_scores(self, scores: Scores) -> Candidates:
        """The same items with other scores, in the same order."""
        return replace(self, scores=scores)

    def ordered(self) -> Candidates:
        """Best first; equal scores, and those that are no numbers, in the order they have."""
        scores = np.where(np.isnan(self.scores), -np.inf, self.scores)
        return self.take(np.argsort(-scores, kind="stable"))

    def from_source(self, source: int) -> Mask:
        """[M] whether a source found each."""
        return np.asarray((self.masks >> np.uint64(source)) & np.uint64(1), bool)


def merge(
    parts: Sequence[tuple[int, Found, int, float]], sources: int, by: str = "rank", limit: int = 500
) -> Candidates:
    """What several sources found as one list of different items.

    `rank` orders by reciprocal rank fusion, sum of weight / (60 + rank) over the sources that found an item (Cormack,
    Clarke and Buettcher 2009), which needs no common scale of scores. `priority` takes the sources one after the
    other; `round_robin` their first items, then their second ones.

    Args:
        parts: For each source that answered: its number, what it found, at most how many of it, and its weight.
        sources: How many sources there are.
        by: `rank`, `priority` or `round_robin`.
        limit: At most this many.
    """
    rows, ranks, owners, scores, weights = [], [], [], [], []
    for number, found, quota, weight in parts:
        kept = np.flatnonzero(found.rows >= 0)[:quota]
        rows.append(found.rows[kept])
        ranks.append(np.arange(len(kept)))
        owners.append(np.full(len(kept), number))
        scores.append(found.scores[kept])
        weights.append(np.full(len(kept), weight))
    if not rows:
        return Candidates(
            np.empty(0, np.int64),
            np.empty(0, np.float32),
            np.empty(0, np.uint64),
            np.empty((sources, 0), np.float32),
        )
    row, rank, owner = np.concatenate(rows), np.concatenate(ranks), np.concatenate(owners)
    distinct, place = np.unique(row, return_inverse=True)
    fused = np.bincount(place, np.concatenate(weights) / (60.0 + rank), len(distinct))
    if by == "rank":
        order = np.argsort(-fused, kind="stable")
    else:
        key = owner * 1e9 + rank if by == "priority" else rank * (sources + 1.0) + owner
        best = np.full(len(distinct), np.inf)
        np.minimum.at(best, place, key)
        order = np.argsort(best, kind="stable")
    found_by = np.full((sources, len(distinct)), np.nan, np.float32)
    found_by[owner[::-1], place[::-1]] = np.concatenate(scores)[
        ::-1
    ]  # the better of two from one source stays
    masks = np.zeros(len(distinct), np.uint64)
    np.bitwise_or.at(masks, place, np.uint64(1) << owner.astype(np.uint64))
    merged = Candidates(distinct, fused.astype(np.float32), masks, found_by)
    return merged.take(order[:limit])
