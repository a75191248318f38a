"""How operations of TensorFlow treat values that are put together of both sides.

A rule may do without knowing an operation: then its inputs are put in one piece with N rows each, as they would be
without all this, and what comes of it depends on the pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from easyrec.export.halves.nodes import FIXED, PAIR, USER, Node, again, derived
from easyrec.export.halves.values import (
    Columns,
    Total,
    Value,
    by_kind,
    cut,
    kind_of,
    parts_of,
    plus,
    spread,
    total,
    whole,
)

Rule = Callable[[tf.Operation, Sequence[Value]], Value | None]

_SAME = {"Identity", "StopGradient", "PreventGradient", "Snapshot"}
_UNARY = {
    "Abs", "Cast", "Elu", "Erf", "Exp", "Inv", "LeakyRelu", "Log", "Log1p", "Neg", "Reciprocal", "Relu", "Relu6",
    "Rsqrt", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Square", "Tanh", "ZerosLike",
}  # fmt: skip
_BINARY = {
    "Add", "AddV2", "BiasAdd", "Div", "DivNoNan", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "Maximum",
    "Minimum", "Mul", "MulNoNan", "NotEqual", "Pow", "RealDiv", "SelectV2", "SquaredDifference", "Sub",
}  # fmt: skip
_ADDS = {"Add", "AddV2", "BiasAdd"}
_SCALES = {"Mul", "RealDiv", "Div"}
_REDUCES = {"Sum", "Mean", "Max", "Min", "Prod"}


def apply(operation: tf.Operation, values: Sequence[Value]) -> list[Value]:
    """The outputs of an operation."""
    kinds = {kind_of(value) for value in values} - {FIXED}
    plain = all(isinstance(value, Node) for value in values)
    if not (kinds <= {PAIR} and plain):
        found = _by_rule(operation, values)
        if found is not None:
            return [found]
        if plain and len(kinds) == 1 and _is_by_row(operation, [whole(value) for value in values]):
            return _performed(operation, [whole(value) for value in values], kinds.pop())
        values = [spread(whole(value)) for value in values]
    return _performed(operation, [whole(value) for value in values], PAIR if kinds else FIXED)


def _performed(operation: tf.Operation, nodes: Sequence[Node], kind: int) -> list[Value]:
    perform = again(operation)
    shapes = [None if one.shape.rank is None else tuple(one.shape.as_list()) for one in operation.outputs]
    if len(shapes) == 1:
        return [Node(kind, shapes[0], perform, tuple(nodes), operation.outputs[0].dtype)]
    every = Node(kind, None, perform, tuple(nodes), tf.variant)
    return [
        Node(kind, shape, _item(place), (every,), operation.outputs[place].dtype)
        for place, shape in enumerate(shapes)
    ]


def _item(place: int) -> Callable[[Any], Any]:
    return lambda results: results[place]


def _by_rule(operation: tf.Operation, values: Sequence[Value]) -> Value | None:
    for kinds, rule in _RULES:
        if operation.type in kinds:
            return rule(operation, values)
    return None


# Rules


def _same(operation: tf.Operation, values: Sequence[Value]) -> Value | None:
    return values[0]


def _unary(operation: tf.Operation, values: Sequence[Value]) -> Value | None:
    value = values[0]
    if isinstance(value, Total):
        if operation.type != "Neg":
            value = whole(value)
        else:
            return total(_one(operation, [term]) for term in value.terms.values())
    if isinstance(value, Columns):
        return Columns(tuple(_one(operation, [part]) for part in value.parts))
    return _one(operation, [value])


def _binary(operation: tf.Operation, values: Sequence[Value]) -> Value | None:
    ranks = {part.rank for value in values if kind_of(value) != FIXED for part in parts_of(value)}
    if len(ranks) != 1 or None in ranks:
        return None
    rank = int(ranks.pop() or 0)
    if not all(_fits(value, rank) for value in values if kind_of(value) == FIXED):
        return None
    if operation.type in _ADDS or operation.type == "Sub":
        added = _added(operation, values)
        if added is not None:
            return added
    if operation.type in _SCALES and isinstance(values[0], Total) and kind_of(values[1]) == FIXED:
        return total(_one(operation, [term, whole(values[1])]) for term in values[0].terms.values())
    if operation.type == "Mul" and isinstance(values[1], Total) and kind_of(values[0]) == FIXED:
        return total(_one(operation, [whole(values[0]), term]) for term in values[1].terms.values())
    values = [whole(value) if isinstance(value, Total) else value for value in values]
    columns = [value for value in values if isinstance(value, Columns)]
    if not columns:
        return _one(operation, [whole(value) for value in values])
    return _by_columns(operation, values, columns[0], rank)


def _added(operation: tf.Operation, values: Sequence[Value]) -> Value | None:
    """A sum, or a difference, of values of one shape, of which terms that depend on the same are added up."""
    first, second = values
    if kind_of(first) == FIXED and operation.type in ("Add", "AddV2"):
        first, second = second, first
    if isinstance(first, Columns) or isinstance(second, Columns) or FIXED in map(kind_of, parts_of(first)):
        return None
    if kind_of(second) == FIXED:
        terms = dict(first.terms) if isinstance(first, Total) else {first.kind: first}
        least = min(terms)
        terms[least] = _one(operation, [terms[least], whole(second)])
        return total(terms.values())
    if parts_of(first)[0].shape[1:] != parts_of(second)[0].shape[1:]:  # type: ignore[index]
        return None
    negative = operation.type == "Sub"
    others = [
        derived(tf.negative, [part], part.shape or ()) if negative else part for part in parts_of(second)
    ]
    return total([*parts_of(first), *others])


def _by_columns(
    operation: tf.Operation, values: Sequence[Value], columns: Columns, rank: int
) -> Value | None:
    """Part by part along axis 1."""
    edges: set[int] = set()
    size = sum(columns.widths)
    for value in values:
        if isinstance(value, Columns) and sum(value.widths) == size:
            edges |= set(np.cumsum(value.widths).tolist())
        elif isinstance(value, Columns):
            return None
    parts, start = [], 0
    for stop in sorted(edges):
        inputs = [_position(value, start, stop, size, rank) for value in values]
        if any(one is None for one in inputs):
            return None
        parts.append(_one(operation, [one for one in inputs if one is not None]))
        start = stop
    return Columns(tuple(parts))


def _position(value: Value, start: int, stop: int, size: int, rank: int) -> Node | None:
    """What of an operand meets positions of axis 1."""
    if isinstance(value, Columns):
        return value.between(start, stop).parts[0]
    node = whole(value)
    axis = 1 - (rank - (node.rank or 0))
    if axis < 0 or node.shape is None or node.shape[axis] == 1:
        return node
    if node.shape[axis] != size:
        return None
    if axis == 1:
        return cut(node, start, stop)
    return derived(lambda tensor: tensor[start:stop], [node], [stop - start, *node.shape[1:]])


def _matmul(operation: tf.Operation, values: Sequence[Value]) -> Value | None:
    left, right = values
    if kind_of(right) != FIXED or kind_of(left) == FIXED or operation.get_attr("transpose_a"):
        return None
    kernel = whole(right)
    if isinstance(left, Total):
        return total(_one(operation, [term, kernel]) for term in left.terms.values())
    if isinstance(left, Node):
        return _one(operation, [left, kernel])
    transposed = operation.get_attr("transpose_b")
    units = operation.outputs[0].shape[1]

    def make(kind: int, group: list[tuple[Node, int]]) -> Node:
        spans = [(at, at + int(part.shape[1])) for part, at in group]  # type: ignore[index,arg-type]

        def multiply(weights: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
            rows = tf.transpose(weights) if transposed else weights
            parts = [rows[start:stop] for start, stop in _joined(spans)]
            kernel = parts[0] if len(parts) == 1 else tf.concat(parts, axis=0)
            return tf.matmul(tensors[0] if len(tensors) == 1 else tf.concat(tensors, axis=1), kernel)

        return derived(multiply, [kernel, *(part for part, _ in group)], [None, units], kind)

    return total(by_kind(left.parts, make).values())


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that follow each other as one."""
    found: list[tuple[int, int]] = []
    for start, stop in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def _reduced(operation: tf.Operation, values: Sequence[Value]) -> Value | None:
    value, axes = values[0], _axes(operation)
    if axes is None or kind_of(values[1]) != FIXED:
        return None
    axis = whole(values[1])
    if isinstance(value, Total):
        if operation.type not in ("Sum", "Mean"):
            return None
        return total(_one(operation, [term, axis]) for term in value.terms.values())
    if isinstance(value, Columns):
        if 1 not in axes:
            return Columns(tuple(_one(operation, [part, axis]) for part in value.parts))
        if operation.type != "Sum":
            return None

        def make(kind: int, group: list[tuple[Node, int]]) -> Node:
            sums = [_one(operation, [part, axis]) for part, _ in group]
            result = sums[0]
            for other in sums[1:]:
                result = plus(result, other)
            return result

        return total(by_kind(value.parts, make).values())
    return _one(operation, [value, axis])


