"""What a transform is given beside its options: its name and side, the columns, the shared vocabularies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from easyrec.config.embedding import EmbeddingConfig, Initializer
from easyrec.config.features import EmbeddedFeature, FeatureConfig, Side, Vocabulary
from easyrec.errors import ConfigError, Problem, SchemaError, nearest
from easyrec.features.inputs import InputSpec, Kind, Part
from easyrec.features.vocabulary import SharedVocabularies
from easyrec.features.vocabulary import Vocabulary as FittedVocabulary

_CATEGORY: dict[str, Kind] = {
    "string": "string",
    "int": "int",
    "float": "int",
    "bool": "int",
    "timestamp": "int",
}
_NUMBER: dict[str, Kind] = {"int": "int", "float": "float", "bool": "int", "timestamp": "int"}


@dataclass(frozen=True)
class Table:
    """The embedding table of a feature: `name`, `dim` and `initializer` with the defaults filled in."""

    name: str
    dim: int
    initializer: Initializer


@dataclass(frozen=True)
class Scope:
    """The surroundings of one feature.

    Attributes:
        name: Name of the feature.
        side: Whom it describes.
        kinds: Kind of each column of the data, as `easyrec.config.columns.ColumnInfo.kind` names them.
        features: The options of all features.
        embedding: Defaults of embedding tables.
        vocabularies: Vocabularies by table.
    """

    name: str
    side: Side
    kinds: Mapping[str, str]
    features: Mapping[str, FeatureConfig]
    embedding: EmbeddingConfig
    vocabularies: SharedVocabularies

    def kind(self, column: str) -> str:
        """The kind of a column.

        Raises:
            SchemaError: The data have no such column.
        """
        if column not in self.kinds:
            raise SchemaError(
                f"feature {self.name!r}: column {column!r} is not in the data.{nearest(column, self.kinds)}"
            )
        return self.kinds[column]

    def category(self, column: str) -> InputSpec:
        """An input with one category a row.

        Raises:
            SchemaError: The column is missing or holds lists.
        """
        kind = self.kind(column)
        if kind not in _CATEGORY:
            raise self._wrong_kind(column, kind, "one value a row", "Use `type: tags` or `type: sequence`.")
        return InputSpec(column, column, _CATEGORY[kind], self.side, feature=self.name)

    def number(self, column: str) -> InputSpec:
        """An input with one number a row.

        Raises:
            SchemaError: The column is missing or holds text or lists.
        """
        kind = self.kind(column)
        if kind not in _NUMBER:
            advice = (
                f"If its text is numeric, cast it under `columns:` of its file (`{{{column}: float64}}`), "
                "else use `type: id`."
                if kind == "string"
                else "Use `type: tags` or `type: sequence`."
            )
            raise self._wrong_kind(column, kind, "a number", advice)
        return InputSpec(column, column, _NUMBER[kind], self.side, role="number", feature=self.name)

    def categories(self, column: str, separator: str | None = None) -> InputSpec:
        """An input with several categories a row: a list column, the keys of a map, or text with a separator.

        Raises:
            SchemaError: The column is missing or holds one value a row and no separator is given.
        """
        kind = self.kind(column)
        if separator is not None and kind == "string":
            return InputSpec(column, column, "string", self.side, feature=self.name)
        if kind == "map":
            return InputSpec(column, column, "string", self.side, True, part="keys", feature=self.name)
        if not kind.startswith("list<"):
            advice = "Give `separator:` to split the text." if kind == "string" else "Use `type: id`."
            raise self._wrong_kind(column, kind, "a list, a map or text with a separator", advice)
        return InputSpec(column, column, _CATEGORY[kind[5:-1]], self.side, True, feature=self.name)

    def weights(self, column: str, values: InputSpec) -> InputSpec:
        """An input with one weight for each value of `values`: another list column, or the items of its map."""
        if column != values.column:
            kind = self.kind(column)
            if kind not in ("list<int>", "list<float>"):
                raise self._wrong_kind(column, kind, "a list of numbers", "It holds one weight per value.")
        part: Part = "items" if column == values.column else "values"
        name = f"{column}.weights" if part == "items" else column
        return InputSpec(name, column, "float", self.side, True, "number", part, values.name, self.name)

    def table(self, config: EmbeddedFeature) -> Table:
        """The embedding table of a feature with the defaults filled in."""
        return Table(
            config.table or self.name,
            config.embedding_dim or self.embedding.dim,
            config.initializer or self.embedding.initializer,
        )

    def table_of(self, feature: str) -> tuple[Table, EmbeddedFeature]:
        """The table and the options of another feature, which this one shares.

        Raises:
            ConfigError: There is no such feature, or it has no vocabulary.
        """
        known = {name for name, config in self.features.items() if hasattr(config, "vocabulary")}
        config = self.features.get(feature)
        if feature not in known or not isinstance(config, EmbeddedFeature):
            raise ConfigError(
                [
                    Problem(
                        f"features.{self.name}.of",
                        f"{feature!r} is not a feature with a vocabulary.{nearest(feature, known)}",
                    )
                ]
            )
        table = Table(
            config.table or feature,
            config.embedding_dim or self.embedding.dim,
            config.initializer or self.embedding.initializer,
        )
        return table, config

    def vocabulary(self, table: str, config: Vocabulary) -> FittedVocabulary:
        """The vocabulary of a table, made now or shared with the features that use the table already.

        Raises:
            ConfigError: Another feature gave the same table a different vocabulary.
        """
        return self.vocabularies.join(table, config, self.name)

    def _wrong_kind(self, column: str, kind: str, wanted: str, advice: str) -> SchemaError:
        return SchemaError(
            f"feature {self.name!r}: column {column!r} holds {kind}, expected {wanted}. {advice}"
        )
