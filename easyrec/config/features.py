"""Features: what each input column means. One class per feature type, joined by the registry `FEATURES`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from easyrec.config.base import StrictModel, TypedConfig
from easyrec.config.columns import KIND_NAMES, LISTS, ColumnKind
from easyrec.config.embedding import MAX_DIM, Initializer
from easyrec.registry import Registry

Side = Literal["user", "item", "context"]
Pooling = Literal["sum", "mean", "max", "sqrtn"]


class FeatureConfig(TypedConfig):
    """Options that every feature has."""

    accepts: ClassVar[tuple[ColumnKind, ...]] = ()
    """Kinds of columns that this feature type reads; empty for all."""

    column: str | None = None
    """Source column; the feature's own name unless given."""
    side: Side | None = None
    """Whom it describes: `user`, `item` or `context`. Found from the keys and tables unless given."""

    @property
    def embedded(self) -> bool:
        """Whether it has an embedding."""
        return False

    def columns(self, name: str) -> list[str]:
        """The source columns of the feature called `name`."""
        return [self.column or name]

    @classmethod
    def settled(cls, written: Mapping[str, Any]) -> frozenset[str]:
        """Options that an entry leaves no choice about, so that `defaults` does not apply to them.

        Args:
            written: The entry as it was written.
        """
        return frozenset()

    def misfit(self, name: str, kinds: Mapping[str, ColumnKind]) -> str | None:
        """Why the feature called `name` cannot read its columns, with a way out; None if it can.

        Args:
            name: Name of the feature.
            kinds: What the values of each of its source columns are.
        """
        for column in self.columns(name):
            if self.accepts and kinds[column] not in self.accepts:
                return (
                    f"the column {column!r} holds {KIND_NAMES[kinds[column]]}, which `type: {self.type}` does not "
                    f"read{_way_out(kinds[column], self.accepts)}"
                )
        return None


def _way_out(kind: ColumnKind, accepts: tuple[ColumnKind, ...]) -> str:
    if kind in LISTS or kind == "map":
        return "; lists are for `type: tags` and `type: sequence`"
    if "int" not in accepts and "float" not in accepts and accepts:
        return "; single values are for `type: id` and `type: number`"
    if kind == "float":
        return "; cast it to int64 or string under `columns:` of its file, or use `type: number`"
    if kind == "string":
        return "; cast it to float64 under `columns:` of its file, or use `type: id`"
    return "; cast it under `columns:` of its file"


class EmbeddedFeature(FeatureConfig):
    """Options of features that look rows up in an embedding table."""

    @property
    def embedded(self) -> bool:
        """Whether it has an embedding."""
        return True

    embedding_dim: int | None = Field(None, ge=1, le=MAX_DIM)
    """Width of the embedding; `embedding.dim` unless given."""
    table: str | None = None
    """Name of the embedding table; features that name the same table share it. The feature's own name unless given."""
    initializer: Initializer | None = None
    """How the rows start; `embedding.initializer` unless given."""


class FittedVocabulary(StrictModel):
    """The values seen in the training data, most frequent first."""

    type: Literal["fitted"] = "fitted"
    min_count: int = Field(1, ge=1)
    """Values seen fewer times are out of vocabulary."""
    max_size: int | None = Field(None, ge=1)
    """Keep only the most frequent ones."""
    oov_buckets: int = Field(1, ge=1)
    """Ids that unseen values are hashed to."""


class ListVocabulary(StrictModel):
    """Values given in the configuration, in order."""

    type: Literal["list"] = "list"
    values: list[str | int] = Field(min_length=1)
    """The values; an integer and its decimal text are the same value."""
    oov_buckets: int = Field(1, ge=1)
    """Ids that other values are hashed to."""

    @field_validator("values")
    @classmethod
    def _different(cls, values: list[str | int]) -> list[str | int]:
        seen: set[str] = set()
        for value in map(str, values):
            if value == "":
                raise ValueError("an empty value means missing, which has an id of its own; leave it out")
            if value in seen:
                raise ValueError(
                    f"{value!r} is given twice (an integer and its decimal text are the same value)"
                )
            seen.add(value)
        return values


class FileVocabulary(StrictModel):
    """Values read from a text file, one a line, in order; copied into the bundle."""

    type: Literal["file"] = "file"
    path: str
    """The file, relative to the working directory."""
    oov_buckets: int = Field(1, ge=1)
    """Ids that other values are hashed to."""


