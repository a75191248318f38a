"""Writes the LiteRT form of a trained model. Needs TensorFlow.

Only the dense part becomes a LiteRT model: what TensorFlow's converter cannot take over (text, look-ups, lists of any
length) has a twin in NumPy, and embedding tables stay plain arrays that may be larger than a LiteRT model can be.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from easyrec.embedding.collection import LINEAR
from easyrec.embedding.layout import Group
from easyrec.errors import BundleError
from easyrec.export.halves.split import activation_shapes, dense_predictions
from easyrec.export.litert.engine import available, tensor_names_of
from easyrec.export.litert.spec import (
    DENSE,
    HALVES,
    ITEM_HALF,
    ITEM_TOWER,
    PAIR,
    USER_HALF,
    USER_TOWER,
    VECTOR,
    FieldEntry,
    FunctionEntry,
    GroupEntry,
    LiteRTSpec,
    TwinEntry,
    VocabularyEntry,
    input_entry,
    output_entry,
)
from easyrec.export.signatures import ModelFunctions
from easyrec.features.outputs import IdsOutput
from easyrec.features.twins.base import TWINS
from easyrec.features.twins.vocabulary import SortedKeys, TableTwin
from easyrec.features.vocabulary import TableVocabulary
from easyrec.models.base import TowerModel

Tensors = dict[str, tf.Tensor]


def write_litert(folder: Path, functions: ModelFunctions) -> None:
    """Writes the LiteRT form of a model.

    Args:
        folder: Where to write; made here.
        functions: The model.

    Raises:
        BundleError: A feature type has no twin, the runtime that checks the result is not installed, or an operation of
            the model has no LiteRT form.
    """
    if not available():
        raise BundleError(
            "export.litert: the LiteRT runtime is not installed, so that the model could not be verified; "
            "`pip install easyrec[litert]`, or leave the option out"
        )
    folder.mkdir()
    vocabularies = _write_vocabularies(folder, functions)
    features = _features(functions)
    stages = functions.stages
    LiteRTSpec(
        plugins=list(functions.encoder.config.plugins),
        features=features,
        vocabularies=vocabularies,
        stages={"user": list(stages.user), "item": list(stages.item), "pair": list(stages.pair)},
        groups=_write_tables(folder, functions),
        linear_units=functions.network.embeddings.linear_units,
        functions=_write_functions(folder, functions),
    ).write(folder)


def _features(functions: ModelFunctions) -> list[TwinEntry]:
    entries = []
    for name, transform in functions.encoder.transforms.items():
        kind = transform.config.type
        if kind not in TWINS:
            raise BundleError(
                f"export.litert: the feature {name!r} is of type {kind!r}, which has no twin for serving without "
                "TensorFlow; register one in easyrec.features.twins.base.TWINS, or leave the option out"
            )
        vocabulary = getattr(transform, "vocabulary", None)
        entries.append(
            TwinEntry(
                name=name,
                config=transform.config.model_dump(mode="json"),
                inputs=[input_entry(spec) for spec in transform.inputs()],
                state=transform.state(),
                vocabulary=None if vocabulary is None else vocabulary.table,
                output=output_entry(transform.output()),
            )
        )
    return entries


def _write_vocabularies(folder: Path, functions: ModelFunctions) -> dict[str, VocabularyEntry]:
    entries = {}
    kinds: dict[str, set[str]] = {}
    for transform in functions.encoder.transforms.values():
        if hasattr(transform, "vocabulary"):
            kinds.setdefault(transform.vocabulary.table, set()).update(
                spec.kind for spec in transform.inputs() if spec.role == "category"
            )
    (folder / "vocabularies").mkdir()
    for number, vocabulary in enumerate(functions.encoder.vocabularies):
        config = vocabulary.config.model_dump(mode="json")
        if not isinstance(vocabulary, TableVocabulary):
            entries[vocabulary.table] = VocabularyEntry(config=config)
            continue
        twin = TableTwin.of_values(vocabulary.oov, vocabulary.values)
        as_integers = twin.integers is not None and "int" in kinds[vocabulary.table]
        as_text = twin.integers is None or "string" in kinds[vocabulary.table]
        entries[vocabulary.table] = VocabularyEntry(
            config=config,
            integers=_write_keys(folder, f"vocabularies/{number}.integers", twin.integers)
            if as_integers
            else None,
            text=_write_keys(folder, f"vocabularies/{number}.text", twin.text) if as_text else None,
        )
    return entries


def _write_keys(folder: Path, stem: str, keys: SortedKeys | None) -> str:
    if keys is not None:
        np.save(folder / f"{stem}.keys.npy", keys.keys)
        np.save(folder / f"{stem}.ids.npy", keys.ids)
    return stem


def _write_tables(folder: Path, functions: ModelFunctions) -> list[GroupEntry]:
    collection = functions.network.embeddings
    entries = []
    for group in collection.groups:
        kinds = ("embedding", LINEAR) if collection.linear_units else ("embedding",)
        tables = {}
        for kind in kinds:
            table = collection.tables[f"{kind}/{group.name}"]
            tables[kind] = f"{kind}_{group.name}.npy"
            array = np.lib.format.open_memmap(
                folder / tables[kind], "w+", np.float32, (table.rows, table.dim)
            )
            start = 0
            for block in table.slices(0, table.rows):
                array[start : start + len(block)] = block
                start += len(block)
            array.flush()
        entries.append(
            GroupEntry(
                name=group.name,
                dim=group.dim,
                singles=[_field(group, output) for output in group.singles],
                multis=[_field(group, output) for output in group.multis],
                tables=tables,  # type: ignore[arg-type]
            )
        )
    return entries


def _field(group: Group, output: IdsOutput) -> FieldEntry:
    return FieldEntry(
        feature=output.feature,
        offset=group.offset(output),
        pooling=output.pooling,
        sequence=output.sequence,
        max_length=output.max_length or 0,
        weighted=output.weighted,
    )


def _write_functions(folder: Path, functions: ModelFunctions) -> dict[str, FunctionEntry]:
    network = functions.network
    shapes = activation_shapes(network)
    if not isinstance(network.model, TowerModel):
        found = {DENSE: _convert(folder, DENSE, network, partial(dense_predictions, network), shapes)}
        return found | _write_halves(folder, functions, shapes)

    def tower(side: str) -> Callable[[Tensors], Tensors]:
        def vector(tensors: Tensors) -> Tensors:
            numbers = tensors.pop("numbers")
            return {VECTOR: network.tower(tensors, numbers, side)}

        return vector

    def pair(tensors: Tensors) -> Tensors:
        return network.score({"user_vector": tensors["user"]}, {"item_vector": tensors["item"]})

    blank = {key: tf.zeros([1, *shape]) for key, shape in shapes.items()}
    width = tower("user")(blank)[VECTOR].shape[1]
    return {
        USER_TOWER: _convert(folder, USER_TOWER, network, tower("user"), shapes),
        ITEM_TOWER: _convert(folder, ITEM_TOWER, network, tower("item"), shapes),
        PAIR: _convert(folder, PAIR, network, pair, {"user": (width,), "item": (width,)}),
    }


def _write_halves(
    folder: Path, functions: ModelFunctions, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, FunctionEntry]:
    halves, network = functions.halves, functions.network
    if halves is None:
        return {}
    user = {f"user/{place}": shape[1:] for place, shape in enumerate(halves.user)}
    item = {f"item/{place}": shape[1:] for place, shape in enumerate(halves.item)}

    def user_half(tensors: Tensors) -> Tensors:
        return dict(zip(user, halves.user_half(tensors), strict=True))

    def item_half(tensors: Tensors) -> Tensors:
        return dict(zip(item, halves.item_half(tensors), strict=True))

    def pairs(tensors: Tensors) -> Tensors:
        items = tensors if functions.precomputed else item_half(tensors)
        rows = tf.shape(tensors[next(key for key in tensors if key not in user)])[0]
        return halves.pairs([tensors[key] for key in user], [items[key] for key in item], rows)

    rest: Mapping[str, tuple[int | None, ...]] = item if functions.precomputed else shapes
    found = {HALVES: _convert(folder, HALVES, network, pairs, {**user, **rest}, user)}
    if user:
        found[USER_HALF] = _convert(folder, USER_HALF, network, user_half, shapes)
    if functions.precomputed:
        found[ITEM_HALF] = _convert(folder, ITEM_HALF, network, item_half, shapes)
    return found


def _convert(
    folder: Path,
    name: str,
    network: tf.Module,
    function: Callable[[Tensors], Tensors],
    shapes: Mapping[str, tuple[int | None, ...]],
    shared: Collection[str] = (),
) -> FunctionEntry:
    """Writes one LiteRT model.

    Args:
        folder: Where.
        name: Of the model.
        network: Holds the weights.
        function: Takes tensors [N, ...] by name and returns such tensors.
        shapes: Shapes of the inputs without N.
        shared: Inputs of one row, which stands for all.
    """
    inputs = {key: f"input_{number}" for number, key in enumerate(shapes)}
    outputs: dict[str, str] = {}

    def renamed(tensors: Tensors) -> Tensors:
        found = function({key: tensors[tensor] for key, tensor in inputs.items()})
        outputs.update({key: f"output_{number}" for number, key in enumerate(found)})
        return {outputs[key]: values for key, values in found.items()}

    signature = {
        tensor: tf.TensorSpec([1 if key in shared else None, *shapes[key]], tf.float32, name=tensor)
        for key, tensor in inputs.items()
    }
    concrete = tf.function(renamed, input_signature=[signature], autograph=False).get_concrete_function()
    module = tf.Module(name=name)
    module.weights = [variable.value for variable in network.variables]
    with tempfile.TemporaryDirectory() as saved:
        tf.saved_model.save(module, saved, {name: concrete})
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=[name])
        try:
            content = converter.convert()
        except Exception as error:  # the converter raises classes that TensorFlow does not name
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise BundleError(
                f"export.litert: a part of the model has no LiteRT form ({reason}); leave the option out and serve it "
                "with `runtime: tensorflow`"
            ) from error
    file = f"{name}.tflite"
    (folder / file).write_bytes(content)
    found_inputs, found_outputs = tensor_names_of(folder / file, name)
    return FunctionEntry(
        file=file,
        inputs={key: found_inputs[tensor] for key, tensor in inputs.items() if tensor in found_inputs},
        outputs={key: found_outputs[tensor] for key, tensor in outputs.items()},
        shared=[key for key, tensor in inputs.items() if key in shared and tensor in found_inputs],
    )
