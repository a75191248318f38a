"""A batch in two stages: what is known of the user once, what is known of each item once, then the pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from easyrec.config.features import Side
from easyrec.errors import ConfigError
from easyrec.features.outputs import FeatureSchema
from easyrec.models.inputs import Block

Tensors = dict[str, tf.Tensor]

STAGES: dict[str, tuple[Side, ...]] = {"user": ("user", "context"), "item": ("item",)}
"""Sides of the features in each stage; the context of a request is known with its user."""

_NUMBERS = "numbers"


class SideSplit:
    """Splits the activations of a batch by side, and puts two sides together again.

    Args:
        schema: All features of a batch.
        groups: Single-valued features of each group of the embedding tables, in order, by the group's name.
    """

    def __init__(self, schema: FeatureSchema, groups: Mapping[str, Sequence[str]]) -> None:
        self._schema = schema
        self._groups = {name: tuple(features) for name, features in groups.items()}
        self._numbers = number_columns(schema)
        self._stages = {
            stage: {output.feature for output in schema.outputs if output.side in sides}
            for stage, sides in STAGES.items()
        }

    def complete(self, batch: Mapping[str, tf.Tensor], side: str) -> Tensors:
        """A batch in which what belongs to the other side is filled in as missing.

        Args:
            batch: An encoded batch, of all features, or of this side's only: then `ids` and `numbers` have the
                columns of its features, in the order of the schema.
            side: "user" or "item".

        Raises:
            ConfigError: There is no such side, or the batch has another number of columns.
        """
        own = self._own(side)
        rows = _rows(batch)
        ids = [output.feature in own for output in self._schema.single_ids]
        numbers = [feature in own for feature in self._numbers]
        completed = dict(batch)
        completed["ids"] = _spread("ids", batch.get("ids"), ids, rows, tf.int32)
        completed[_NUMBERS] = _spread(_NUMBERS, batch.get(_NUMBERS), numbers, rows, tf.float32)
        for output in self._schema.multi_ids:
            if f"{output.feature}/row_lengths" not in completed:
                completed[f"{output.feature}/values"] = tf.zeros([0], tf.int32)
                completed[f"{output.feature}/row_lengths"] = tf.zeros([rows], tf.int32)
                if output.weighted:
                    completed[f"{output.feature}/weights"] = tf.zeros([0])
        return completed

    def split(self, activations: Mapping[str, tf.Tensor], numbers: tf.Tensor, side: str) -> Tensors:
        """The part of one side of `activations` and, under the key `numbers` and perhaps of width 0, of the numbers."""
        own = self._own(side)
        part: Tensors = {}
        for key, value in activations.items():
            columns = self._columns(key)
            if columns is None:
                if key.split("/", 1)[1] in own:
                    part[key] = value
            elif (block := Block(columns, value).select(own)) is not None:
                part[key] = block.values
        block = Block(self._numbers, numbers).select(own)
        part[_NUMBERS] = numbers[:, :0] if block is None else block.values
        return part

    def merge(
        self, user: Mapping[str, tf.Tensor], item: Mapping[str, tf.Tensor]
    ) -> tuple[Tensors, tf.Tensor]:
        """The activations and numbers of pairs: what `split` was given, for N rows.

        Args:
            user: Part of 1 or N rows.
            item: Part of N rows.

        Raises:
            ConfigError: There is no part of the item.
        """
        if _NUMBERS not in item:
            raise ConfigError(
                "nothing is known of the items, so they cannot be scored; add a feature of side `item`"
            )
        rows = tf.shape(item[_NUMBERS])[0]
        users = self._own("user")
        repeated = {key: _repeated(value, rows) for key, value in user.items()}
        merged: Tensors = {}
        for key in dict.fromkeys([*user, *item]):
            columns = self._columns(key)
            if columns is None:
                merged[key] = item[key] if key in item else repeated[key]
            else:
                owners = [feature in users for feature in columns]
                merged[key] = _interleaved(item.get(key), repeated.get(key), owners)
        return merged, merged.pop(_NUMBERS)

    def owners(self, key: str) -> list[bool] | bool:
        """By position of axis 1 of an activation, or of all of it: whether it describes the user, not the item."""
        columns, users = self._columns(key), self._own("user")
        return key.split("/", 1)[1] in users if columns is None else [name in users for name in columns]

    def _own(self, side: str) -> set[str]:
        if side not in self._stages:
            raise ConfigError(f"side must be 'user' or 'item', got {side!r}")
        return self._stages[side]

    def _columns(self, key: str) -> tuple[str, ...] | None:
        """The feature of each position of axis 1, or None for a tensor of one feature."""
        if key == _NUMBERS:
            return self._numbers
        kind, _, name = key.partition("/")
        return self._groups[name] if kind in ("embedding", "linear") else None


def number_columns(schema: FeatureSchema) -> tuple[str, ...]:
    """The feature of each column of `numbers`."""
    return tuple(output.feature for output in schema.numbers for _ in range(output.width))


def _rows(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """B of an encoded batch."""
    for key, value in batch.items():
        if not key.endswith(("/values", "/weights")):
            return tf.shape(value)[0]
    raise ConfigError("the batch is empty; it needs the features of the side to encode")


def _spread(
    key: str, values: tf.Tensor | None, own: Sequence[bool], rows: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """Columns [B, own columns] laid out as [B, all columns], zeros elsewhere; unchanged if they are all there."""
    given = 0 if values is None else values.shape[1]
    if values is None or not own:
        values = tf.zeros([rows, 0], dtype)
    if given == len(own):
        return values
    if given != sum(own):
        raise ConfigError(f"{key} has {given} columns; the side has {sum(own)}, all features have {len(own)}")
    return _interleaved(tf.zeros([rows, len(own) - given], dtype), values, own)


def _repeated(values: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """One row, or as many as wanted already, as `rows` rows."""
    return tf.broadcast_to(values, tf.concat([[rows], tf.shape(values)[1:]], axis=0))


def _interleaved(first: tf.Tensor | None, second: tf.Tensor | None, owners: Sequence[bool]) -> tf.Tensor:
    """Columns of two tensors in one: column i is the next column of `second` if `owners[i]`, else of `first`."""
    if second is None or not any(owners):
        return first
    if first is None or all(owners):
        return second
    sources = {False: first, True: second}
    taken = {False: 0, True: 0}
    parts = []
    for owner in owners:
        parts.append(sources[owner][:, taken[owner] : taken[owner] + 1])
        taken[owner] += 1
    return tf.concat(parts, axis=1)
