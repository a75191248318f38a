"""`sequence`: an ordered list of ids, oldest first."""

from __future__ import annotations

from collections.abc import Mapping

from easyrec.config.features import SequenceFeature
from easyrec.errors import ConfigError, Problem
from easyrec.features.base import Counter, Transform
from easyrec.features.inputs import InputSpec
from easyrec.features.lists import cut, drop_missing, pieces_reader, pieces_tensor
from easyrec.features.outputs import IdsOutput
from easyrec.features.scope import Scope
from easyrec.features.tensors import Tensor
from easyrec.features.vocabulary import VocabularyFitter


class SequenceTransform(Transform[SequenceFeature]):
    """A list of categories to its latest `max_length` ids; shares vocabulary and table of the feature `of`."""

    def __init__(self, config: SequenceFeature, scope: Scope) -> None:
        super().__init__(config, scope)
        self.input = scope.categories(config.column or scope.name, config.separator)
        if config.of is None:
            self.table = scope.table(config)
            self.vocabulary = scope.vocabulary(self.table.name, config.vocabulary)
        else:
            self.table, owner = scope.table_of(config.of)
            if config.embedding_dim not in (None, self.table.dim):
                raise ConfigError(
                    [
                        Problem(
                            f"features.{scope.name}.embedding_dim",
                            f"the sequence shares the table of {config.of!r}, which is {self.table.dim} wide, "
                            f"got {config.embedding_dim}; leave it out",
                        )
                    ]
                )
            self.vocabulary = scope.vocabulary(self.table.name, owner.vocabulary)  # type: ignore[attr-defined]

    def inputs(self) -> tuple[InputSpec, ...]:
        """The column."""
        return (self.input,)

    def output(self) -> IdsOutput:
        """Several ids a row, in order."""
        return IdsOutput(
            self.name,
            self.table.name,
            self.vocabulary.rows,
            self.table.dim,
            self.side,
            pooling=self.config.pooling,
            sequence=True,
            max_length=self.config.max_length,
            initializer=self.table.initializer,
        )

    def fitter(self) -> VocabularyFitter | None:
        """Counts the values, unless the vocabulary belongs to another feature."""
        if self.config.of is not None:
            return None
        return VocabularyFitter(self.vocabulary, self.name, pieces_reader(self.input, self.config.separator))

    def transform(self, columns: Mapping[str, Tensor], count: Counter) -> Tensor:
        """[B], [B, L] or ragged to a RaggedTensor [B, None] int32."""
        source = columns[self.input.name]
        values = drop_missing([pieces_tensor(source, self.config.separator)], source, count)
        (kept,) = cut(values, self.config.max_length, latest=True, count=count)
        ids = kept.with_flat_values(self.vocabulary.lookup(kept.flat_values))
        count("missing", ids.row_lengths() == 0)
        count("unseen", ids.with_flat_values(self.vocabulary.unseen(ids.flat_values)))
        return ids
