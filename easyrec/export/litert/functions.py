"""The functions of a model without TensorFlow, under the names and with the tensors of its SavedModel's signatures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from easyrec.config.features import Vocabulary
from easyrec.errors import BundleError
from easyrec.export.litert.activations import Activations, Part
from easyrec.export.litert.engine import Engine
from easyrec.export.litert.spec import (
    DENSE,
    HALVES,
    ITEM_HALF,
    ITEM_TOWER,
    PAIR,
    USER_HALF,
    USER_TOWER,
    VECTOR,
    LiteRTSpec,
)
from easyrec.export.manifest import HALF, EncodedEntry, Manifest
from easyrec.export.runtime import (
    ENCODE_ITEMS,
    ENCODE_USER,
    ITEM_EMBEDDING,
    SCORE,
    SERVE,
    USER_EMBEDDING,
    Functions,
    Runtime,
)
from easyrec.features.batch import EncodedBatch, RaggedColumn
from easyrec.features.twins.base import TWINS, Fitted, Twin
from easyrec.features.twins.encoder import TwinEncoder
from easyrec.features.twins.vocabulary import SortedKeys, TableTwin, VocabularyTwin, vocabulary_twin
from easyrec.registry import load_plugins

Arrays = dict[str, npt.NDArray[Any]]
_VOCABULARY: TypeAdapter[Any] = TypeAdapter(Vocabulary)


def load_runtime(folder: Path, manifest: Manifest, threads: int = 1) -> Runtime:
    """The LiteRT model of a bundle.

    Args:
        folder: The folder `litert` of the bundle.
        manifest: Of the bundle.
        threads: Threads of one call.

    Raises:
        BundleError: There is none, it cannot be used, or the LiteRT runtime is not installed.
        ConfigError: A feature type of the model has no twin here.
    """
    functions = LiteRTFunctions(folder, manifest, threads).functions
    return Runtime(functions, manifest.inputs, manifest.encoded, manifest.tasks)


class LiteRTFunctions:
    """The functions of one model.

    Args:
        folder: Where it is.
        manifest: Names of inputs and tensors.
        threads: Threads of one call.
    """

    def __init__(self, folder: Path, manifest: Manifest, threads: int) -> None:
        spec = LiteRTSpec.read(folder)
        self._manifest = manifest
        self._encoder = _encoder(folder, spec)
        schema = self._encoder.schema
        self._stages = {stage: schema.select(set(names)) for stage, names in spec.stages.items()}
        self._pairs = spec.stages["pair"]
        self._halved = HALVES in spec.functions or any(
            entry.key.startswith(HALF) for entry in manifest.encoded
        )
        tables = {file: _array(folder / file) for group in spec.groups for file in group.tables.values()}
        numbers = [output.feature for output in schema.numbers for _ in range(output.width)]
        self._activations = Activations(spec.groups, tables, numbers)
        self._engines = {name: Engine(folder, entry, threads) for name, entry in spec.functions.items()}

    @property
    def functions(self) -> Functions:
        """By name of the signature, as far as the manifest has them.

        Made anew at each call: kept here they would refer back to this object, and a model that is let go would wait
        with all of its memory for the garbage collector, which then frees it while every request waits.
        """
        known: dict[str, Callable[..., Arrays]] = {
            SERVE: self._serve,
            ENCODE_USER: partial(self._encode, "user"),
            ENCODE_ITEMS: partial(self._encode, "item"),
            SCORE: self._score,
            USER_EMBEDDING: partial(self._embed, "user"),
            ITEM_EMBEDDING: partial(self._embed, "item"),
        }
        return {name: known[name] for name in self._manifest.signatures}

    # The signatures

    def _serve(self, **arrays: npt.NDArray[Any]) -> Arrays:
        rows = len(next(iter(arrays.values())))
        batch = self._encoder.encode(self._columns(arrays), rows)
        return self._predict([Part(self._encoder.schema, batch)], rows)

    def _encode(self, side: str, **arrays: npt.NDArray[Any]) -> Arrays:
        columns = self._columns(arrays)
        rows = len(next(iter(arrays.values())))
        batch = self._encoder.encode(columns, rows, self._features(side))
        if self._is_half(side):
            halves = self._half(side, [Part(self._stages[side], batch)], rows)  # type: ignore[index]
            return {entry.tensor: half for entry, half in zip(self._entries(side), halves, strict=True)}
        packed: Arrays = {}
        for entry in self._entries(side):
            if entry.part is not None:
                packed[entry.tensor] = getattr(batch.ragged[entry.key], entry.part)
            elif entry.key.startswith("raw/"):
                packed[entry.tensor] = columns[entry.key.removeprefix("raw/")]
            else:
                packed[entry.tensor] = batch.dense[entry.key]
        return packed

    def _score(self, **arrays: npt.NDArray[Any]) -> Arrays:
        if self._halved:
            return self._score_halves(arrays)
        user, user_columns = self._unpack("user", arrays)
        item, item_columns = self._unpack("item", arrays)
        parts = [Part(self._stages["user"], user), Part(self._stages["item"], item)]
        rows = len(item) if self._entries("item") else len(user)
        if self._pairs:
            columns = item_columns | {name: _repeated(array, rows) for name, array in user_columns.items()}
            pair = self._encoder.encode(columns, rows, self._pairs)
            parts.append(Part(self._stages["pair"], pair))
            return self._predict(parts, rows)
        if DENSE in self._engines:
            return self._predict(parts, rows)
        return self._pair(self._vectors("user", parts[:1], 1), self._vectors("item", parts[1:], rows))

    def _score_halves(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
        user = [arrays[entry.tensor] for entry in self._entries("user")]
        if not self._is_half("item"):
            batch, _ = self._unpack("item", arrays)
            parts = [Part(self._stages["item"], batch)]
            if HALVES not in self._engines:
                return self._pair(user[0], self._vectors("item", parts, len(batch)))
            return self._paired(user, [], len(batch), partial(self._activations.fill, parts=parts))
        item = [arrays[entry.tensor] for entry in self._entries("item")]
        if HALVES not in self._engines:
            return self._pair(user[0], item[0])
        return self._paired(user, item, len(item[0]))

    def _paired(
        self,
        user: Sequence[npt.NDArray[Any]],
        item: Sequence[npt.NDArray[Any]],
        rows: int,
        rest: Callable[[Mapping[str, npt.NDArray[Any]]], None] | None = None,
    ) -> Arrays:
        """Predictions from halves, and from what `rest` fills in."""

        def fill(views: Mapping[str, npt.NDArray[Any]]) -> None:
            for side, halves in (("user", user), ("item", item)):
                for place, half in enumerate(halves):
                    if f"{side}/{place}" in views:
                        views[f"{side}/{place}"][:] = half
            if rest is not None:
                rest(views)

        return self._by_tensor(self._engines[HALVES](rows, fill))

    def _half(self, side: str, parts: Sequence[Part], rows: int) -> list[npt.NDArray[Any]]:
        """One side's half of the network: its vectors, of a model of two towers."""
        engine = self._engines.get(USER_HALF if side == "user" else ITEM_HALF)
        if engine is None:
            return [self._vectors(side, parts, rows)]
        found = engine(rows, partial(self._activations.fill, parts=parts))
        return [found[f"{side}/{place}"] for place in range(len(found))]

    def _is_half(self, side: str) -> bool:
        return any(entry.key.startswith(HALF) for entry in self._entries(side))

    def _embed(self, side: str, **arrays: npt.NDArray[Any]) -> Arrays:
        rows = len(next(iter(arrays.values())))
        batch = self._encoder.encode(self._columns(arrays), rows, self._features(side))
        return {"embedding": self._vectors(side, [Part(self._stages[side], batch)], rows)}  # type: ignore[index]

    # Parts of them

    def _predict(self, parts: Sequence[Part], rows: int) -> Arrays:
        """Predictions by tensor of rows whose features are all in `parts`."""
        if DENSE in self._engines:
            found = self._engines[DENSE](rows, partial(self._activations.fill, parts=parts))
            return self._by_tensor(found)
        return self._pair(self._vectors("user", parts, rows), self._vectors("item", parts, rows))

    def _vectors(self, side: str, parts: Sequence[Part], rows: int) -> npt.NDArray[np.float32]:
        engine = self._engines[USER_TOWER if side == "user" else ITEM_TOWER]
        return engine(rows, partial(self._activations.fill, parts=parts))[VECTOR]

    def _pair(self, user: npt.NDArray[np.float32], item: npt.NDArray[np.float32]) -> Arrays:
        def fill(views: Mapping[str, npt.NDArray[Any]]) -> None:
            views["user"][:] = user
            views["item"][:] = item

        return self._by_tensor(self._engines[PAIR](len(item), fill))

    def _by_tensor(self, predictions: Mapping[str, npt.NDArray[Any]]) -> Arrays:
        return {task.tensor: predictions[task.task] for task in self._manifest.tasks}

    def _features(self, side: str) -> Collection[str]:
        return [output.feature for output in self._stages[side].outputs]  # type: ignore[index]

    def _entries(self, side: str) -> list[EncodedEntry]:
        return [entry for entry in self._manifest.encoded if entry.side == side]

    def _columns(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
        """Raw columns by the names of the inputs."""
        return {entry.name: arrays[entry.tensor] for entry in self._manifest.inputs if entry.tensor in arrays}

    def _unpack(self, side: str, arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[EncodedBatch, Arrays]:
        dense: Arrays = {}
        columns: Arrays = {}
        ragged: dict[str, dict[str, npt.NDArray[Any]]] = {}
        rows = 1
        for entry in self._entries(side):
            array = arrays[entry.tensor]
            if entry.part is not None:
                ragged.setdefault(entry.key, {})[entry.part] = array
            elif entry.key.startswith("raw/"):
                columns[entry.key.removeprefix("raw/")] = array
            else:
                dense[entry.key] = array
            if entry.part in (None, "row_lengths"):
                rows = len(array)
        batch = EncodedBatch(rows, dense, {key: RaggedColumn(**parts) for key, parts in ragged.items()})
        return batch, columns


def _encoder(folder: Path, spec: LiteRTSpec) -> TwinEncoder:
    load_plugins(tuple(spec.plugins))
    vocabularies = {table: _vocabulary(folder, spec, table) for table in spec.vocabularies}
    twins: dict[str, Twin[Any]] = {}
    for entry in spec.features:
        config = TWINS[entry.config["type"]].config.model_validate(entry.config)
        fitted = Fitted(
            entry.specs,
            entry.state,
            None if entry.vocabulary is None else vocabularies[entry.vocabulary],
        )
        twins[entry.name] = TWINS.build(config, fitted)
    return TwinEncoder(spec.schema_of_features, twins)


def _vocabulary(folder: Path, spec: LiteRTSpec, table: str) -> VocabularyTwin:
    entry = spec.vocabularies[table]
    config = _VOCABULARY.validate_python(entry.config)
    if entry.text is None and entry.integers is None:
        return vocabulary_twin(config, None)
    return TableTwin(config.oov_buckets, _sorted(folder, entry.text), _sorted(folder, entry.integers))


def _sorted(folder: Path, stem: str | None) -> SortedKeys | None:
    if stem is None:
        return None
    return SortedKeys(_array(folder / f"{stem}.keys.npy"), _array(folder / f"{stem}.ids.npy"))


def _array(path: Path) -> npt.NDArray[Any]:
    """A memory-mapped array; a plain one, since every operation on NumPy's own class for them costs more."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise BundleError(f"{path} cannot be read: {error}") from error


def _repeated(array: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """One row, or N, as N rows."""
    return np.broadcast_to(array, (rows, *array.shape[1:]))
