"""GrowthBook's assignment, bit for bit, for teams that move and for replaying experiments that ran there.

Algorithm as documented for its SDKs (specification 0.8): FNV-1a of 32 bits over UTF-16 code units. Version 1 is biased
(two splits of consecutive ids can correlate at 0.5) and cannot be chosen for an experiment; it is here because
namespaces use it and old logs need it.
"""

from collections.abc import Callable, Sequence

_OFFSET = 0x811C9DC5
_PRIME = 0x01000193
_MASK = 0xFFFFFFFF

Range = tuple[float, float]


def fnv1a(text: str, start: int = _OFFSET) -> int:
    """FNV-1a, 32 bits, over UTF-16 code units; `start` is the hash of what stands before `text`."""
    value = start
    if text.isascii():
        for code in text.encode("ascii"):
            value = ((value ^ code) * _PRIME) & _MASK
        return value
    units = text.encode("utf-16-le", "surrogatepass")
    for place in range(0, len(units), 2):
        value = ((value ^ (units[place] | units[place + 1] << 8)) * _PRIME) & _MASK
    return value


def growthbook_hash(seed: str, value: str, version: int) -> float | None:
    """A number in [0, 1) for a unit, or None for a version that does not exist.

    Args:
        seed: Of the experiment.
        value: Text of the unit's id.
        version: 1 (steps of 0.001, biased) or 2 (steps of 0.0001).
    """
    if version == 2:
        return (fnv1a(str(fnv1a(seed + value))) % 10_000) / 10_000
    if version == 1:
        return (fnv1a(value + seed) % 1000) / 1000
    return None


def drawer_v2(seed: str) -> Callable[[str], float]:
    """`growthbook_hash` of version 2 for one seed, which is hashed once."""
    start = fnv1a(seed)

    def draw(value: str) -> float:
        return (fnv1a(str(fnv1a(value, start))) % 10_000) / 10_000

    return draw


def in_namespace(value: str, namespace: tuple[str, float, float]) -> bool:
    """Whether a unit belongs to a namespace (id, start, end)."""
    name, start, end = namespace
    number = (fnv1a(f"{value}__{name}") % 1000) / 1000
    return start <= number < end


def equal_weights(count: int) -> list[float]:
    """Weights of `count` variants when none are given."""
    return [1 / count] * count if count > 0 else []


def bucket_ranges(count: int, coverage: float = 1.0, weights: Sequence[float] | None = None) -> list[Range]:
    """The range [low, high) of each variant.

    A range starts where the full weights before it end, and only its length shrinks with coverage; so raising
    coverage appends units and moves none.

    Args:
        count: Number of variants.
        coverage: Share of units that take part, cut to [0, 1].
        weights: One a variant; equal ones are taken if the number differs or the sum is not near 1.
    """
    coverage = min(max(coverage, 0.0), 1.0)
    if weights is None or len(weights) != count or not 0.99 <= sum(weights) <= 1.01:
        weights = equal_weights(count)
    ranges, start = [], 0.0
    for weight in weights:
        ranges.append((start, start + coverage * weight))
        start += weight
    return ranges


def choose_variation(number: float, ranges: Sequence[Range]) -> int:
    """Index of the first range that holds a number, -1 if none does."""
    return next((index for index, (low, high) in enumerate(ranges) if low <= number < high), -1)
