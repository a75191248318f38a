"""`cross`: the combination of several columns as one hashed id."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from easyrec.config.features import CrossFeature, HashVocabulary
from easyrec.features.base import Counter, Transform
from easyrec.features.inputs import InputSpec
from easyrec.features.outputs import IdsOutput
from easyrec.features.scope import Scope
from easyrec.features.tensors import Tensor, as_text

SEPARATOR = "\x1f"
"""Stands between the parts of the text that is hashed (ASCII's unit separator)."""


class CrossTransform(Transform[CrossFeature]):
    """1 + Fingerprint64 of the parts' texts joined with `SEPARATOR`, modulo buckets; 0 when any part is missing."""

    def __init__(self, config: CrossFeature, scope: Scope) -> None:
        super().__init__(config, scope)
        self.parts = tuple(scope.category(column) for column in config.of)
        self.table = scope.table(config)
        self.vocabulary = scope.vocabulary(self.table.name, HashVocabulary(buckets=config.buckets))

    def inputs(self) -> tuple[InputSpec, ...]:
        """The columns that are crossed."""
        return self.parts

    def output(self) -> IdsOutput:
        """One id a row."""
        table = self.table
        return IdsOutput(
            self.name, table.name, self.vocabulary.rows, table.dim, self.side, initializer=table.initializer
        )

    def transform(self, columns: Mapping[str, Tensor], count: Counter) -> Tensor:
        """[B] string or int64 each to [B] int32."""
        texts = [as_text(columns[part.name]) for part in self.parts]
        absent = tf.reduce_any(tf.equal(tf.stack(texts), ""), axis=0)
        count("missing", absent)
        return self.vocabulary.lookup(tf.where(absent, "", tf.strings.join(texts, SEPARATOR)))