class HashVocabulary(StrictModel):
    """No vocabulary: FarmHash Fingerprint64 of the value's text, modulo `buckets`."""

    type: Literal["hash"] = "hash"
    buckets: int = Field(ge=2)
    """How many ids values share."""


class IntegerVocabulary(StrictModel):
    """The column already holds integers from 0 to `size - 1`."""

    type: Literal["integer"] = "integer"
    size: int = Field(ge=1)
    """How many ids there are; others count as out of vocabulary."""


def _vocabulary_shorthand(value: Any) -> Any:
    if isinstance(value, list):
        return {"type": "list", "values": value}
    if value in ("fitted",):
        return {"type": "fitted"}
    if isinstance(value, dict) and "type" not in value:
        keys = {"values": "list", "path": "file", "buckets": "hash", "size": "integer"}
        kind = next((kind for key, kind in keys.items() if key in value), "fitted")
        return {"type": kind, **value}
    return value


_Vocabularies = FittedVocabulary | ListVocabulary | FileVocabulary | HashVocabulary | IntegerVocabulary
Vocabulary = Annotated[
    Annotated[_Vocabularies, Field(discriminator="type")],
    BeforeValidator(
        _vocabulary_shorthand, json_schema_input_type=_Vocabularies | list[str | int] | Literal["fitted"]
    ),
]


class IdFeature(EmbeddedFeature):
    """One categorical value: a user, an item, a city."""

    accepts: ClassVar[tuple[ColumnKind, ...]] = ("string", "int", "bool")
    type: Literal["id"] = "id"
    vocabulary: Vocabulary = FittedVocabulary()
    """Where ids come from: `fitted`, a list of values, `{path: FILE}`, `{buckets: N}`, `{size: N}`."""


class TagsFeature(EmbeddedFeature):
    """Several categorical values in one cell: a list column, a map column, or text with a separator."""

    accepts: ClassVar[tuple[ColumnKind, ...]] = ("string", "list<string>", "list<int>", "map")
    type: Literal["tags"] = "tags"
    vocabulary: Vocabulary = FittedVocabulary()
    """Where ids come from, as for `id`."""
    separator: str | None = Field(None, min_length=1)
    """Splits a text column into values."""
    weight_separator: str | None = Field(None, min_length=1)
    """Splits each value into `key<weight_separator>weight`."""
    weights: str | None = None
    """A second column with one weight per value, of equal length."""
    pooling: Pooling = "mean"
    """How the embeddings of one cell become one."""
    max_length: int | None = Field(None, ge=1)
    """Values beyond this many are cut, and counted."""

    @model_validator(mode="after")
    def _one_source_of_weights(self) -> TagsFeature:
        if self.weights is not None and self.weight_separator is not None:
            raise ValueError("give either `weights` (a column) or `weight_separator`, not both")
        return self

    def columns(self, name: str) -> list[str]:
        """The column itself, and that of the weights."""
        return [self.column or name, *([self.weights] if self.weights else [])]

    def misfit(self, name: str, kinds: Mapping[str, ColumnKind]) -> str | None:
        """As for every feature; text also needs a separator."""
        column = self.column or name
        if self.weights is not None and kinds[self.weights] not in ("list<float>", "list<int>", "string"):
            return f"`weights` must be a list of numbers; {self.weights!r} holds {KIND_NAMES[kinds[self.weights]]}"
        if kinds[column] == "string" and self.separator is None:
            return f"the column {column!r} holds text; say what stands between its values with `separator`"
        values = {**kinds, self.weights: self.accepts[0]} if self.weights else kinds
        return super().misfit(name, values)


