"""`id`: one categorical value a row."""

from __future__ import annotations

from collections.abc import Mapping

from easyrec.config.features import IdFeature
from easyrec.features.base import Counter, Transform
from easyrec.features.columns import read
from easyrec.features.inputs import InputSpec
from easyrec.features.outputs import IdsOutput
from easyrec.features.scope import Scope
from easyrec.features.tensors import Tensor, missing
from easyrec.features.vocabulary import VocabularyFitter


class IdTransform(Transform[IdFeature]):
    """One category to one id."""

    def __init__(self, config: IdFeature, scope: Scope) -> None:
        super().__init__(config, scope)
        self.input = scope.category(config.column or scope.name)
        self.table = scope.table(config)
        self.vocabulary = scope.vocabulary(self.table.name, config.vocabulary)

    def inputs(self) -> tuple[InputSpec, ...]:
        """The column."""
        return (self.input,)

    def output(self) -> IdsOutput:
        """One id a row."""
        table = self.table
        return IdsOutput(
            self.name, table.name, self.vocabulary.rows, table.dim, self.side, initializer=table.initializer
        )

    def fitter(self) -> VocabularyFitter:
        """Counts the values."""
        return VocabularyFitter(self.vocabulary, self.name, lambda chunk: read(chunk, self.input).values)

    def transform(self, columns: Mapping[str, Tensor], count: Counter) -> Tensor:
        """[B] string or int64 to [B] int32."""
        values = columns[self.input.name]
        ids = self.vocabulary.lookup(values)
        count("missing", missing(values))
        count("unseen", self.vocabulary.unseen(ids))
        return ids
