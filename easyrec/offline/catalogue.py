"""What ranked lists are judged on: users, items, what they took before and after, and what items are like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from easyrec.config.pipeline import PipelineConfig
from easyrec.data.bound import BoundDataset
from easyrec.errors import DataError
from easyrec.export.tables import KeyedTable
from easyrec.features.encoder import Encoder
from evaluation import Interactions, ItemAttributes


@dataclass(frozen=True)
class Catalogue:
    """What ranked lists are judged on: users by code, items by code.

    Attributes:
        users: Raw columns of the judged users, in the order of their codes.
        items: The items, in the order of their codes.
        relevant: CSR [users, items], gain of what each user took in the evaluation data.
        seen: CSR [users, items], what each user took in the training data.
        interactions: What users took in the training data, for the baselines; judged users come first.
        attributes: Tokens of each item, or None when no feature describes items.
    """

    users: pa.Table
    items: KeyedTable
    relevant: sparse.csr_array
    seen: sparse.csr_array
    interactions: Interactions
    attributes: ItemAttributes | None


def read_catalogue(config: PipelineConfig, data: BoundDataset, encoder: Encoder) -> Catalogue:
    """Reads users, items and what is relevant.

    Args:
        config: The resolved configuration.
        data: The data; must have evaluation rows.
        encoder: The fitted features, which describe items.

    Raises:
        DataError: Users or items have no keys.
    """
    return _Reader(config, data, encoder).catalogue()


class _Reader:
    def __init__(self, config: PipelineConfig, data: BoundDataset, encoder: Encoder) -> None:
        self.config = config
        self._data = data
        self._encoder = encoder

    def catalogue(self) -> Catalogue:
        """Users, items and what is relevant; read once."""
        keys, items = self.config.data.keys, self._data.items
        if keys.user is None or keys.item is None or items is None:
            raise DataError("ranking needs `data.keys.user` and `data.keys.item`")
        table = KeyedTable(items, keys.item)
        hits = self._data.relevant()
        judged = self._judged(hits[keys.user])
        hits = hits.filter(pc.is_in(hits[keys.user], value_set=judged))
        users = self._data.user_snapshot(judged)
        taken = self._data.relevant(self._data.train)
        others = pc.unique(taken[keys.user])
        others = others.filter(pc.invert(pc.is_in(others, value_set=judged)))
        everyone = KeyedTable(pa.table({keys.user: pa.concat_arrays([judged, others])}), keys.user)
        shape = (len(everyone), len(table))
        return Catalogue(
            users=users,
            items=table,
            relevant=_matrix(
                everyone.positions(hits[keys.user]),
                table.positions(hits[keys.item]),
                hits["gain"].to_numpy(),
                shape,
            ),
            seen=_seen(users["seen"], table, shape),
            interactions=self._interactions(taken, everyone, table),
            attributes=self._attributes(table),
        )

    def _interactions(self, taken: pa.Table, users: KeyedTable, items: KeyedTable) -> Interactions:
        """What users took in training, each pair with the time it was last taken."""
        keys = self.config.data.keys
        who, what = users.positions(taken[keys.user]), items.positions(taken[keys.item])
        known = (who >= 0) & (what >= 0)
        who, what = who[known], what[known]
        times = self._latest_times(who * len(items) + what, users, items)
        return Interactions.of(who, what, n_users=len(users), n_items=len(items), times=times)

    def _latest_times(
        self, pairs: npt.NDArray[np.int64], users: KeyedTable, items: KeyedTable
    ) -> npt.NDArray[np.float64] | None:
        """When each pair (user * items + item) was last in the training rows; None without times."""
        keys = self.config.data.keys
        if keys.time is None or keys.user is None or keys.item is None or not len(pairs):
            return None
        order = np.argsort(pairs)
        latest = np.full(len(pairs), -np.inf)
        for chunk in self._data.train.chunks(columns=[keys.user, keys.item, keys.time]):
            who, what = users.positions(chunk[keys.user]), items.positions(chunk[keys.item])
            row = np.where((who >= 0) & (what >= 0), who * len(items) + what, -1)
            place = order[np.minimum(np.searchsorted(pairs, row, sorter=order), len(pairs) - 1)]
            found = pairs[place] == row
            np.maximum.at(latest, place[found], _seconds(chunk[keys.time])[found])
        finite = np.isfinite(latest)
        return np.where(finite, latest, latest[finite].min()) if finite.any() else None

    def _judged(self, users: pa.ChunkedArray) -> pa.Array:
        """The users to judge: all with something relevant, or as many as the configuration allows."""
        judged = pc.unique(users)
        limit = self.config.evaluation.max_users
        if limit is None or len(judged) <= limit:
            return judged
        drawn = np.random.default_rng(self.config.training.seed).choice(len(judged), limit, replace=False)
        return judged.take(pa.array(np.sort(drawn)))

    def _attributes(self, items: KeyedTable) -> ItemAttributes | None:
        """Ids of the features that describe items, the item key's own left out, as tokens."""
        key = self.config.data.keys.item
        described = [
            output.feature
            for output in self._encoder.schema.ids
            if output.side == "item" and self.config.features[output.feature].columns(output.feature) != [key]
        ]
        if not described:
            return None
        batch = self._encoder.encode_table(items.table, features=described)
        tokens: list[list[str]] = [[] for _ in range(len(items))]
        single = [output.feature for output in self._encoder.schema.select(set(described)).single_ids]
        for column, feature in enumerate(single):
            for row, identity in enumerate(batch.dense["ids"][:, column].tolist()):
                if identity:
                    tokens[row].append(f"{feature}={identity}")
        for feature, ragged in batch.ragged.items():
            ends = np.cumsum(ragged.row_lengths)
            for row, (end, length) in enumerate(zip(ends.tolist(), ragged.row_lengths.tolist(), strict=True)):
                tokens[row] += [
                    f"{feature}={identity}" for identity in ragged.values[end - length : end] if identity
                ]
        return ItemAttributes.of_tokens(tokens)


def _matrix(
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    shape: tuple[int, int],
) -> sparse.csr_array:
    """A CSR matrix; entries of unknown users or items (-1) are left out."""
    known = (rows >= 0) & (columns >= 0)
    return sparse.csr_array(sparse.coo_array((values[known], (rows[known], columns[known])), shape=shape))


def _seen(lists: pa.ChunkedArray, items: KeyedTable, shape: tuple[int, int]) -> sparse.csr_array:
    """What the judged users have seen; they have the first codes."""
    column = lists.combine_chunks()
    owners = pc.list_parent_indices(column).to_numpy(zero_copy_only=False).astype(np.int64)
    positions = items.positions(pc.list_flatten(column))
    return _matrix(owners, positions, np.ones(len(owners)), shape)


def _seconds(times: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Times as numbers in whatever unit they are in; a missing one is the earliest."""
    if pa.types.is_temporal(times.type):
        times = pc.cast(times, pa.timestamp("us"), safe=False).cast(pa.int64())
    return np.nan_to_num(np.asarray(pc.cast(times, pa.float64()).to_numpy(), np.float64), nan=-np.inf)
