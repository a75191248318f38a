"""Sampled negatives: rows with another item and label 0, so that a ranker learns what is not chosen.

Every draw is a hash of the seed, the row's position and the number of the draw: the same seed gives the same negatives,
whatever the order and the size of chunks.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from easyrec.config.data import NegativesConfig
from easyrec.data.hashing import mix
from easyrec.data.keys import KeyIndex
from easyrec.errors import DataError

MAX_SEEN_PAIRS = 50_000_000
"""With more (user, item) pairs than this, at 8 bytes each, a user's own items may be drawn as negatives."""
_TRIES = 50


class SeenItems:
    """Which items each user chose in training, as one sorted array.

    Args:
        users: User keys, one an interaction.
        items: Item positions in the catalogue, one an interaction; -1 for items outside.
        num_items: Size of the catalogue.
    """

    def __init__(self, users: pa.Array, items: NDArray[np.int64], num_items: int) -> None:
        self._index = KeyIndex(users.unique())
        self._num_items = num_items
        codes = self._index.find(users)
        known = (items >= 0) & (codes >= 0)
        self._pairs = np.unique(codes[known] * num_items + items[known])

    def has(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each user (a position from `find`, -1 for an unknown one) chose the item."""
        if len(self._pairs) == 0:
            return np.zeros(len(users), bool)
        pairs = users * self._num_items + items
        slots = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        return (users >= 0) & (self._pairs[slots] == pairs)

    def find(self, users: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
        """Positions of user keys."""
        return self._index.find(users)


class NegativeSampler:
    """Draws items for rows.

    Args:
        config: How many, and from which distribution.
        counts: Training rows of each item of the catalogue.
        seen: What users chose, or None when that is too much to hold.
    """

    def __init__(self, config: NegativesConfig, counts: NDArray[np.int64], seen: SeenItems | None) -> None:
        self.per_row = config.per_row
        self.num_items = len(counts)
        self.seen = seen
        if self.num_items < 2:
            raise DataError(f"negatives need a catalogue of at least 2 items, there are {self.num_items}")
        self._cumulative: NDArray[np.float64] | None = None
        sampling: Literal["uniform", "popularity"] = config.sampling
        if sampling == "popularity":
            weights = np.where(counts > 0, counts.astype(np.float64) ** config.power, 0.0)
            if np.count_nonzero(weights) < 2:
                raise DataError("negatives by popularity need at least 2 items with training rows")
            self._cumulative = np.cumsum(weights) / weights.sum()

    def draw(
        self,
        positions: NDArray[np.int64],
        items: NDArray[np.int64],
        users: NDArray[np.int64] | None,
        seed: int,
    ) -> NDArray[np.int64]:
        """Items for `per_row` negatives of each row.

        Args:
            positions: [B] the rows' places in the table.
            items: [B] the rows' own items; never drawn for them.
            users: [B] positions in `seen`, or None.
            seed: Of this epoch.

        Returns:
            [B * per_row] item positions, those of one row side by side. After 50 draws that all met an item the user
            chose, any item but the row's own is taken.
        """
        own = np.repeat(items, self.per_row)
        owner = None if users is None else np.repeat(users, self.per_row)
        slots = np.repeat(positions, self.per_row) * self.per_row + np.tile(
            np.arange(self.per_row), len(positions)
        )
        keys = mix(slots, seed)
        drawn = self._item(keys, 0)
        for attempt in range(1, _TRIES):
            clash = drawn == own
            if owner is not None and self.seen is not None:
                clash |= self.seen.has(owner, drawn)
            again = np.flatnonzero(clash)
            if len(again) == 0:
                return drawn
            drawn[again] = self._item(keys[again], attempt)
        clash = drawn == own
        drawn[clash] = (drawn[clash] + 1) % self.num_items
        return drawn

    def _item(self, keys: NDArray[np.uint64], attempt: int) -> NDArray[np.int64]:
        bits = mix(keys, attempt)
        unit = (bits >> np.uint64(11)).astype(np.float64) / 2.0**53
        if self._cumulative is None:
            return np.minimum((unit * self.num_items).astype(np.int64), self.num_items - 1)
        return np.minimum(np.searchsorted(self._cumulative, unit, side="right"), self.num_items - 1)
