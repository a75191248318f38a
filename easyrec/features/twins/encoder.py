"""All twins of a pipeline together: the NumPy form of `Encoder.encode`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from easyrec.features.batch import EncodedBatch
from easyrec.features.outputs import FeatureSchema
from easyrec.features.twins.base import Columns, Twin


class TwinEncoder:
    """Raw arrays to the encoded batch that `easyrec.features.outputs` describes.

    Args:
        schema: The outputs of all features.
        twins: A twin for each feature.
    """

    def __init__(self, schema: FeatureSchema, twins: Mapping[str, Twin[Any]]) -> None:
        self.schema = schema
        self._twins = dict(twins)
        self._selections: dict[frozenset[str], FeatureSchema] = {}

    def _selected(self, features: frozenset[str]) -> FeatureSchema:
        schema = self._selections.get(features)
        if schema is None:
            schema = self._selections[features] = self.schema.select(set(features))
        return schema

    def encode(self, columns: Columns, rows: int, features: Collection[str] | None = None) -> EncodedBatch:
        """Encodes rows.

        Args:
            columns: Arrays by the names of the inputs, see `Twin.encode`.
            rows: How many rows there are.
            features: Encode these only; all unless given.

        Returns:
            `ids` and `numbers`, where the features have any, and the features with several ids a row.
        """
        schema = self.schema if features is None else self._selected(frozenset(features))
        encoded: dict[str, Any] = {
            output.feature: self._twins[output.feature].encode(columns) for output in schema.outputs
        }
        dense: dict[str, Any] = {}
        if schema.single_ids:
            ids = np.empty((rows, len(schema.single_ids)), np.int32)
            for position, output in enumerate(schema.single_ids):
                ids[:, position] = encoded[output.feature]
            dense["ids"] = ids
        if schema.numbers:
            dense["numbers"] = np.concatenate([encoded[output.feature] for output in schema.numbers], axis=1)
        return EncodedBatch(
            rows, dense, {output.feature: encoded[output.feature] for output in schema.multi_ids}
        )