def _concatenated(operation: tf.Operation, values: Sequence[Value]) -> Value | None:
    *parts, last = values
    axis = tf.get_static_value(operation.inputs[-1])
    rank = operation.outputs[0].shape.rank
    if axis is None or rank is None or any(kind_of(part) == FIXED for part in parts):
        return None
    axis = int(axis) % rank
    if axis != 1:
        kinds = {kind_of(part) for part in parts}
        if axis == 0 or len(kinds) != 1 or any(isinstance(part, Columns) for part in parts):
            return None
        return _one(operation, [*(whole(part) for part in parts), whole(last)])
    found = [one for part in parts for one in parts_of(whole(part) if isinstance(part, Total) else part)]
    if any(one.shape is None or one.shape[1] is None for one in found):
        return None
    return Columns(tuple(found))


def _sliced(operation: tf.Operation, values: Sequence[Value]) -> Value | None:
    begin, end, strides = (tf.get_static_value(tensor) for tensor in operation.inputs[1:4])
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    first, last, ellipsis, new, shrink = (operation.get_attr(f"{name}") for name in names)
    value = values[0]
    if begin is None or end is None or strides is None or ellipsis or (new | shrink) & 1:
        return None
    if not (first & 1 and last & 1 and strides[0] == 1) or isinstance(value, Total):
        return None
    if isinstance(value, Node):
        return _one(operation, [value, *(whole(other) for other in values[1:])])
    if len(begin) == 1:
        return value
    if first & 2 and last & 2 and strides[1] == 1 and not (new | shrink) & 2:
        rest = [whole(other) for other in values[1:]]
        return Columns(tuple(_one(operation, [part, *rest]) for part in value.parts))
    if new or len(begin) > 2 or strides[1] != 1:
        return None
    size = sum(value.widths)
    low = 0 if first & 2 else int(begin[1]) % (size + 1) if begin[1] >= 0 else int(begin[1]) + size
    if shrink & 2:
        part = value.between(low, low + 1).parts[0]
        return derived(lambda tensor: tensor[:, 0], [part], [None, *(part.shape or ())[2:]])
    high = size if last & 2 else min(int(end[1]), size) if end[1] >= 0 else int(end[1]) + size
    return value.between(low, high) if low < high else None


