"""Values that are put together of both sides: side by side along axis 1, or added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import tensorflow as tf

from easyrec.export.halves.nodes import FIXED, PAIR, USER, Node, derived


@dataclass(frozen=True)
class Columns:
    """Values side by side along axis 1.

    Attributes:
        parts: Each with a known size of axis 1; all of one rank.
    """

    parts: tuple[Node, ...]

    @property
    def widths(self) -> list[int]:
        """Size of axis 1 of each part."""
        return [width(part) for part in self.parts]

    def between(self, start: int, stop: int) -> Columns:
        """Positions `start` up to `stop` of axis 1."""
        found, at = [], 0
        for part, size in zip(self.parts, self.widths, strict=True):
            low, high = max(start - at, 0), min(stop - at, size)
            if low < high:
                found.append(cut(part, low, high))
            at += size
        return Columns(tuple(found))


@dataclass(frozen=True)
class Total:
    """A sum of at most one value of each kind, all of one shape but for their rows.

    Attributes:
        terms: By kind; there is at least one.
    """

    terms: Mapping[int, Node]


Value: TypeAlias = Node | Columns | Total


def _given() -> tf.Tensor:
    raise LookupError("the number of items is given to `compute`")


ROWS = Node(PAIR, (), _given)
"""How many items there are, a scalar; to be given to `compute`."""


def kind_of(value: Value) -> int:
    """What a value depends on."""
    if isinstance(value, Node):
        return value.kind
    return reduce(int.__or__, (part.kind for part in parts_of(value)), FIXED)


def parts_of(value: Value) -> tuple[Node, ...]:
    """The values it is put together of."""
    if isinstance(value, Columns):
        return value.parts
    return tuple(value.terms.values()) if isinstance(value, Total) else (value,)


def width(node: Node) -> int:
    """Size of axis 1."""
    size = None if node.shape is None or len(node.shape) < 2 else node.shape[1]
    if size is None:
        raise ValueError("the size of axis 1 is not known")
    return size


def cut(node: Node, start: int, stop: int) -> Node:
    """Positions of axis 1 of a value."""
    if (start, stop) == (0, width(node)):
        return node
    shape = [node.shape[0], stop - start, *node.shape[2:]]  # type: ignore[index]
    return derived(lambda tensor: tensor[:, start:stop], [node], shape)


def total(terms: Iterable[Node]) -> Value:
    """The sum of values; those that depend on the same are added up at once."""
    found: dict[int, Node] = {}
    for term in terms:
        found[term.kind] = plus(found[term.kind], term) if term.kind in found else term
    return next(iter(found.values())) if len(found) == 1 else Total(found)


def plus(first: Node, second: Node) -> Node:
    """A sum; rows are broadcast."""
    return derived(tf.add, [first, second], _wider(first, second))


def whole(value: Value) -> Node:
    """A value in one piece: of one row if it depends on users alone, else of N rows."""
    if isinstance(value, Node):
        return value
    if isinstance(value, Total):
        return reduce(plus, [value.terms[kind] for kind in sorted(value.terms)])
    if len(value.parts) == 1:
        return value.parts[0]
    kind = kind_of(value)
    parts = value.parts if kind == USER else [spread(part) for part in value.parts]
    shape = [value.parts[0].shape[0], sum(value.widths), *value.parts[0].shape[2:]]  # type: ignore[index]
    return derived(lambda *tensors: tf.concat(tensors, axis=1), parts, shape, kind)


def spread(node: Node) -> Node:
    """A value of users with a row for each item; others as they are."""
    if node.kind != USER:
        return node

    def repeat(tensor: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        return tf.broadcast_to(tensor, tf.concat([[rows], tf.shape(tensor)[1:]], axis=0))

    return derived(repeat, [node, ROWS], [None, *(node.shape or ())[1:]])


def by_kind(parts: Sequence[Node], make: Callable[[int, list[tuple[Node, int]]], Node]) -> dict[int, Node]:
    """What `make` makes of the parts of each kind, given with where on axis 1 each begins."""
    groups: dict[int, list[tuple[Node, int]]] = {}
    at = 0
    for part in parts:
        groups.setdefault(part.kind, []).append((part, at))
        at += width(part)
    return {kind: make(kind, group) for kind, group in groups.items()}


def _wider(first: Node, second: Node) -> Any:
    """The shape of a sum."""
    longer, shorter = (first, second) if (first.rank or 0) >= (second.rank or 0) else (second, first)
    if longer.shape is None or shorter.shape is None:
        return ()
    padded = [1] * (len(longer.shape) - len(shorter.shape)) + list(shorter.shape)
    return [
        None if None in (one, other) else max(one, other)  # type: ignore[type-var]
        for one, other in zip(longer.shape, padded, strict=True)
    ]
