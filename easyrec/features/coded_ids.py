"""Ids of a batch as places among the distinct ones of each table, as shards hold them.

What a batch needs of a table are the rows of its distinct ids. Which they are is found once, when shards are prepared,
and not by every worker in every epoch; and they are sorted, so that a server reaches its rows in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import tensorflow as tf

from easyrec.features.batch import EncodedBatch
from easyrec.features.outputs import FeatureSchema

IDS = "ids"


@dataclass(frozen=True)
class Dictionary:
    """Whose ids are numbered together: the outputs that share a table.

    Attributes:
        table: Its name.
        columns: Columns of a batch's `ids`.
        features: Multi-valued features.
    """

    table: str
    columns: tuple[int, ...]
    features: tuple[str, ...]


@dataclass(frozen=True)
class CodedIds:
    """The ids of a batch, in a graph.

    Attributes:
        dictionaries: Whose ids, [T].
        distinct: The distinct ids of each dictionary in turn, ascending, [U of all].
        sizes: How many each has, [T] int32.
        places: Where an id lies among those of its dictionary, int32: [B, F] under `ids`, and [V] by multi-valued
            feature.
    """

    dictionaries: tuple[Dictionary, ...]
    distinct: tf.Tensor
    sizes: tf.Tensor
    places: Mapping[str, tf.Tensor]

    def ids(self) -> dict[str, tf.Tensor]:
        """The ids themselves, in the shape of `places`."""
        starts = tf.cumsum(self.sizes, exclusive=True)
        columns, features = owners(self.dictionaries)
        return {
            name: tf.gather(
                self.distinct, places + tf.gather(starts, columns if name == IDS else features[name])
            )
            for name, places in self.places.items()
        }


def dictionaries(schema: FeatureSchema) -> tuple[Dictionary, ...]:
    """One for each table, in the order in which the outputs name them."""
    return tuple(
        Dictionary(
            table,
            tuple(column for column, output in enumerate(schema.single_ids) if output.table == table),
            tuple(output.feature for output in schema.multi_ids if output.table == table),
        )
        for table in dict.fromkeys(output.table for output in schema.ids)
    )


def owners(numbered: Sequence[Dictionary]) -> tuple[npt.NDArray[np.int32], dict[str, int]]:
    """Which dictionary each column of `ids` belongs to, [F], and each multi-valued feature."""
    columns = {column: index for index, one in enumerate(numbered) for column in one.columns}
    features = {feature: index for index, one in enumerate(numbered) for feature in one.features}
    return np.array([columns[column] for column in sorted(columns)], np.int32), features


def code(
    batch: EncodedBatch, numbered: Sequence[Dictionary]
) -> tuple[EncodedBatch, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """A batch with places instead of ids; the distinct ids, and how many each dictionary has."""
    ids = batch.dense.get(IDS, np.empty((batch.num_rows, 0), np.int32))
    places, ragged, distinct = np.empty_like(ids), dict(batch.ragged), []
    for one in numbered:
        own = ids[:, list(one.columns)]
        parts = [own.reshape(-1), *(batch.ragged[feature].values for feature in one.features)]
        codes, found = pd.factorize(np.concatenate(parts), sort=True)
        distinct.append(found)
        ends = np.cumsum([len(part) for part in parts])
        first, *others = np.split(codes.astype(np.int32), ends[:-1])
        places[:, list(one.columns)] = first.reshape(own.shape)
        for feature, values in zip(one.features, others, strict=True):
            ragged[feature] = replace(ragged[feature], values=values)
    dense = {**batch.dense, IDS: places} if IDS in batch.dense else batch.dense
    sizes = np.array([len(found) for found in distinct], np.int32)
    return EncodedBatch(batch.num_rows, dense, ragged), np.concatenate(distinct).astype(np.int32), sizes


def decode(
    batch: EncodedBatch,
    numbered: Sequence[Dictionary],
    distinct: npt.NDArray[np.int32],
    sizes: npt.NDArray[np.int32],
) -> EncodedBatch:
    """The batch that `code` was given."""
    starts = np.cumsum(sizes, dtype=np.int32) - sizes
    columns, features = owners(numbered)
    dense = dict(batch.dense)
    if IDS in dense:
        dense[IDS] = distinct[dense[IDS] + starts[columns]]
    ragged = {
        name: replace(column, values=distinct[column.values + starts[features[name]]])
        for name, column in batch.ragged.items()
    }
    return EncodedBatch(batch.num_rows, dense, ragged)
