"""A bundle that serves: users encoded once, items encoded at load, many items scored at once.

    model = load_served_model("runs/films")
    user = model.user({"user_id": 42, "recent": ["m1", "m7"]})
    model.score(user, model.catalogue.rows(["m3", "m5"]))["liked"]

Every method may be called from several threads at once. Changes of the catalogue replace one immutable snapshot by
the next.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from easyrec.config.loader import load_stored_config
from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import BundleError, DataError, SchemaError, nearest
from easyrec.export.candidates import VECTORS, Candidates
from easyrec.export.encoded import ENCODED, check_encoded, read_encoded, sample_rows
from easyrec.export.examples import LITERT_TOLERANCE, TOLERANCE, replay_examples
from easyrec.export.layout import CANDIDATES, CONFIG, EXAMPLES, MAPPED_USERS, USERS, find_bundle
from easyrec.export.manifest import Manifest, read_manifest, verify_files
from easyrec.export.mapped import MappedTable
from easyrec.export.runtime import ITEM_EMBEDDING, SCORE, USER_EMBEDDING, Predictions, Runtime
from easyrec.features.batch import EncodedBatch
from serving.models.catalogue import Catalogue, Rows, Scores
from serving.models.histories import Histories
from serving.models.memory import release_heap, release_pages
from serving.models.runtimes import RuntimeChoice, load_runtime
from serving.models.search import SearchName, make_search

_WARM_UP_ROWS = (1, 500)
_UNUSABLE = (pa.ArrowException, OverflowError, UnicodeEncodeError)


@dataclass(frozen=True)
class EncodedUser:
    """What scoring needs to know of one user in one request."""

    batch: EncodedBatch


class ServedModel:
    """A loaded bundle. `load_served_model` makes one.

    Args:
        folder: The bundle.
        manifest: What it is.
        runtime_name: Which runtime computes.
        runtime: The model.
        catalogue: The items, or None when the bundle cannot recommend.
        users: The users that the bundle keeps, or None.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        runtime_name: str,
        runtime: Runtime,
        catalogue: Catalogue | None,
        users: MappedTable | None,
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.runtime = runtime_name
        self._runtime = runtime
        self._catalogue = catalogue
        self._users = users
        self._changing = threading.Lock()
        self._user_columns, self._item_columns = (
            list(dict.fromkeys(entry.column for entry in manifest.inputs if entry.of_item == of_item))
            for of_item in (False, True)
        )

    # What it is

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.manifest.name

    @property
    def version(self) -> str:
        """Version of the bundle."""
        return self.manifest.version

    @cached_property
    def config(self) -> PipelineConfig:
        """The resolved configuration it was trained with; read when the model is loaded."""
        return load_stored_config(self.folder / CONFIG)

    @property
    def tasks(self) -> list[str]:
        """What it predicts; the first task ranks unless told otherwise."""
        return [entry.task for entry in self.manifest.tasks]

    @property
    def two_tower(self) -> bool:
        """Whether items are found by their vectors."""
        return self._runtime.has(USER_EMBEDDING)

    @property
    def user_columns(self) -> list[str]:
        """Raw columns of the user and of the request that the model reads."""
        return list(self._user_columns)

    @property
    def item_columns(self) -> list[str]:
        """Raw columns of the item that the model reads."""
        return list(self._item_columns)

    def __repr__(self) -> str:
        return f"ServedModel({self.name!r}, version={self.version!r}, runtime={self.runtime!r})"

    # Items

    @property
    def catalogue(self) -> Catalogue:
        """The items as they are now: one snapshot, which later changes leave as it is.

        Raises:
            BundleError: The bundle cannot recommend.
        """
        if self._catalogue is None:
            raise BundleError(
                f"{self.name} cannot recommend: it was trained without `data.keys.item`, or its model reads nothing "
                "of the items; it can only predict rows"
            )
        return self._catalogue

    def put_items(self, rows: Mapping[Any, Mapping[str, Any]]) -> None:
        """Adds items, or replaces what is known of them; the next call of `score` knows them. All of them, or none.

        Args:
            rows: By item key: columns of the item table. Columns left out are missing.

        Raises:
            SchemaError: There is no such column.
            DataError: A value cannot be used.
        """
        if not rows:
            return
        with self._changing:
            catalogue = self.catalogue
            table = _item_rows(rows, catalogue.schema, catalogue.key)
            encoded = self._runtime.encode_items(table)
            vectors = self._runtime.embed(ITEM_EMBEDDING, table) if self.two_tower else None
            self._catalogue = catalogue.with_items(table, encoded, vectors)

    def remove_items(self, ids: Iterable[Any]) -> None:
        """Marks items as not available; unknown ones are passed over. `put_items` brings them back."""
        with self._changing:
            self._catalogue = self.catalogue.without_items(ids)

    # Users

    def user(self, columns: Mapping[str, Any]) -> EncodedUser:
        """Encodes one user in one request.

        Args:
            columns: Raw columns; missing ones are null, others than `user_columns` are passed over.

        Raises:
            DataError: A value cannot be used.
        """
        return EncodedUser(self._runtime.encode_user_row(columns))

    def known_user(self, user_id: Any) -> dict[str, Any] | None:
        """The raw columns of a user in the bundle, with `seen`, the keys of the items taken; None if it is unknown."""
        if self._users is None or user_id is None:
            return None
        position = self._users.positions([user_id])
        return None if position[0] < 0 else self._users.row(int(position[0]))

    def some_users(self, n: int) -> list[Any]:
        """Keys of at most `n` users that the bundle knows, from all over its table."""
        if self._users is None or not len(self._users):
            return []
        rows = np.unique(np.linspace(0, len(self._users) - 1, n).astype(np.int64))
        keys: list[Any] = self._users.table[self._users.key].take(pa.array(rows)).to_pylist()
        return keys

    @cached_property
    def histories(self) -> Histories:
        """Makes the sequence columns of a behaviour history."""
        return Histories(self.manifest, self.config)

    def history_columns(
        self, items: Sequence[Any], events: Mapping[str, Sequence[Any]] | None = None
    ) -> dict[str, Any]:
        """Raw sequence columns of a behaviour history, see `Histories.__call__`."""
        return self.histories(self.catalogue, items, events)

    # Scores

    def score(self, user: EncodedUser, rows: Rows) -> Predictions:
        """Predictions for one user with many items.

        Args:
            user: Of `user`.
            rows: [M] rows of the catalogue.

        Returns:
            By task: [M] float32, or [M, C] for a task of C classes.

        Raises:
            SchemaError: A row is not one of the catalogue's.
        """
        return self._runtime.score(user.batch, self.catalogue.encoded(np.asarray(rows, np.int64)))

    def user_vector(self, columns: Mapping[str, Any]) -> Scores:
        """[D] the user's vector, see `user`; two-tower models only.

        Raises:
            BundleError: The model has no vectors.
        """
        self._require_towers()
        return self._runtime.embed_user_row(columns)

    def search(
        self, vector: Scores, k: int, mask: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Rows, Scores]:
        """Rows and scores of the items nearest to a user's vector, best first; see `Catalogue.search`.

        Raises:
            BundleError: The model has no vectors.
        """
        self._require_towers()
        return self.catalogue.search(vector, k, mask)

    def predict(self, table: pa.Table) -> Predictions:
        """Predictions by task for rows with all raw columns.

        Raises:
            DataError: A column is missing, or a value cannot be used.
        """
        return self._runtime.predict(table)

    def warm_up(self) -> None:
        """Runs everything once, so that the first request is as fast as the others.

        What is read lazily is read here: later, another bundle may lie in the folder.
        """
        _ = self.histories
        if self._catalogue is None:
            return
        user = self.user({})
        for rows in _WARM_UP_ROWS:
            self.score(user, np.arange(min(rows, len(self.catalogue))))
        if self.two_tower:
            self.search(self.user_vector({}), 1)

    def _require_towers(self) -> None:
        if not self.two_tower:
            raise BundleError(f"{self.name} finds no items by vectors: that needs a two_tower model")


