"""Which id a value has, without TensorFlow: the rules of `easyrec.features.vocabulary` over sorted arrays.

Values of a table are looked up by binary search among their sorted keys: integers as they are, text by Fingerprint64
(12 bytes a value, memory-mapped, in place of the text itself; that no two values of a table share a fingerprint is
checked when the arrays are made).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from easyrec.config import features as options
from easyrec.errors import BundleError
from easyrec.features.counting import as_text as text_of
from easyrec.features.counting import canonical_integers
from easyrec.features.inputs import MISSING_INT
from easyrec.features.twins.values import as_text, fingerprint64, missing

_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,17}")

Ids = npt.NDArray[np.int32]


class VocabularyTwin(ABC):
    """The ids of one embedding table."""

    @abstractmethod
    def lookup(self, values: npt.NDArray[Any]) -> Ids:
        """Ids [N] of categories [N], text as objects or int64."""


@dataclass(frozen=True)
class SortedKeys:
    """Keys in order and the id of each.

    Attributes:
        keys: [V] int64 or uint64, sorted.
        ids: [V] int32.
    """

    keys: npt.NDArray[Any]
    ids: Ids

    @classmethod
    def of(cls, keys: npt.NDArray[Any], first: int) -> SortedKeys:
        """Keys in the order of their ids, which begin at `first`."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], (order + first).astype(np.int32))

    def find(self, wanted: npt.NDArray[Any]) -> Ids:
        """The id of each key, -1 where it is not there."""
        if not len(self.keys):
            return np.full(len(wanted), -1, np.int32)
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[places] == wanted, self.ids[places], np.int32(-1))


class TableTwin(VocabularyTwin):
    """Values in order.

    Args:
        oov: How many ids stand for unseen values.
        text: The values by fingerprint; None if no text is looked up.
        integers: The values as integers, if they all are.
    """

    def __init__(self, oov: int, text: SortedKeys | None, integers: SortedKeys | None) -> None:
        self._oov = oov
        self.text = text
        self.integers = integers

    @classmethod
    def of_values(cls, oov: int, values: pa.Array) -> TableTwin:
        """Made from values in the order of their ids.

        Raises:
            BundleError: Two values share a fingerprint, so they cannot be told apart.
        """
        integers = canonical_integers(values)
        text = SortedKeys.of(_fingerprints(_bytes(text_of(values))), 1 + oov)
        if (text.keys[1:] == text.keys[:-1]).any():
            raise BundleError(
                "two values of a vocabulary have the same 64-bit fingerprint, which serving without TensorFlow tells "
                "values apart by; leave out `export.litert`"
            )
        numbers = None if integers is None else SortedKeys.of(np.asarray(integers, np.int64), 1 + oov)
        return cls(oov, text, numbers)

    def lookup(self, values: npt.NDArray[Any]) -> Ids:
        """0 where missing, 1 + Fingerprint64 mod `oov` where unseen."""
        if values.dtype.kind == "i" and self.integers is not None:
            ids = self.integers.find(values)
            absent = values == MISSING_INT
            hashes = self._hashes(as_text(values)) if self._oov > 1 else None
        else:
            words = as_text(values)
            hashes = self._hashes(words)
            ids = np.full(len(words), -1, np.int32) if self.text is None else self.text.find(hashes)
            absent = np.fromiter((not word for word in words), bool, len(words))
        unseen = np.int32(1) if hashes is None or self._oov == 1 else _bucket(hashes, self._oov)
        return np.where(absent, np.int32(0), np.where(ids < 0, unseen, ids))

    @staticmethod
    def _hashes(words: Sequence[bytes]) -> npt.NDArray[np.uint64]:
        return _fingerprints(words)


class HashTwin(VocabularyTwin):
    """Ids are hashes of the text."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def lookup(self, values: npt.NDArray[Any]) -> Ids:
        """1 + Fingerprint64 of the text modulo buckets; 0 where missing."""
        return self.lookup_text(as_text(values))

    def lookup_text(self, words: Sequence[bytes]) -> Ids:
        """The same, of text."""
        ids = _bucket(_fingerprints(words), self._buckets)
        return np.where(np.fromiter((not word for word in words), bool, len(words)), np.int32(0), ids)


class IntegerTwin(VocabularyTwin):
    """The values are integers from 0 to size - 1."""

    def __init__(self, size: int) -> None:
        self._size = size

    def lookup(self, values: npt.NDArray[Any]) -> Ids:
        """2 + value; 1 out of range or not an integer; 0 where missing."""
        absent = missing(values)
        if values.dtype == np.object_:
            words = as_text(values)
            numbers = np.array([int(word) if _INTEGER.fullmatch(word) else -1 for word in words], np.int64)
        else:
            numbers = values
        inside = (numbers >= 0) & (numbers < self._size)
        ids = np.where(inside, np.where(inside, numbers, 0) + 2, 1)
        return np.where(absent, 0, ids).astype(np.int32)


def vocabulary_twin(config: Any, table: TableTwin | None) -> VocabularyTwin:
    """The vocabulary that a configuration describes.

    Args:
        config: As of `easyrec.features.vocabulary.make_vocabulary`.
        table: The values, where the configuration says that there are any.

    Raises:
        BundleError: There have to be values, but there are none.
    """
    if isinstance(config, options.HashVocabulary):
        return HashTwin(config.buckets)
    if isinstance(config, options.IntegerVocabulary):
        return IntegerTwin(config.size)
    if table is None:
        raise BundleError("the values of a vocabulary are missing")
    return table


def _fingerprints(words: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    fingerprint = fingerprint64()
    return np.fromiter((fingerprint(word) for word in words), np.uint64, len(words))


def _bucket(hashes: npt.NDArray[np.uint64], buckets: int) -> Ids:
    return (1 + (hashes % np.uint64(buckets)).astype(np.int64)).astype(np.int32)


def _bytes(values: pa.Array) -> list[bytes]:
    return [value if isinstance(value, bytes) else value.encode() for value in values.to_pylist()]
