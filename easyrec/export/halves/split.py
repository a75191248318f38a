"""The three functions that a network is split into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import tensorflow as tf

from easyrec.embedding.collection import LINEAR
from easyrec.export.halves.nodes import FIXED, ITEM, USER, Node, compute, frontier, leaf
from easyrec.export.halves.rules import apply
from easyrec.export.halves.values import ROWS, Columns, Total, Value, cut, spread, whole
from easyrec.models.base import TowerModel
from easyrec.models.network import Network

Tensors = Mapping[str, tf.Tensor]


class TwoHalves(Protocol):
    """What `Halves` and `TowerHalves` have in common; see there."""

    @property
    def user(self) -> Sequence[tuple[int | None, ...]]:
        """Static shapes of what `user_half` gives, rows first."""

    @property
    def item(self) -> Sequence[tuple[int | None, ...]]:
        """Static shapes of what `item_half` gives, rows first."""

    def user_half(self, inputs: Tensors) -> list[tf.Tensor]:
        """What pairs need to know of users, [B, ...] each."""

    def item_half(self, inputs: Tensors) -> list[tf.Tensor]:
        """What pairs need to know of items, [N, ...] each."""

    def pairs(
        self, user: Sequence[tf.Tensor], item: Sequence[tf.Tensor], rows: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Predictions of one user with N items."""