def _reshaped(operation: tf.Operation, values: Sequence[Value]) -> Value | None:
    wanted, given = tf.get_static_value(operation.inputs[1]), operation.inputs[0].shape
    value = values[0]
    if wanted is None or given.rank is None or given.rank < 1 or None in given.as_list()[1:]:
        return None
    wanted = [int(size) for size in wanted]
    if wanted[0] != -1 or int(np.prod(given.as_list()[1:])) != int(np.prod(wanted[1:])) or -1 in wanted[1:]:
        return None
    if isinstance(value, Columns):
        if given.rank != 3 or len(wanted) != 2:
            return None
        deep = int(given[2])
        return Columns(
            tuple(
                derived(_flat(size * deep), [part], [None, size * deep])
                for part, size in zip(value.parts, value.widths, strict=True)
            )
        )
    shape = whole(values[1])
    if isinstance(value, Total):
        return total(_one(operation, [term, shape]) for term in value.terms.values())
    return _one(operation, [value, shape])


def _flat(size: int) -> Callable[[tf.Tensor], tf.Tensor]:
    return lambda tensor: tf.reshape(tensor, [-1, size])


_RULES: tuple[tuple[set[str], Rule], ...] = (
    (_SAME, _same),
    (_UNARY, _unary),
    (_BINARY, _binary),
    ({"MatMul"}, _matmul),
    (_REDUCES, _reduced),
    ({"ConcatV2"}, _concatenated),
    ({"StridedSlice"}, _sliced),
    ({"Reshape"}, _reshaped),
)


