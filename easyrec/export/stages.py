"""Which features are computed for the user, which for an item, and which need both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from easyrec.export.manifest import EncodedEntry, InputEntry
from easyrec.export.names import tensor_names
from easyrec.features.encoder import Encoder
from easyrec.features.inputs import InputSpec
from easyrec.features.outputs import FeatureSchema, IdsOutput
from easyrec.models.sides import STAGES

Tensors = dict[str, tf.Tensor]
Stage = Literal["user", "item"]
USER: Stage = "user"
ITEM: Stage = "item"


@dataclass(frozen=True)
class Stages:
    """The features by stage.

    Attributes:
        user: Features computed from what is known of the user and the request.
        item: Features computed from the columns of the item table.
        pair: Features that need columns of both, such as a cross of user and item.
    """

    user: tuple[str, ...]
    item: tuple[str, ...]
    pair: tuple[str, ...]


def split_features(encoder: Encoder, item_columns: Collection[str]) -> Stages:
    """Puts each feature into a stage.

    Args:
        encoder: The features.
        item_columns: Columns of the item table.
    """
    found: dict[str, list[str]] = {USER: [], ITEM: [], "pair": []}
    for output in encoder.schema.outputs:
        stage = ITEM if output.side in STAGES[ITEM] else USER
        columns = [spec.column for spec in encoder.transforms[output.feature].inputs()]
        own = all((column in item_columns) == (stage == ITEM) for column in columns)
        found[stage if own else "pair"].append(output.feature)
    return Stages(tuple(found[USER]), tuple(found[ITEM]), tuple(found["pair"]))


def input_entries(encoder: Encoder, item_columns: Collection[str]) -> list[InputEntry]:
    """The raw inputs of an encoder, with names for the signatures."""
    categories = {
        spec.name
        for transform in encoder.transforms.values()
        for spec in transform.inputs()
        if spec.role == "category"
    }
    names = tensor_names(encoder.inputs)
    return [
        InputEntry(
            name=name,
            column=spec.column,
            tensor=names[name],
            kind=spec.kind,
            side=spec.side,
            of_item=spec.column in item_columns,
            list=spec.list,
            role="category" if name in categories else "number",
            part=spec.part,
            aligned_with=spec.aligned_with,
        )
        for name, spec in encoder.inputs.items()
    ]


class StageCodec:
    """Packs the encoded features of one stage into few tensors, and back.

    The tensors are `ids` [B, F] and `numbers` [B, K] of the stage's own features, values, row lengths and weights of
    those with several ids a row, and `raw/<input>` for inputs that features of both sides need later.

    Args:
        stage: "user" or "item".
        schema: The outputs of the stage's features, in order.
        raw: Inputs that are passed on as they are.
    """

    def __init__(self, stage: Stage, schema: FeatureSchema, raw: Sequence[InputSpec] = ()) -> None:
        self.stage = stage
        self.schema = schema
        self.raw = tuple(raw)
        self._width = sum(output.width for output in schema.numbers)
        keys = [(key, part) for key, part, _ in self._layout()]
        names = tensor_names("/".join((stage, key, part) if part else (stage, key)) for key, part in keys)
        tensors = names.values()
        self.entries = [
            EncodedEntry(side=stage, key=key, part=part, tensor=tensor)  # type: ignore[arg-type]
            for (key, part), tensor in zip(keys, tensors, strict=True)
        ]
        self.specs = {
            tensor: tf.TensorSpec(spec.shape, spec.dtype, name=tensor)
            for (_, _, spec), tensor in zip(self._layout(), tensors, strict=True)
        }

    def _layout(self) -> Iterable[tuple[str, str | None, tf.TensorSpec]]:
        """Key, part and spec of each tensor."""
        if self.schema.single_ids:
            yield "ids", None, tf.TensorSpec([None, len(self.schema.single_ids)], tf.int32)
        if self._width:
            yield "numbers", None, tf.TensorSpec([None, self._width], tf.float32)
        for output in self.schema.multi_ids:
            yield output.feature, "values", tf.TensorSpec([None], tf.int32)
            yield output.feature, "row_lengths", tf.TensorSpec([None], tf.int32)
            if output.weighted:
                yield output.feature, "weights", tf.TensorSpec([None], tf.float32)
        for spec in self.raw:
            yield f"raw/{spec.name}", None, raw_spec(spec)

    def pack(self, batch: Tensors, columns: Mapping[str, tf.Tensor]) -> Tensors:
        """Signature outputs from the encoded batch of the stage's features and its raw columns."""
        packed = {}
        for entry in self.entries:
            if entry.key.startswith("raw/") and entry.part is None:
                packed[entry.tensor] = columns[entry.key.removeprefix("raw/")]
            else:
                packed[entry.tensor] = batch[f"{entry.key}/{entry.part}" if entry.part else entry.key]
        return packed

    def unpack(self, tensors: Mapping[str, tf.Tensor]) -> tuple[Tensors, Tensors]:
        """The encoded batch and the raw columns that were packed."""
        batch: Tensors = {}
        columns: Tensors = {}
        for entry in self.entries:
            if entry.key.startswith("raw/") and entry.part is None:
                columns[entry.key.removeprefix("raw/")] = tensors[entry.tensor]
            else:
                batch[f"{entry.key}/{entry.part}" if entry.part else entry.key] = tensors[entry.tensor]
        return batch, columns

    def rows(self, tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """How many rows were packed, scalar int32."""
        first = next(entry.tensor for entry in self.entries if entry.part in (None, "row_lengths"))
        return tf.shape(tensors[first])[0]


def raw_spec(spec: InputSpec) -> tf.TensorSpec:
    """What a signature takes for a raw input."""
    dtype = {"string": tf.string, "int": tf.int64, "float": tf.float32}[spec.kind]
    return tf.TensorSpec([None, None] if spec.list else [None], dtype)


def join_batches(
    schema: FeatureSchema, parts: Sequence[tuple[FeatureSchema, Tensors]], rows: tf.Tensor
) -> Tensors:
    """One batch of N rows of the whole schema from batches of some of its features each.

    Args:
        schema: All features.
        parts: Batches of 1 or N rows with their features; each feature is in one of them.
        rows: N.
    """
    singles: dict[str, tf.Tensor] = {}
    numbers: dict[str, tf.Tensor] = {}
    batch: Tensors = {}
    for own, part in parts:
        for index, output in enumerate(own.single_ids):
            singles[output.feature] = _repeated(part["ids"][:, index : index + 1], rows)
        start = 0
        for number in own.numbers:
            numbers[number.feature] = _repeated(part["numbers"][:, start : start + number.width], rows)
            start += number.width
        for output in own.multi_ids:
            batch |= _repeated_lists(output, part, rows)
    ids = [singles[output.feature] for output in schema.single_ids]
    batch["ids"] = tf.concat(ids, axis=1) if ids else tf.zeros([rows, 0], tf.int32)
    columns = [numbers[output.feature] for output in schema.numbers]
    batch["numbers"] = tf.concat(columns, axis=1) if columns else tf.zeros([rows, 0], tf.float32)
    return batch


def _repeated(values: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return tf.broadcast_to(values, [rows, values.shape[1]])


def _repeated_lists(output: IdsOutput, part: Tensors, rows: tf.Tensor) -> Tensors:
    lengths = part[f"{output.feature}/row_lengths"]
    times = [rows // tf.maximum(tf.size(lengths), 1)]
    keys = [f"{output.feature}/{name}" for name in ("values", "row_lengths", "weights")]
    return {key: tf.tile(part[key], times) for key in keys if key in part}