class Halves:
    """A function of the rows of a batch as three: of users, of items, and of what comes of these for pairs.

        predictions = pairs(user_half(inputs of a user), item_half(inputs of items))

    Args:
        function: Takes tensors [B, ...] by name and returns such tensors; each row by itself.
        shapes: Shapes of its inputs without B.
        owners: By name of an input: whether each position of its axis 1 describes the user, or of all of it.

    Attributes:
        user: Static shapes [None, ...] and types of what `user_half` gives.
        item: Of what `item_half` gives.
    """

    def __init__(
        self,
        function: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
        shapes: Mapping[str, tuple[int, ...]],
        owners: Mapping[str, Sequence[bool] | bool],
    ) -> None:
        self._names = list(shapes)
        specs = [
            tf.TensorSpec([None, *shapes[name]], tf.float32, name=f"input_{place}")
            for place, name in enumerate(self._names)
        ]

        def ordered(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
            found = function(dict(zip(self._names, tensors, strict=True)))
            self._outputs = list(found)
            return {f"{place:06}": found[name] for place, name in enumerate(found)}

        # Kept, since the values of fixed nodes live as long as it does.
        self._traced = tf.function(ordered, input_signature=specs, autograph=False).get_concrete_function()
        self._leaves: dict[int, dict[str, Node]] = {USER: {}, ITEM: {}}
        self._results = self._interpreted(shapes, owners)
        self._cuts = {kind: frontier(self._results, kind) for kind in (USER, ITEM)}

    @property
    def user(self) -> list[tuple[int | None, ...]]:
        """Static shapes of what `user_half` gives, rows first."""
        return [node.shape or () for node in self._cuts[USER]]

    @property
    def item(self) -> list[tuple[int | None, ...]]:
        """Static shapes of what `item_half` gives, rows first."""
        return [node.shape or () for node in self._cuts[ITEM]]

    def user_half(self, inputs: Tensors) -> list[tf.Tensor]:
        """What pairs need to know of users, [B, ...] each.

        Args:
            inputs: All inputs [B, ...]; what describes items is not looked at.
        """
        return compute(self._cuts[USER], self._given(USER, inputs))

    def item_half(self, inputs: Tensors) -> list[tf.Tensor]:
        """What pairs need to know of items, [N, ...] each; see `user_half`."""
        return compute(self._cuts[ITEM], self._given(ITEM, inputs))

    def pairs(
        self, user: Sequence[tf.Tensor], item: Sequence[tf.Tensor], rows: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """What the function gives for one user with N items.

        Args:
            user: Of `user_half`, for one row.
            item: Of `item_half`, for N rows.
            rows: N.
        """
        given = dict(zip(self._cuts[USER], user, strict=True)) | dict(
            zip(self._cuts[ITEM], item, strict=True)
        )
        found = compute([spread(node) for node in self._results], {**given, ROWS: rows})
        return dict(zip(self._outputs, found, strict=True))

    def _given(self, kind: int, inputs: Tensors) -> dict[Node, tf.Tensor]:
        return {node: inputs[name] for name, node in self._leaves[kind].items()}

    def _interpreted(
        self, shapes: Mapping[str, tuple[int, ...]], owners: Mapping[str, Sequence[bool] | bool]
    ) -> list[Node]:
        """The outputs, as values that know what they depend on."""
        graph = self._traced.graph
        values: dict[str, Value] = {}
        for place, name in enumerate(self._names):
            tensor = self._traced.inputs[place]
            values[tensor.name] = self._input(name, tensor, owners[name])
        captured = self._traced.inputs[len(self._names) :]
        for inside, outside in zip(captured, self._traced.captured_inputs, strict=True):
            values[inside.name] = leaf(FIXED, outside)
        operations = graph.get_operations()
        readers = Counter(tensor.name for operation in operations for tensor in operation.inputs)
        for operation in operations:
            if operation.outputs and operation.outputs[0].name not in values:
                found = self._performed(operation, [values[tensor.name] for tensor in operation.inputs])
                for tensor, value in zip(operation.outputs, found, strict=True):
                    # What is read several times is added up once; and converters know an activation by its form.
                    several = isinstance(value, Total) and readers[tensor.name] > 1
                    values[tensor.name] = whole(value) if several else value
        return [whole(values[tensor.name]) for tensor in self._traced.outputs]

    def _input(self, name: str, tensor: tf.Tensor, owners: Sequence[bool] | bool) -> Value:
        if isinstance(owners, bool) or not len(owners) or len(set(owners)) == 1:
            of_user = owners if isinstance(owners, bool) else bool(owners and owners[0])
            return self._leaf(USER if of_user else ITEM, name, tensor)
        parts, start = [], 0
        for stop in range(1, len(owners) + 1):
            if stop == len(owners) or owners[stop] != owners[start]:
                node = self._leaf(USER if owners[start] else ITEM, name, tensor)
                parts.append(cut(node, start, stop))
                start = stop
        return Columns(tuple(parts))

    def _leaf(self, kind: int, name: str, tensor: tf.Tensor) -> Node:
        return self._leaves[kind].setdefault(name, leaf(kind, tensor))

    @staticmethod
    def _performed(operation: tf.Operation, values: Sequence[Value]) -> list[Value]:
        constant = tf.get_static_value(operation.outputs[0]) if operation.type == "Const" else None
        if constant is None:
            return apply(operation, values)
        dtype = operation.outputs[0].dtype
        return [Node(FIXED, tuple(constant.shape), lambda: tf.constant(constant, dtype), (), dtype)]


class TowerHalves:
    """The same of a model of two towers, whose halves are its vectors.

    Args:
        network: Its network.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        blank = {name: tf.zeros([1, *shape]) for name, shape in activation_shapes(network).items()}
        self.user = [(None, *half.shape[1:]) for half in self.user_half(blank)]
        self.item = [(None, *half.shape[1:]) for half in self.item_half(blank)]

    def user_half(self, inputs: Tensors) -> list[tf.Tensor]:
        """Vectors [B, D] of the users."""
        return [self._tower(inputs, "user")]

    def item_half(self, inputs: Tensors) -> list[tf.Tensor]:
        """Vectors [N, D] of the items."""
        return [self._tower(inputs, "item")]

    def pairs(
        self, user: Sequence[tf.Tensor], item: Sequence[tf.Tensor], rows: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Predictions of one user with N items."""
        return self._network.score({"user_vector": user[0]}, {"item_vector": item[0]})

    def _tower(self, inputs: Tensors, side: str) -> tf.Tensor:
        activations = dict(inputs)
        return self._network.tower(activations, activations.pop("numbers"), side)


def activation_shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """Shapes, without the rows, of what `Network.dense` takes: the activations and `numbers`."""
    numbers, units = network.owners("numbers"), network.embeddings.linear_units
    shapes: dict[str, tuple[int, ...]] = {"numbers": (len(numbers) if isinstance(numbers, list) else 1,)}
    for group in network.embeddings.groups:
        for kind, dim in (("embedding", group.dim), (LINEAR, units)):
            if group.singles and dim:
                shapes[f"{kind}/{group.name}"] = (len(group.singles), dim)
        for output in group.multis:
            if output.sequence:
                shapes[f"sequence/{output.feature}"] = (output.max_length or 0, group.dim)
                shapes[f"mask/{output.feature}"] = (output.max_length or 0,)
            else:
                shapes[f"pooled/{output.feature}"] = (group.dim,)
            if units:
                shapes[f"linear_pooled/{output.feature}"] = (units,)
    return shapes


def dense_predictions(network: Network, tensors: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Predictions by task from the activations of the embedding tables and `numbers`."""
    activations = dict(tensors)
    return network.predictions(network.dense(activations, activations.pop("numbers")))


def halves_of(network: Network) -> TwoHalves:
    """The halves of a network."""
    if isinstance(network.model, TowerModel):
        return TowerHalves(network)
    shapes = activation_shapes(network)
    owners = {name: network.owners(name) for name in shapes}
    return Halves(partial(dense_predictions, network), shapes, owners)
