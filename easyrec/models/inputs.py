"""What a model sees: embeddings, numbers and sequences, by feature, side or all together."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import NamedTuple

import tensorflow as tf

from easyrec.config.features import Side
from easyrec.errors import ConfigError, Problem, nearest
from easyrec.features.outputs import FeatureSchema, IdsOutput


@dataclass(frozen=True)
class Block:
    """Values of several features side by side.

    Attributes:
        features: The feature of each position of axis 1; a feature of several numbers takes several positions.
        values: [B, F] or [B, F, D].
    """

    features: tuple[str, ...]
    values: tf.Tensor

    def select(self, features: Container[str]) -> Block | None:
        """The positions of `features`, or None if there is none; without a copy when there is nothing to leave out."""
        kept = [index for index, feature in enumerate(self.features) if feature in features]
        if not kept:
            return None
        if len(kept) == len(self.features):
            return self
        # Slices of neighbours: their gradient is a padding, where that of a gather would be a slow scatter.
        parts = [self.values[:, start:stop] for start, stop in _runs(kept)]
        values = parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)
        return Block(tuple(self.features[index] for index in kept), values)


class SequenceInput(NamedTuple):
    """A behaviour sequence.

    Attributes:
        values: [B, L, D] embeddings, oldest first.
        mask: [B, L] 1 where there is a value, else 0.
        of: The id feature whose table it shares, or None.
    """

    values: tf.Tensor
    mask: tf.Tensor
    of: str | None


class ModelInputs:
    """The inputs of one batch of B rows; made by `InputAssembler` inside the compiled function.

    Args:
        schema: The features.
        blocks: Embeddings [B, F, D]: several blocks where widths differ or features come from several places.
        linear: Linear terms [B, F, U].
        bias: [U], or None when there are no linear terms.
        numbers: [B, K] numbers that have no embedding.
        sequences: Sequences by feature; each is in `blocks` too, pooled.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        blocks: Sequence[Block],
        linear: Sequence[Block],
        bias: tf.Tensor | None,
        numbers: Block,
        sequences: Mapping[str, SequenceInput],
    ) -> None:
        self.schema = schema
        self._blocks = tuple(blocks)
        self._linear = tuple(linear)
        self._bias = bias
        self._numbers = numbers
        self.sequences = dict(sequences)

    @property
    def features(self) -> set[str]:
        """Names of all features in these inputs."""
        return {output.feature for output in self.schema.outputs}

    @cached_property
    def fields(self) -> tf.Tensor:
        """Embeddings [B, F, D]: single ids, then pooled tags and sequences, then embedded numbers.

        Raises:
            ConfigError: There is no embedding, or their widths differ.
        """
        if not self._blocks:
            raise ConfigError(
                "the model combines embeddings, but no feature has one; add an `id` feature, or give a number "
                "`buckets` or `embedding: true`"
            )
        self._require_equal_widths()
        return _joined(self._blocks)

    @cached_property
    def flat(self) -> tf.Tensor:
        """All embeddings and numbers side by side, [B, sum of all widths + K].

        Raises:
            ConfigError: There is nothing.
        """
        parts = [_flattened(block.values) for block in self._blocks]
        if self._numbers.features:
            parts.append(self._numbers.values)
        if not parts:
            raise ConfigError("the model has no features; give it some, or check `model.features`")
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)

    @property
    def numbers(self) -> tf.Tensor:
        """Numbers that have no embedding, [B, K]; K may be 0."""
        return self._numbers.values

    @cached_property
    def linear(self) -> tf.Tensor:
        """The linear part [B, U]: bias, plus the weight of each value, plus each number times its weight.

        A sequence that shares the table of an id feature has no part in it: its values would add the weights that
        the candidate's own value has.

        Raises:
            ConfigError: The model does not declare `uses_linear`.
        """
        if self._bias is None:
            raise ConfigError("the model reads `inputs.linear`, so its class must set `uses_linear = True`")
        total = self._bias
        for block in self._linear:
            total = total + tf.reduce_sum(block.values, axis=1)
        return total

    def embedding(self, feature: str) -> tf.Tensor:
        """The embedding [B, D] of one feature; [B, w · D] of an embedded number with w columns.

        Raises:
            ConfigError: The feature has no embedding.
        """
        for block in self._blocks:
            kept = block.select({feature})
            if kept is not None:
                return _flattened(kept.values)
        known = {name for block in self._blocks for name in block.features}
        raise ConfigError(f"no embedding of a feature {feature!r}.{nearest(feature, known)}")

    def select(self, features: Iterable[str]) -> ModelInputs:
        """The same inputs restricted to the named features."""
        kept = set(features)
        numbers = self._numbers.select(kept) or Block((), self._numbers.values[:, :0])
        return ModelInputs(
            self.schema.select(kept),
            _selected(self._blocks, kept),
            _selected(self._linear, kept),
            self._bias,
            numbers,
            {name: sequence for name, sequence in self.sequences.items() if name in kept},
        )

    def drop(self, features: Iterable[str]) -> ModelInputs:
        """The same inputs without the named features."""
        return self.select(self.features - set(features))

    def side(self, *sides: Side) -> ModelInputs:
        """The same inputs restricted to the features of the named sides."""
        return self.select(output.feature for output in self.schema.outputs if output.side in sides)

    def _require_equal_widths(self) -> None:
        width = self._blocks[0].values.shape[-1]
        problems = [
            Problem(
                f"features.{feature}.embedding_dim",
                f"the model needs embeddings of one width: this one is {block.values.shape[-1]} wide, that of "
                f"{self._blocks[0].features[0]!r} {width}; give both the same, or set `embedding.dim` only",
            )
            for block in self._blocks
            if block.values.shape[-1] != width
            for feature in dict.fromkeys(block.features)
        ]
        if problems:
            raise ConfigError(problems)


def matching_features(schema: FeatureSchema, patterns: Iterable[str] | None, path: str) -> set[str]:
    """The features whose names match one of the patterns.

    Args:
        schema: All features.
        patterns: Names, or patterns with `*` and `?`; None for all features.
        path: Dotted path of the patterns in the configuration, for the error.

    Raises:
        ConfigError: A pattern matches nothing.
    """
    names = [output.feature for output in schema.outputs]
    if patterns is None:
        return set(names)
    matches = {pattern: {name for name in names if fnmatchcase(name, pattern)} for pattern in patterns}
    problems = [
        Problem(path, f"no feature is called or matches {pattern!r}.{nearest(pattern, names)}")
        for pattern, found in matches.items()
        if not found
    ]
    if problems:
        raise ConfigError(problems)
    return set().union(*matches.values())


def table_owner(schema: FeatureSchema, sequence: IdsOutput) -> str | None:
    """The single-valued feature whose table a sequence shares, or None if the table is its own."""
    owners = (output.feature for output in schema.single_ids if output.table == sequence.table)
    return next(owners, None)


def _runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Increasing indices as ranges [start, stop)."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs


def _selected(blocks: Iterable[Block], features: set[str]) -> list[Block]:
    return [kept for block in blocks if (kept := block.select(features)) is not None]


def _joined(blocks: Sequence[Block]) -> tf.Tensor:
    return blocks[0].values if len(blocks) == 1 else tf.concat([block.values for block in blocks], axis=1)


def _flattened(fields: tf.Tensor) -> tf.Tensor:
    """[B, F, D] as [B, F · D]."""
    return tf.reshape(fields, [-1, fields.shape[1] * fields.shape[2]])
