"""Vocabularies: which id a value has. The rules below never change silently; golden tests pin them.

| vocabulary         | 0       | next                                | then                 |
|--------------------|---------|-------------------------------------|----------------------|
| fitted, list, file | missing | 1 .. oov_buckets: out of vocabulary | the values, in order |
| hash               | missing | 1 + Fingerprint64(text) mod buckets |                      |
| integer            | missing | 1: out of range                     | 2 + value            |

A fitted vocabulary is ordered by count, most frequent first, then by the bytes of the text. An unseen value has the id
1 + Fingerprint64(text) mod oov_buckets. Fingerprint64 is FarmHash's (`tf.strings.to_hash_bucket_fast`); an integer is
hashed as its decimal text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import tensorflow as tf
from numpy.typing import NDArray

from easyrec.config import features as options
from easyrec.errors import ConfigError, DataError, Problem
from easyrec.features.counting import (
    ValueCounter,
    as_text,
    by_frequency,
    canonical_integers,
    merge,
)
from easyrec.features.inputs import MISSING_INT
from easyrec.features.tensors import Tensor, missing, tensor_of, values_tensor
from easyrec.features.tensors import as_text as tensor_text

_INTEGER = r"0|-?[1-9][0-9]{0,17}"


class Vocabulary(ABC):
    """The ids of one embedding table.

    Args:
        table: Name of the embedding table.
        config: Where ids come from.

    Attributes:
        counters: Counts of the training data, by feature, while fitting.
        counts: [rows] int64 by feature: how often each id occurs in the training data.
    """

    needs_fit: ClassVar[bool] = False

    def __init__(self, table: str, config: Any) -> None:
        self.table = table
        self.config = config
        self.counters: dict[str, ValueCounter] = {}
        self.counts: dict[str, NDArray[np.int64]] = {}

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many ids there are, missing and out-of-vocabulary ones included."""

    @property
    def oov(self) -> int:
        """How many ids stand for unseen values; they begin at 1."""
        return 0

    @abstractmethod
    def lookup(self, values: Tensor) -> Tensor:
        """Ids of categories.

        Args:
            values: [N] string or int64.

        Returns:
            [N] int32.
        """

    def unseen(self, ids: Tensor) -> Tensor:
        """Which ids stand for unseen values: bool, same shape."""
        return tf.logical_and(ids >= 1, ids <= self.oov)

    def fit(self) -> None:
        """Takes over what was counted."""
        for feature, counter in self.counters.items():
            values, counts = counter.result()
            ids = self.lookup(values_tensor(values)).numpy()
            by_id = np.bincount(ids, weights=np.asarray(counts), minlength=self.rows).astype(np.int64)
            by_id[0] += counter.missing
            self.counts[feature] = by_id
        self.counters = {}

    @property
    def resources(self) -> tuple[Any, ...]:
        """TensorFlow lookup tables, which an exported module has to hold."""
        return ()


class TableVocabulary(Vocabulary):
    """Values in order: fitted, given as a list, or read from a file."""

    def __init__(self, table: str, config: Any) -> None:
        super().__init__(table, config)
        self.values: pa.Array = pa.array([], pa.large_string())
        self.value_counts: pa.Array | None = None
        self._integers: pa.Array | None = None
        self._tables: dict[tf.DType, Any] = {}
        if isinstance(config, options.ListVocabulary):
            self.set_values(pa.array([str(value) for value in config.values], pa.large_string()))

    @property
    def needs_fit(self) -> bool:  # type: ignore[override]
        """Whether the values come from the training data."""
        return isinstance(self.config, options.FittedVocabulary)

    @property
    def rows(self) -> int:
        """How many ids there are."""
        return 1 + self.oov + len(self.values)

    @property
    def oov(self) -> int:
        """How many ids stand for unseen values."""
        return int(self.config.oov_buckets)

    def set_values(self, values: pa.Array, counts: pa.Array | None = None) -> None:
        """Takes values in the order of their ids.

        Args:
            values: int64, large_string or large_binary, all different.
            counts: How often each occurs in the training data, or None when unknown.
        """
        self.values, self.value_counts = values, counts
        self._integers = canonical_integers(values)
        self._tables = {}

    def fit(self) -> None:
        """Orders and cuts the values counted, or reads the file, and counts by id."""
        if self.needs_fit:
            values, counts = by_frequency(*merge([counter.result() for counter in self.counters.values()]))
            kept = int((np.asarray(counts) >= self.config.min_count).sum())
            kept = min(kept, self.config.max_size or kept)
            self.set_values(values.slice(0, kept), counts.slice(0, kept))
        elif isinstance(self.config, options.FileVocabulary):
            self.set_values(read_values(self.config.path, self.table))
        super().fit()

    def lookup(self, values: Tensor) -> Tensor:
        """Ids of categories: one table look-up, in which missing is an entry."""
        if values.dtype == tf.int64 and self._integers is None:
            values = tensor_text(values)
        ids = self._table(values.dtype).lookup(values)
        if self.oov == 1:
            return ids
        hashed = 1 + tf.cast(tf.strings.to_hash_bucket_fast(tensor_text(values), self.oov), tf.int32)
        return tf.where(ids < 0, hashed, ids)

    @property
    def resources(self) -> tuple[Any, ...]:
        """The tables made so far."""
        return tuple(self._tables.values())

    def _table(self, dtype: tf.DType) -> Any:
        if dtype not in self._tables:
            with tf.init_scope():
                integer = dtype == tf.int64
                values = self._integers if integer else as_text(self.values)
                absent = np.array([MISSING_INT]) if integer else np.array([b""], np.object_)
                self._tables[dtype] = tf.lookup.StaticHashTable(
                    _InOrder(absent, tensor_of(values), 1 + self.oov),
                    default_value=1 if self.oov == 1 else -1,
                )
        return self._tables[dtype]


