"""Drawing a bucket for a unit. Whole numbers only, so every machine and every language agrees.

    number = first 8 bytes, big-endian, of SHA-256("rx1" 0x1F salt 0x1F unit)
    bucket = floor(number * buckets / 2^64)

The separator keeps salt "exp1" with unit "23" apart from salt "exp12" with unit "3". Different salts give
independent draws. The tag names the algorithm: a change of it would be a new tag, never a new meaning of an old one.
"""

import hashlib
import unicodedata
from collections.abc import Callable
from typing import Any

BUCKETS = 10_000
"""Buckets of a layer: the finest share of traffic is 0.01%."""
SEPARATOR = "\x1f"
_TAG = "rx1"


def unit_text(unit: Any) -> str:
    """A unit's id as it is hashed: text in Unicode normal form C, so that 42 and "42" are one user.

    Args:
        unit: Id of a user, session, ...: text, a whole number, or None.

    Returns:
        The text; empty for None, for a truth value and for blank text, which stand for "not known".
    """
    if unit is None or isinstance(unit, bool):
        return ""
    if isinstance(unit, float) and unit.is_integer():
        unit = int(unit)  # a column of ids with gaps is read as floats; 42.0 is still user 42
    text = str(unit).strip()
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def drawer(salt: str) -> Callable[[str], int]:
    """The function that draws for one salt.

    Args:
        salt: Without the separator 0x1F.

    Returns:
        A pure function from a unit's text to a whole number in [0, 2^64), uniform over units.
    """
    seeded = hashlib.sha256(f"{_TAG}{SEPARATOR}{salt}{SEPARATOR}".encode())
    copy, number = seeded.copy, int.from_bytes

    def draw(unit: str) -> int:
        one = copy()
        # An id with half a surrogate pair comes from broken input; it must get a bucket, not an exception.
        one.update(unit.encode("utf-8", "surrogatepass"))
        return number(one.digest()[:8], "big")

    return draw


def bucket_of(salt: str, unit: Any, buckets: int = BUCKETS) -> int:
    """The bucket of a unit under a salt, in [0, buckets).

    Args:
        salt: Without the separator.
        unit: Id, as in `unit_text`.
        buckets: How many there are.
    """
    return (drawer(salt)(unit_text(unit)) * buckets) >> 64
