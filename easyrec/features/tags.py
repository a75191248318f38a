"""`tags`: several categorical values a row, with or without weights."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from easyrec.config.features import TagsFeature
from easyrec.errors import ConfigError, Problem
from easyrec.features.base import Counter, Transform
from easyrec.features.inputs import InputSpec
from easyrec.features.lists import cut, drop_missing, pieces_reader, pieces_tensor
from easyrec.features.outputs import IdsOutput
from easyrec.features.scope import Scope
from easyrec.features.tensors import Tensor, WeightedIds, as_ragged, as_text, missing
from easyrec.features.vocabulary import VocabularyFitter

_NUMBER = r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*"


class TagsTransform(Transform[TagsFeature]):
    """Several categories to several ids.

    Weights come from a second column (`weights`), from the items of a map column, or from the text of each value
    (`key:weight`, cut at the last separator). A weight that is missing or not a number is 1 and counted as
    `malformed`.
    """

    def __init__(self, config: TagsFeature, scope: Scope) -> None:
        super().__init__(config, scope)
        column = config.column or scope.name
        self.input = scope.categories(column, config.separator)
        self.weights: InputSpec | None = None
        if self.input.part == "keys":
            self.weights = scope.weights(column, self.input)
        elif config.weights is not None:
            if not self.input.list:
                raise self._problem(
                    "weights", "needs a list column; text with a separator has `weight_separator`"
                )
            self.weights = scope.weights(config.weights, self.input)
        if config.weight_separator is not None and self.input.kind != "string":
            raise self._problem("weight_separator", f"splits text, but {column!r} holds {scope.kind(column)}")
        self.table = scope.table(config)
        self.vocabulary = scope.vocabulary(self.table.name, config.vocabulary)
        escaped = re.escape(config.weight_separator or "")
        self._pair = rf"(?s)^(.*){escaped}(.*)$"
        self._weighted_pair = rf"(?s).*{escaped}{_NUMBER}"

    def inputs(self) -> tuple[InputSpec, ...]:
        """The column, and the one with weights if there is one."""
        return (self.input,) if self.weights is None else (self.input, self.weights)

    def output(self) -> IdsOutput:
        """Several ids a row."""
        return IdsOutput(
            self.name,
            self.table.name,
            self.vocabulary.rows,
            self.table.dim,
            self.side,
            pooling=self.config.pooling,
            max_length=self.config.max_length,
            weighted=self.weights is not None or self.config.weight_separator is not None,
            initializer=self.table.initializer,
        )

    def fitter(self) -> VocabularyFitter:
        """Counts the values."""
        key = self._keys if self.config.weight_separator is not None else None
        return VocabularyFitter(
            self.vocabulary, self.name, pieces_reader(self.input, self.config.separator, key)
        )

    def transform(self, columns: Mapping[str, Tensor], count: Counter) -> Tensor:
        """[B], [B, L] or ragged to a RaggedTensor [B, None] int32, with weights if there are any."""
        source = columns[self.input.name]
        raw = pieces_tensor(source, self.config.separator)
        parallel = [raw]
        malformed = None
        if self.config.weight_separator is not None:
            parallel, malformed = self._split_weights(raw)
        elif self.weights is not None:
            weights = as_ragged(columns[self.weights.name])
            malformed = missing(weights.flat_values)
            flat = tf.where(malformed, 1.0, tf.cast(weights.flat_values, tf.float32))
            parallel = [raw, raw.with_flat_values(flat)]
        if malformed is not None:
            parallel.append(raw.with_flat_values(malformed))
        kept = cut(
            drop_missing(parallel, source, count),
            self.config.max_length, latest=False, count=count,
        )  # fmt: skip
        ids = kept[0].with_flat_values(self.vocabulary.lookup(kept[0].flat_values))
        count("missing", tf.equal(ids.row_lengths(), 0))
        count("unseen", ids.with_flat_values(self.vocabulary.unseen(ids.flat_values)))
        if malformed is None:
            return ids
        count("malformed", kept[2])
        return WeightedIds(ids, kept[1])

    def _split_weights(self, pieces: Tensor) -> tuple[list[Tensor], Tensor]:
        """Keys and weights of `key:weight` texts, and which weights are malformed."""
        flat = as_text(pieces.flat_values)
        proper = tf.strings.regex_full_match(flat, self._weighted_pair)
        keys = tf.strings.strip(tf.strings.regex_replace(flat, self._pair, r"\1", replace_global=False))
        digits = tf.strings.strip(tf.strings.regex_replace(flat, self._pair, r"\2", replace_global=False))
        weights = tf.strings.to_number(tf.where(proper, digits, "1"), tf.float32)
        finite = tf.math.is_finite(weights)  # 1e999 is a number in text only
        weights = tf.where(finite, weights, 1.0)
        malformed = tf.logical_not(tf.logical_and(proper, finite))
        return [pieces.with_flat_values(keys), pieces.with_flat_values(weights)], malformed

    def _keys(self, pieces: pa.Array) -> pa.Array:
        """The Arrow twin of the keys of `_split_weights`, for fitting."""
        return pc.ascii_trim_whitespace(
            pc.replace_substring_regex(pieces, self._pair, r"\1", max_replacements=1)
        )

    def _problem(self, option: str, message: str) -> ConfigError:
        return ConfigError([Problem(f"features.{self.name}.{option}", message)])