class NumberFeature(EmbeddedFeature):
    """A number: used as it is, normalised, cut into buckets, or embedded."""

    accepts: ClassVar[tuple[ColumnKind, ...]] = ("int", "float", "bool")
    type: Literal["number"] = "number"
    normalize: Literal["none", "log1p", "zscore", "minmax"] | None = None
    """Fitted on the training data; `zscore` unless `buckets` or `boundaries` are given."""
    buckets: int | None = Field(None, ge=2)
    """Cut into this many quantile buckets, fitted; each has an embedding."""
    boundaries: list[float] | None = Field(None, min_length=1)
    """Cut at these values, increasing; each bucket has an embedding."""
    embedding: bool = False
    """Multiply the normalised number with a learned vector, so that it joins feature interactions."""
    fill: float = 0.0
    """What a missing number becomes, after normalisation; a bucketed number has a bucket of its own for missing."""

    @model_validator(mode="after")
    def _one_form(self) -> NumberFeature:
        if self.buckets is not None and self.boundaries is not None:
            raise ValueError("give either `buckets` (fitted quantiles) or `boundaries`, not both")
        if self.boundaries is not None and any(
            low >= high for low, high in zip(self.boundaries, self.boundaries[1:], strict=False)
        ):
            raise ValueError(f"`boundaries` must increase, got {self.boundaries}")
        if self.bucketized and self.embedding:
            raise ValueError("a bucketed number has an embedding per bucket already; drop `embedding: true`")
        if self.bucketized and self.normalize not in (None, "none"):
            raise ValueError("buckets do not change under normalisation; drop `normalize`")
        return self

    @property
    def embedded(self) -> bool:
        """Whether it has an embedding: one for each bucket, or one that the number is multiplied with."""
        return self.bucketized or self.embedding

    @classmethod
    def settled(cls, written: Mapping[str, Any]) -> frozenset[str]:
        """A number in buckets is neither normalised nor multiplied with a vector."""
        bucketized = written.get("buckets") is not None or written.get("boundaries") is not None
        return frozenset({"normalize", "embedding"}) if bucketized else frozenset()

    @property
    def bucketized(self) -> bool:
        """Whether the number becomes a bucket id."""
        return self.buckets is not None or self.boundaries is not None


class History(StrictModel):
    """A behaviour sequence built from the interactions: each row sees only what happened strictly before it."""

    of: str | None = None
    """Column of the interactions whose values are listed; the sequence's `of` unless given."""
    where: str | None = None
    """Only interactions for which this expression holds, such as `rating >= 4`."""
    last: int = Field(50, ge=1)
    """At most this many, the latest."""


class SequenceFeature(EmbeddedFeature):
    """An ordered list of ids, oldest first, such as the last items a user liked."""

    accepts: ClassVar[tuple[ColumnKind, ...]] = ("string", "list<string>", "list<int>")
    type: Literal["sequence"] = "sequence"
    of: str | None = None
    """The `id` feature whose vocabulary and embedding table it shares; it has its own when not given."""
    vocabulary: Vocabulary = FittedVocabulary()
    """Where ids come from when `of` is not given."""
    separator: str | None = Field(None, min_length=1)
    """Splits a text column into values."""
    max_length: int = Field(50, ge=1)
    """Longer sequences keep their latest values; what is cut is counted."""
    pooling: Pooling = "mean"
    """How models without a sequence layer make one embedding of it."""
    history: History | None = None
    """Build it from the interactions; done by default when the data have no such column."""

    @classmethod
    def settled(cls, written: Mapping[str, Any]) -> frozenset[str]:
        """A sequence of another feature's ids has its table."""
        shared = {"vocabulary", "embedding_dim", "table", "initializer"}
        return frozenset(shared) if written.get("of") is not None else frozenset()

    def misfit(self, name: str, kinds: Mapping[str, ColumnKind]) -> str | None:
        """As for every feature; text also needs a separator."""
        column = self.column or name
        if kinds[column] == "string" and self.separator is None:
            return f"the column {column!r} holds text; say what stands between its values with `separator`"
        return super().misfit(name, kinds)


class CrossFeature(EmbeddedFeature):
    """The combination of two or more columns as one hashed id."""

    accepts: ClassVar[tuple[ColumnKind, ...]] = ("string", "int", "bool")
    type: Literal["cross"] = "cross"
    of: list[str] = Field(min_length=2)
    """The columns that are crossed."""
    buckets: int = Field(ge=2)
    """How many ids the combinations share."""

    def columns(self, name: str) -> list[str]:
        """The columns that are crossed."""
        return list(self.of)


FEATURES: Registry[FeatureConfig] = Registry("feature type", FeatureConfig)
FEATURES.register("id", IdFeature, "easyrec.features.id:IdTransform")
FEATURES.register("tags", TagsFeature, "easyrec.features.tags:TagsTransform")
FEATURES.register("number", NumberFeature, "easyrec.features.number:NumberTransform")
FEATURES.register("sequence", SequenceFeature, "easyrec.features.sequence:SequenceTransform")
FEATURES.register("cross", CrossFeature, "easyrec.features.cross:CrossTransform")
