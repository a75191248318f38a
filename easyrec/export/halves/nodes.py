"""A computation as a graph whose every value knows what it depends on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

FIXED, USER, ITEM, PAIR = 0, 1, 2, 3
"""What a value depends on: weights only, users, items, or both. Kinds are joined by `|`."""


@dataclass(frozen=True, eq=False)
class Node:
    """One value.

    A value of a kind other than FIXED has a row axis: 1 row, which stands for all, of a USER value in a pair, else N.

    Attributes:
        kind: What it depends on.
        shape: Static shape; None where it is not known.
        build: Makes it from the values of `args`.
        args: What it is made from.
        dtype: Type of its elements.
    """

    kind: int
    shape: tuple[int | None, ...] | None
    build: Callable[..., Any]
    args: tuple[Node, ...] = ()
    dtype: tf.DType = tf.float32

    @property
    def rank(self) -> int | None:
        """Number of axes."""
        return None if self.shape is None else len(self.shape)


def leaf(kind: int, tensor: tf.Tensor) -> Node:
    """A value that is given to `compute`, or is part of the graph."""
    return Node(kind, _shape(tensor), lambda: tensor, (), tensor.dtype)


def derived(
    build: Callable[..., Any],
    args: Sequence[Node],
    shape: Sequence[int | None],
    kind: int | None = None,
    dtype: tf.DType | None = None,
) -> Node:
    """A value made from others.

    It depends on all that they depend on, unless `kind` says more, and is of the first one's type, unless `dtype` says
    another.
    """
    if kind is None:
        kind = FIXED
        for arg in args:
            kind |= arg.kind
    return Node(kind, tuple(shape), build, tuple(args), args[0].dtype if dtype is None else dtype)


def compute(nodes: Iterable[Node], given: Mapping[Node, tf.Tensor]) -> list[tf.Tensor]:
    """The values of nodes inside a function that is being traced.

    Args:
        nodes: What is wanted.
        given: Values that are known already; nothing that only they are made from is computed.
    """
    known: dict[Node, Any] = dict(given)
    wanted = list(nodes)
    waiting = list(wanted)
    while waiting:
        node = waiting[-1]
        missing = [arg for arg in node.args if arg not in known] if node not in known else []
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if node not in known:
            known[node] = node.build(*(known[arg] for arg in node.args))
    return [known[node] for node in wanted]


def frontier(outputs: Iterable[Node], kind: int) -> list[Node]:
    """The values of a kind that values of pairs, or the results themselves, are made from; float32 all of them."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    waiting = list(reversed(list(outputs)))
    while waiting:
        node = waiting.pop()
        if node.kind == kind and node.dtype == tf.float32:
            found[node] = None
        elif node.kind in (kind, PAIR) and node not in seen:
            seen.add(node)
            waiting += reversed(node.args)
    return list(found)


def again(operation: tf.Operation) -> Callable[..., Any]:
    """A function that performs an operation of a graph on other tensors.

    Raises:
        NotImplementedError: TensorFlow does not let it be performed by its name.
    """
    raw = getattr(tf.raw_ops, operation.type, None)
    if raw is None:
        raise NotImplementedError(f"tf.raw_ops has no {operation.type}")
    attributes = {attribute.name for attribute in operation.op_def.attr}
    parameters = [name for name in inspect.signature(raw).parameters if name != "name"]
    # Inputs have other names there than in the graph, but the same order.
    names = [name for name in parameters if name not in attributes]
    arguments = operation.op_def.input_arg
    if len(names) != len(arguments):
        raise NotImplementedError(f"tf.raw_ops.{operation.type} takes other inputs than the operation")
    places: list[tuple[str, int | None]] = []
    for name, argument in zip(names, arguments, strict=True):
        count = None
        if argument.number_attr:
            count = operation.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            count = len(operation.get_attr(argument.type_list_attr))
        places.append((name, count))
    options = {name: operation.get_attr(name) for name in parameters if name in attributes}

    def perform(*tensors: tf.Tensor) -> Any:
        inputs: dict[str, Any] = {}
        rest = list(tensors)
        for name, count in places:
            taken = 1 if count is None else count
            inputs[name] = rest[0] if count is None else rest[:taken]
            rest = rest[taken:]
        return raw(**inputs, **options)

    return perform


def _shape(tensor: tf.Tensor) -> tuple[int | None, ...] | None:
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