class _InOrder(tf.lookup.KeyValueTensorInitializer):
    """Fills a table with a key of id 0, and keys that are numbered from another id on.

    Keys are made where the table is filled: in an exported graph, when it is loaded.
    """

    def __init__(self, first: NDArray[Any], keys: Callable[[], Tensor], second_id: int) -> None:
        super().__init__(tf.constant(first), tf.constant([0], tf.int32))
        self._first, self._others, self._second_id = first, keys, second_id

    def initialize(self, table: Any) -> Any:
        """Fills the table."""
        others = self._others()
        ids = tf.range(self._second_id, self._second_id + tf.size(others))
        return tf.raw_ops.LookupTableImportV2(
            table_handle=table.resource_handle,
            keys=tf.concat([tf.constant(self._first), others], 0),
            values=tf.concat([[0], ids], 0),
        )


class HashVocabulary(Vocabulary):
    """Ids are hashes of the text."""

    @property
    def rows(self) -> int:
        """How many ids there are."""
        return 1 + int(self.config.buckets)

    def lookup(self, values: Tensor) -> Tensor:
        """1 + hash of the text modulo buckets; 0 where missing."""
        text = tensor_text(values)
        ids = 1 + tf.cast(tf.strings.to_hash_bucket_fast(text, self.config.buckets), tf.int32)
        return tf.where(tf.equal(text, ""), 0, ids)


class IntegerVocabulary(Vocabulary):
    """The values are integers from 0 to size - 1."""

    @property
    def rows(self) -> int:
        """How many ids there are."""
        return 2 + int(self.config.size)

    @property
    def oov(self) -> int:
        """One id for everything out of range."""
        return 1

    def lookup(self, values: Tensor) -> Tensor:
        """2 + value; 1 out of range or not an integer; 0 where missing."""
        absent = missing(values)
        if values.dtype == tf.string:
            proper = tf.strings.regex_full_match(values, _INTEGER)
            values = tf.strings.to_number(tf.where(proper, values, "-1"), tf.int64)
        inside = tf.logical_and(values >= 0, values < self.config.size)
        ids = tf.cast(tf.where(inside, values + 2, 1), tf.int32)
        return tf.where(absent, 0, ids)


def make_vocabulary(table: str, config: Any) -> Vocabulary:
    """The vocabulary that a configuration describes."""
    if isinstance(config, options.HashVocabulary):
        return HashVocabulary(table, config)
    if isinstance(config, options.IntegerVocabulary):
        return IntegerVocabulary(table, config)
    return TableVocabulary(table, config)


def read_values(path: str, table: str) -> pa.Array:
    """The values of a vocabulary file, one a line; empty lines are passed over.

    Raises:
        DataError: The file cannot be read, is not UTF-8, holds no value or one twice.
    """
    where = f"vocabulary file {path!r} of the table {table!r}"
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise DataError(f"the {where} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"the {where} is not UTF-8 text: {error}") from error
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        value = line.removesuffix("\r")
        if value and first.setdefault(value, number) != number:
            raise DataError(f"the {where} has {value!r} in line {number} and in line {first[value]} already")
    if not first:
        raise DataError(f"the {where} holds no value; it needs one a line")
    return pa.array(list(first), pa.large_string())


class SharedVocabularies:
    """Vocabularies by embedding table: features that name the same table share one."""

    def __init__(self) -> None:
        self._by_table: dict[str, tuple[Vocabulary, str]] = {}

    def join(self, table: str, config: Any, feature: str) -> Vocabulary:
        """The vocabulary of `table`.

        Raises:
            ConfigError: Another feature asked for a different vocabulary under the same table.
        """
        if table not in self._by_table:
            self._by_table[table] = (make_vocabulary(table, config), feature)
        vocabulary, owner = self._by_table[table]
        if vocabulary.config != config:
            raise ConfigError(
                [
                    Problem(
                        f"features.{feature}.vocabulary",
                        f"the features {owner!r} and {feature!r} share the table {table!r}, so they need the same "
                        f"vocabulary options; they have {vocabulary.config!r} and {config!r}",
                    )
                ]
            )
        return vocabulary

    def get(self, table: str) -> Vocabulary | None:
        """The vocabulary of `table` if there is one."""
        return self._by_table[table][0] if table in self._by_table else None

    def __iter__(self) -> Iterator[Vocabulary]:
        return iter(vocabulary for vocabulary, _ in self._by_table.values())


class VocabularyFitter:
    """Counts the values of one feature for its vocabulary.

    Args:
        vocabulary: The vocabulary.
        feature: Name of the feature.
        read: The canonical values of a chunk.
    """

    def __init__(self, vocabulary: Vocabulary, feature: str, read: Callable[[pa.Table], pa.Array]) -> None:
        self.vocabulary = vocabulary
        self.counter = ValueCounter(feature)
        self.feature = feature
        self.read = read

    def update(self, chunk: pa.Table) -> None:
        """Counts the values of a chunk."""
        self.counter.update(self.read(chunk))

    def finish(self) -> None:
        """Hands the counts over.

        Raises:
            DataError: Every value is missing.
        """
        if self.counter.empty:
            raise DataError(
                f"feature {self.feature!r}: every value is missing in the training data, so there is nothing to "
                "fit; drop the feature, or check its `column`"
            )
        self.vocabulary.counters[self.feature] = self.counter
