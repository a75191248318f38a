"""Rules on `features`: names that features use of each other, and embedding tables they share."""

from __future__ import annotations

from collections.abc import Iterator

from easyrec.config.features import (
    CrossFeature,
    EmbeddedFeature,
    FeatureConfig,
    FittedVocabulary,
    IdFeature,
    NumberFeature,
    SequenceFeature,
)
from easyrec.config.paths import Path
from easyrec.config.patterns import alternatives, covers, is_pattern
from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import nearest

Findings = Iterator[tuple[Path, str]]


def find_feature(config: PipelineConfig, name: str) -> FeatureConfig | None:
    """The feature of that name, declared by itself or by a pattern."""
    if name in config.features:
        return config.features[name]
    patterns = (pattern for pattern in config.features if is_pattern(pattern))
    return next((config.features[pattern] for pattern in patterns if covers(pattern, name)), None)


def patterns_take_no_column(config: PipelineConfig) -> Findings:
    """A pattern stands for columns by their names, so it cannot name one."""
    for name, feature in config.features.items():
        if not is_pattern(name):
            continue
        if feature.column is not None:
            yield (
                ("features", name, "column"),
                f"{name!r} stands for all columns it matches; drop `column` or the pattern",
            )
        if isinstance(feature, CrossFeature):
            yield ("features", name), "a cross names its columns in `of`; give it a name without * ? { }"
        try:
            alternatives(name)
        except ValueError as error:
            yield ("features", name), str(error)


def sequences_are_of_ids(config: PipelineConfig) -> Findings:
    """`of` names an id feature, whose vocabulary and table the sequence takes as they are."""
    for name, feature in config.features.items():
        if not isinstance(feature, SequenceFeature) or feature.of is None:
            continue
        other = find_feature(config, feature.of)
        if other is None:
            yield (
                ("features", name, "of"),
                f"no feature {feature.of!r}.{nearest(feature.of, config.features)} "
                "A sequence shares the table of the `id` feature it names",
            )
            continue
        if not isinstance(other, IdFeature):
            yield (
                ("features", name, "of"),
                f"{feature.of!r} is a `{other.type}` feature; `of` names an `id` feature",
            )
            continue
        yield from _nothing_of_its_own(name, feature, other, config.embedding.dim)


def _nothing_of_its_own(name: str, feature: SequenceFeature, other: IdFeature, dim: int) -> Findings:
    if feature.vocabulary != FittedVocabulary():
        yield ("features", name, "vocabulary"), f"the vocabulary is that of {feature.of!r}; drop it here"
    if feature.table is not None and feature.table != (other.table or feature.of):
        yield ("features", name, "table"), f"the table is that of {feature.of!r}; drop it here"
    if feature.embedding_dim not in (None, other.embedding_dim or dim):
        yield (
            ("features", name, "embedding_dim"),
            f"the table is that of {feature.of!r}, {other.embedding_dim or dim} wide, not {feature.embedding_dim}; "
            "drop it here",
        )
    if feature.initializer not in (None, other.initializer):
        yield ("features", name, "initializer"), f"the table is that of {feature.of!r}; drop it here"


def crosses_are_of_different_columns(config: PipelineConfig) -> Findings:
    """A column crossed with itself says nothing new."""
    for name, feature in config.features.items():
        if isinstance(feature, CrossFeature) and len(set(feature.of)) < len(feature.of):
            yield ("features", name, "of"), f"a column is listed twice: {feature.of}"


def shared_tables_agree(config: PipelineConfig) -> Findings:
    """Features of one table have rows of one width, one vocabulary and one start."""
    tables: dict[str, list[tuple[str, EmbeddedFeature]]] = {}
    for name, feature in config.features.items():
        if isinstance(feature, EmbeddedFeature) and not (isinstance(feature, SequenceFeature) and feature.of):
            tables.setdefault(feature.table or name, []).append((name, feature))
    for table, members in tables.items():
        first_name, first = members[0]
        for name, feature in members[1:]:
            for option, ours, theirs in _differences(first, feature, config):
                yield (
                    ("features", name),
                    f"it shares the table {table!r} with {first_name!r}, but {option} differs: {theirs} here, "
                    f"{ours} there",
                )


def _differences(
    first: EmbeddedFeature, other: EmbeddedFeature, config: PipelineConfig
) -> Iterator[tuple[str, str, str]]:
    default = config.embedding
    for option, ours, theirs in (
        ("`embedding_dim`", first.embedding_dim or default.dim, other.embedding_dim or default.dim),
        ("`initializer`", first.initializer or default.initializer, other.initializer or default.initializer),
        ("what its ids mean", _ids(first), _ids(other)),
    ):
        if ours != theirs:
            yield option, str(ours), str(theirs)


def _ids(feature: EmbeddedFeature) -> str:
    """What the ids of a feature mean, in words; features whose words are equal may share a table."""
    vocabulary = getattr(feature, "vocabulary", None)
    if vocabulary is not None:
        return f"vocabulary {vocabulary.model_dump()}"
    if isinstance(feature, CrossFeature):
        return f"a cross into {feature.buckets} buckets"
    if isinstance(feature, NumberFeature):
        return f"a number in buckets at {feature.boundaries or 'its own quantiles'}"
    return f"type {feature.type}"


FEATURE_RULES = (
    patterns_take_no_column,
    sequences_are_of_ids,
    crosses_are_of_different_columns,
    shared_tables_agree,
)