def load_served_model(
    path: str | Path,
    runtime: RuntimeChoice = "auto",
    threads: int = 1,
    verify: bool = True,
    search: SearchName = "exact",
) -> ServedModel:
    """Loads a bundle for serving: verified, items encoded, warmed up.

    Args:
        path: The folder of a bundle, or of a run that has one.
        runtime: `tensorflow`, `litert`, or `auto`: LiteRT where the bundle and this machine have it.
        threads: Threads that one call may use.
        verify: Compare all checksums, and predict the stored examples again.
        search: How a two-tower model finds items: `exact`, or `faiss` for large catalogues.

    Raises:
        BundleError: There is none, a file is missing, changed or one too many, or scores are not the stored ones.
    """
    folder = find_bundle(path)
    manifest = read_manifest(folder)
    if verify:
        verify_files(folder, manifest)
    name, computing = load_runtime(folder, manifest, runtime, threads)
    if verify:
        replay_examples(folder / EXAMPLES, computing, LITERT_TOLERANCE if name == "litert" else TOLERANCE)
    item, user = manifest.keys.get("item"), manifest.keys.get("user")
    catalogue = None
    if item and computing.has(SCORE) and (folder / CANDIDATES).is_dir():
        candidates = Candidates.read(folder / CANDIDATES, item)
        table = candidates.items
        encoded = read_encoded(folder / CANDIDATES / ENCODED, table, manifest.encoded, manifest.inputs)
        if verify:
            rows = sample_rows(table.table)
            check_encoded(encoded, rows, computing.encode_items(table.rows(rows)))
        vectors = candidates.vectors
        found = None if vectors is None else make_search(search, np.asarray(vectors))
        catalogue = Catalogue(candidates, encoded, search=found)
    users = (
        MappedTable.open_files(folder / MAPPED_USERS, user) if user and (folder / USERS).exists() else None
    )
    model = ServedModel(folder, manifest, name, computing, catalogue, users)
    release_pages(folder, scanned=[VECTORS])
    model.warm_up()
    release_heap()
    return model


def _item_rows(rows: Mapping[Any, Mapping[str, Any]], schema: pa.Schema, key: str) -> pa.Table:
    """Items as a table with the columns of the item table."""
    for item, columns in rows.items():
        for name in columns:
            if name not in schema.names:
                raise SchemaError(
                    f"item {item!r}: the item table has no column {name!r}.{nearest(name, schema.names)}"
                )
    arrays = {}
    for field in schema:
        values = [item if field.name == key else columns.get(field.name) for item, columns in rows.items()]
        arrays[field.name] = _typed(values, list(rows), field)
    return pa.table(arrays, schema=schema)


def _typed(values: list[Any], items: list[Any], field: pa.Field) -> pa.Array:
    try:
        return _array(values, field.type)
    except _UNUSABLE:
        for item, value in zip(items, values, strict=True):
            try:
                _array([value], field.type)
            except _UNUSABLE as error:
                raise DataError(
                    f"item {item!r}: {field.name!r} takes {field.type}, got {value!r} ({error})"
                ) from error
        raise


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values of a type, none of them changed: pyarrow alone would cut off fractions."""
    if pa.types.is_integer(kind) and any(isinstance(one, float) and not one.is_integer() for one in values):
        raise pa.ArrowInvalid("expected a whole number")
    return pa.array(values, kind)
