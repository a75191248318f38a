"""The functions of a trained model: raw columns in, predictions out; the ones a SavedModel offers."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from easyrec.config.tasks import class_names
from easyrec.export.halves.split import TwoHalves, halves_of
from easyrec.export.manifest import HALF, EncodedEntry, InputEntry, TaskEntry
from easyrec.export.names import tensor_names
from easyrec.export.runtime import (
    ENCODE_ITEMS,
    ENCODE_USER,
    ITEM_EMBEDDING,
    SCORE,
    SERVE,
    USER_EMBEDDING,
    Runtime,
)
from easyrec.export.stages import (
    ITEM,
    USER,
    Stage,
    StageCodec,
    Tensors,
    input_entries,
    join_batches,
    raw_spec,
    split_features,
)
from easyrec.features.encoder import Encoder
from easyrec.models.base import TowerModel
from easyrec.models.network import Network

PRECOMPUTED_BYTES = 256 << 20
"""The items' half of the network is computed beforehand if that of all items takes no more."""
_VECTORS: dict[Stage, str] = {USER: "user_vector", ITEM: "item_vector"}


class ModelFunctions:
    """A model as functions of raw columns.

        serving_default   raw columns [B] of all features -> predictions by task [B]
        encode_user       raw columns of the user and the request [B] -> encoded user
        encode_items      raw columns of items [N] -> encoded items
        score             one encoded user, N encoded items -> predictions by task [N]
        user_embedding    as encode_user -> `embedding` [B, D]; only of models with two towers
        item_embedding    as encode_items -> `embedding` [N, D]

    Lists are dense tensors [B, L] padded with the missing value of their type ("", -2**63, NaN). Predictions are those
    of `Network.predict`. All but the first are there only if the model reads something of items that have a key.

    What is encoded of users is their half of the network (`easyrec.export.halves`), unless features of both sides have
    to be computed for each pair. Of items it is the same if `precomputed`, else ids and numbers.

    Args:
        encoder: The fitted features.
        network: The network; later changes of its weights take effect at once.
        item_columns: Columns of the item table; none when there is no item key.
        items: For how many items the weights are final: their halves are computed beforehand unless they take more
            than `PRECOMPUTED_BYTES`.

    Attributes:
        inputs: Raw columns.
        encoded: Tensors between the encoding functions and `score`.
        halves: The two halves of the network, or None.
        precomputed: Whether `encode_items` gives the items' half.
        tasks: What is predicted.
        functions: tf.functions of one dictionary of tensors, by name.
        stages: The features by stage.
    """

    def __init__(
        self, encoder: Encoder, network: Network, item_columns: Collection[str] = (), items: int = 0
    ) -> None:
        self.encoder = encoder
        self.network = network
        self.inputs = input_entries(encoder, item_columns)
        self.tasks = _task_entries(network)
        self.stages = split_features(encoder, item_columns)
        self._user = self._codec(USER, self.stages.user)
        self._item = self._codec(ITEM, self.stages.item)
        self.functions = {SERVE: self._function(self._serve, self._raw(self.inputs))}
        used = {output.feature for output in network.model.schema.outputs}
        self.encoded: list[EncodedEntry] = []
        self.halves: TwoHalves | None = None
        self.precomputed = False
        if item_columns and used & {*self.stages.item, *self.stages.pair}:
            if not self.stages.pair:
                self.halves = halves_of(network)
                self.precomputed = bool(self.halves.item) and 0 < items * _row_bytes(self.halves.item) <= (
                    PRECOMPUTED_BYTES
                )
            self.encoded = [*self._entries(USER), *self._entries(ITEM)]
            self._add_stages()

    def runtime(self) -> Runtime:
        """The functions, ready to be called with tables."""
        functions = {name: _OfArrays(function) for name, function in self.functions.items()}
        return Runtime(functions, self.inputs, self.encoded, self.tasks)

    def save(self, folder: Path) -> None:
        """Writes a SavedModel with the functions as signatures; it holds what they read and nothing else.

        Raises:
            OSError: It cannot be written.
        """
        signatures = {name: function.get_concrete_function() for name, function in self.functions.items()}
        module = tf.Module(name="model")
        tables = self.network.embeddings.tables.values()
        module.tables = [shard for table in tables for shard in table.shards]
        module.weights = [variable.value for variable in self.network.variables]
        module.lookups = list(self.encoder.resources)
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        try:
            tf.saved_model.save(module, folder, signatures, options)
        except tf.errors.OpError as error:
            # TensorFlow ends its messages with the reason of the operating system: "<path>; No space left on device".
            raise OSError(errno.EIO, error.message.rsplit(";", 1)[-1].strip()) from error

    def _add_stages(self) -> None:
        user, item = self._side_inputs(USER), self._side_inputs(ITEM)
        if user and self._entries(USER):
            self.functions[ENCODE_USER] = self._function(self._encoding(USER), user)
        self.functions[ENCODE_ITEMS] = self._function(self._encoding(ITEM), item)
        specs = (self._user.specs if self.halves is None else self._half_specs(USER, 1)) | (
            self._half_specs(ITEM, None) if self.precomputed else self._item.specs
        )
        self.functions[SCORE] = self._function(self._score, specs)
        if isinstance(self.network.model, TowerModel) and not self.stages.pair:
            self.functions[USER_EMBEDDING] = self._function(self._embedding(USER, self.stages.user), user)
            self.functions[ITEM_EMBEDDING] = self._function(self._embedding(ITEM, self.stages.item), item)

    def _codec(self, stage: Stage, features: Iterable[str]) -> StageCodec:
        later = [spec for name in self.stages.pair for spec in self.encoder.transforms[name].inputs()]
        of_item = {entry.name for entry in self.inputs if entry.of_item}
        raw = {spec.name: spec for spec in later if (spec.name in of_item) == (stage == ITEM)}
        return StageCodec(stage, self.encoder.schema.select(set(features)), list(raw.values()))

    def _is_half(self, stage: Stage) -> bool:
        return self.precomputed if stage == ITEM else self.halves is not None

    def _half_shapes(self, stage: Stage) -> Sequence[tuple[int | None, ...]]:
        if self.halves is None:
            return []
        return self.halves.user if stage == USER else self.halves.item

    def _entries(self, stage: Stage) -> list[EncodedEntry]:
        if not self._is_half(stage):
            return (self._user if stage == USER else self._item).entries
        return [
            EncodedEntry(side=stage, key=f"{HALF}{place}", tensor=f"{stage}_half_{place}")
            for place in range(len(self._half_shapes(stage)))
        ]

    def _half_specs(self, stage: Stage, rows: int | None) -> dict[str, tf.TensorSpec]:
        shapes = self._half_shapes(stage)
        return {
            entry.tensor: tf.TensorSpec([rows, *shape[1:]], tf.float32)
            for entry, shape in zip(self._entries(stage), shapes, strict=True)
        }

    # Signatures take tensors by their tensor names; inside, raw columns go by the names of the inputs.

    def _raw(self, entries: Iterable[InputEntry]) -> dict[str, tf.TensorSpec]:
        return {entry.tensor: raw_spec(entry.spec) for entry in entries}

    def _side_inputs(self, stage: Stage) -> dict[str, tf.TensorSpec]:
        return self._raw(entry for entry in self.inputs if entry.of_item == (stage == ITEM))

    def _columns(self, tensors: Tensors) -> Tensors:
        return {entry.name: tensors[entry.tensor] for entry in self.inputs if entry.tensor in tensors}

    @staticmethod
    def _function(function: Callable[[Tensors], Tensors], specs: Mapping[str, tf.TensorSpec]) -> Any:
        named = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in specs.items()}
        # TensorFlow warns when one code is traced often; behind `partial`, each model's function is its own.
        return tf.function(partial(function), input_signature=[named], autograph=False)

    def _serve(self, tensors: Tensors) -> Tensors:
        return self._predictions(self.network.predict(self.encoder.encode(self._columns(tensors))))

    def _encoding(self, stage: Stage) -> Callable[[Tensors], Tensors]:
        features = self.stages.user if stage == USER else self.stages.item
        codec = self._user if stage == USER else self._item

        def encode(tensors: Tensors) -> Tensors:
            columns = self._columns(tensors)
            batch = self.encoder.encode(columns, features) if features else {}
            if not self._is_half(stage):
                return codec.pack(batch, columns)
            names = [entry.tensor for entry in self._entries(stage)]
            return dict(zip(names, self._half(stage, batch), strict=True))

        return encode

    def _half(self, stage: Stage, batch: Tensors) -> list[tf.Tensor]:
        """A side's half of the network from its encoded features."""
        activations, numbers = self.network.side_activations(batch, stage)
        half = self._halved.user_half if stage == USER else self._halved.item_half
        return half({**activations, "numbers": numbers})

    @property
    def _halved(self) -> TwoHalves:
        if self.halves is None:
            raise TypeError("the model is not split into halves")
        return self.halves

    def _embedding(self, stage: Stage, features: Collection[str]) -> Callable[[Tensors], Tensors]:
        def embed(tensors: Tensors) -> Tensors:
            batch = self.encoder.encode(self._columns(tensors), features)
            return {"embedding": self.network.encode_side(batch, stage)[_VECTORS[stage]]}

        return embed

    def _score(self, tensors: Tensors) -> Tensors:
        if self.halves is not None:
            return self._score_halves(tensors)
        user, user_columns = self._user.unpack(tensors)
        item, item_columns = self._item.unpack(tensors)
        rows = tf.shape(next(iter((item | item_columns).values())))[0]
        columns = item_columns | {name: _rows(values, rows) for name, values in user_columns.items()}
        pair = self.encoder.encode(columns, self.stages.pair)
        schema = self.encoder.schema
        parts = [
            (self._user.schema, user),
            (self._item.schema, item),
            (schema.select(set(self.stages.pair)), pair),
        ]
        return self._predictions(self.network.predict(join_batches(schema, parts, rows)))

    def _score_halves(self, tensors: Tensors) -> Tensors:
        user = [tensors[entry.tensor] for entry in self._entries(USER)]
        if self.precomputed:
            item = [tensors[entry.tensor] for entry in self._entries(ITEM)]
            rows = tf.shape(item[0])[0]
        else:
            item, rows = self._half(ITEM, self._item.unpack(tensors)[0]), self._item.rows(tensors)
        return self._predictions(self._halved.pairs(user, item, rows))

    def _predictions(self, predictions: Tensors) -> Tensors:
        return {entry.tensor: predictions[entry.task] for entry in self.tasks}


class _OfArrays:
    """A function of a dictionary of tensors, called with NumPy arrays as keyword arguments, as signatures are."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, **arrays: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        tensors = {
            name: tf.constant(array, tf.string if array.dtype == np.object_ else None)
            for name, array in arrays.items()
        }
        return {name: value.numpy() for name, value in self.function(tensors).items()}


def _row_bytes(shapes: Sequence[tuple[int | None, ...]]) -> int:
    return sum(4 * math.prod(size or 1 for size in shape[1:]) for shape in shapes)


def _task_entries(network: Network) -> list[TaskEntry]:
    names = tensor_names(network.heads)
    entries = []
    for task, head in network.heads.items():
        classes = class_names(head.config)
        entries.append(
            TaskEntry(
                task=task,
                tensor=names[task],
                type=head.config.type,
                classes=None if classes is None else len(classes),
                class_names=classes if isinstance(getattr(head.config, "classes", None), list) else None,
            )
        )
    return entries


def _rows(values: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """One row, or N, as N rows."""
    return tf.broadcast_to(values, tf.concat([[rows], tf.shape(values)[1:]], axis=0))