def _one(operation: tf.Operation, nodes: Sequence[Node]) -> Node:
    """An operation on single values, of which those of users are broadcast."""
    perform = again(operation)
    shape = operation.outputs[0].shape
    rows = [node for node in nodes if node.kind != FIXED and node.shape]
    if not rows or shape.rank is None:
        found = () if shape.rank is None else tuple(shape.as_list())
    else:  # the operation's own output is that of all columns; those of a part are found by tracing its shapes
        found = _part_shape(perform, operation, nodes)
    return derived(perform, nodes, found, dtype=operation.outputs[0].dtype)


def _part_shape(
    perform: Callable[..., Any], operation: tf.Operation, nodes: Sequence[Node]
) -> tuple[int | None, ...]:
    """The static shape of an operation's output on other inputs."""
    with tf.Graph().as_default():
        inputs = []
        for node, tensor in zip(nodes, operation.inputs, strict=True):
            constant = tf.get_static_value(tensor)
            if constant is not None and node.kind == FIXED and node.shape == constant.shape:
                inputs.append(tf.constant(constant, tensor.dtype))
            else:
                shape = list(node.shape or ())
                if node.kind != FIXED and shape:
                    shape[0] = None
                inputs.append(tf.raw_ops.Placeholder(dtype=tensor.dtype, shape=shape))
        return tuple(perform(*inputs).shape.as_list())


def _fits(value: Value, rank: int) -> bool:
    """Whether a fixed operand meets every row alike."""
    shape = whole(value).shape
    return shape is not None and (len(shape) < rank or (len(shape) == rank and shape[0] == 1))


def _axes(operation: tf.Operation) -> set[int] | None:
    """The axes that are reduced, if rows are not among them."""
    axes, rank = tf.get_static_value(operation.inputs[1]), operation.inputs[0].shape.rank
    if axes is None or rank is None:
        return None
    found = {int(axis) % rank for axis in np.atleast_1d(axes)}
    return found if found and 0 not in found else None


def _is_by_row(operation: tf.Operation, nodes: Sequence[Node]) -> bool:
    """Whether each row of the result depends on that row of the inputs alone, for operations without a rule."""
    if any(node.rank is None for node in nodes):
        return False
    rank = operation.outputs[0].shape.rank or 0
    if operation.type in ("Softmax", "LogSoftmax"):
        return rank >= 2
    if operation.type == "Transpose":
        order = tf.get_static_value(operation.inputs[1])
        return order is not None and int(order[0]) == 0
    if operation.type == "BatchMatMulV2":
        return all(node.kind != FIXED and node.rank == rank >= 3 for node in nodes)
    if operation.type in ("Pack", "Unpack"):
        axis = int(operation.get_attr("axis"))
        deep = rank if operation.type == "Pack" else (nodes[0].rank or 0)
        return axis % max(deep, 1) >= 1 and all(node.kind != FIXED for node in nodes)
    if operation.type == "ExpandDims":
        axis = tf.get_static_value(operation.inputs[1])
        return axis is not None and int(axis) % max(rank, 1) >= 1
    return False


__all__ = ["USER", "apply"]
