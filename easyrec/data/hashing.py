"""Hashes that decide who is held out and what is sampled: the same on every machine and in every version."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from easyrec.data.column_types import cast, is_text

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def mix(numbers: NDArray[np.int64] | NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea, Flood 2014) of each number: 64 well mixed bits."""
    with np.errstate(over="ignore"):
        state = numbers.astype(np.uint64) + np.uint64(seed % 2**64) * _FIRST + _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * _FIRST
        state = (state ^ (state >> np.uint64(27))) * _SECOND
        return state ^ (state >> np.uint64(31))


def below(bits: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Whether each hash falls into the lowest `fraction` of all hashes."""
    return bits < np.uint64(min(int(fraction * 2.0**64), 2**64 - 1))


def hash_keys(keys: pa.Array | pa.ChunkedArray, seed: int) -> NDArray[np.uint64]:
    """A hash of each key; an integer and its decimal text hash alike, a null hashes to something."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if not is_text(keys.type):
        keys = cast(keys, pa.string())
    encoded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
    digests = [
        int.from_bytes(hashlib.blake2b((text or "").encode(), digest_size=8).digest(), "little")
        for text in encoded.dictionary.to_pylist()
    ]
    bits = mix(np.asarray([*digests, 0], np.uint64), seed)
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return bits[codes]
