"""A world of 60 films without TensorFlow: a real catalogue, and a model whose scores are known in advance."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import DataError
from easyrec.export.candidates import Candidates
from easyrec.export.content import describe_items
from easyrec.export.manifest import HistoryEntry, InputEntry, Manifest, TaskEntry
from easyrec.export.mapped import MappedTable
from easyrec.export.segments import segment_popularity, write_segments
from easyrec.export.tables import KeyedTable
from easyrec.features.batch import EncodedBatch
from serving.assignment import Assigner, NoExperiments
from serving.events.log import EventLog
from serving.events.writer import EventWriter
from serving.funnel.items import NewItems, Tables
from serving.funnel.scenes import Scenes
from serving.funnel.stages import Resources
from serving.funnel.trends import Trends
from serving.models.catalogue import Catalogue
from serving.models.histories import Histories
from serving.models.hub import ModelHub
from serving.models.search import ExactSearch
from serving.models.served import ServedModel
from serving.people.people import People
from serving.recommender import Recommender
from serving.stores.guard import GuardedStore
from serving.stores.memory import MemoryStore

ITEMS = 60
GENRES = ("comedy", "drama", "horror", "western")
CREATED = "2026-01-01T00:00:00+00:00"
NOW = 1_800_000_000.0


def item_table() -> pa.Table:
    """Item n is of genre n modulo 4, and of the next one too if n is even."""
    return pa.table(
        {
            "item_id": list(range(ITEMS)),
            "title": [f"Film {n}" for n in range(ITEMS)],
            "genres": [
                "|".join([GENRES[n % 4], GENRES[(n + 1) % 4]] if n % 2 == 0 else [GENRES[n % 4]])
                for n in range(ITEMS)
            ],
            "year": [1960 + n for n in range(ITEMS)],
        }
    )


def user_table() -> pa.Table:
    """Users 100 to 119; those with even keys live in Oslo and took items 0 to 4, the others 5 to 9."""
    users = range(100, 120)
    return pa.table(
        {
            "user_id": list(users),
            "age": [20.0 + user % 30 for user in users],
            "city": ["Oslo" if user % 2 == 0 else "Lima" for user in users],
            "recent": [[0, 1, 2, 3, 4] if user % 2 == 0 else [5, 6, 7, 8, 9] for user in users],
            "seen": [[0, 1, 2, 3, 4] if user % 2 == 0 else [5, 6, 7, 8, 9] for user in users],
        }
    )


def write_candidates(folder: Path) -> Candidates:
    """Items are popular in the order of their rows, and a neighbour of the three next ones."""
    items = KeyedTable(item_table(), "item_id")
    count = np.arange(ITEMS, 0, -1)
    neighbors = (np.arange(ITEMS)[:, None] + np.array([1, 2, 3])) % ITEMS
    scores = np.tile(np.array([0.9, 0.6, 0.3], np.float32), (ITEMS, 1))
    candidates = Candidates(
        items, count.astype(np.int64), count.astype(np.float64), neighbors.astype(np.int32), scores
    )
    candidates.write(folder)
    content = describe_items(items.table, {"genres": "|", "year": None}, count)
    if content is not None:
        content.write(folder)
    write_segments(folder, segment_popularity(user_table(), items, ["city"], np.ones(ITEMS)))
    return candidates


def _input(name: str, kind: str, side: str, **options: Any) -> InputEntry:
    return InputEntry(name=name, column=name, tensor=name, kind=kind, side=side, **options)


def manifest(name: str, version: str) -> Manifest:
    return Manifest(
        name=name,
        version=version,
        created=CREATED,
        model="deepfm",
        config_hash="",
        schema_fingerprint="",
        libraries={},
        keys={"user": "user_id", "item": "item_id", "time": "time"},
        inputs=[
            _input("user_id", "int", "user"),
            _input("age", "float", "user", role="number"),
            _input("city", "string", "user"),
            _input("device", "string", "context"),
            _input("recent", "int", "user", list=True),
            _input("item_id", "int", "item", of_item=True),
        ],
        histories=[HistoryEntry(name="recent", of="item_id")],
        tasks=[
            TaskEntry(task="click", tensor="click", type="binary"),
            TaskEntry(task="watch", tensor="watch", type="regression"),
        ],
        signatures=["serving_default", "score"],
    )


class KnownModel(ServedModel):
    """`click` of item n is n / 100, more for the genre of the age; `watch` is the other way round.

    Args:
        folder: Where its candidates are written.
        name: Of the model.
        version: Of the bundle.
        vectors: Give items vectors: one-hot by genre, as a two-tower model does.
    """

    def __init__(self, folder: Path, name: str = "films", version: str = "1", vectors: bool = False) -> None:
        candidates = write_candidates(folder / "candidates")
        search = None
        if vectors:
            one_hot = np.eye(4, dtype=np.float32)[np.arange(ITEMS) % 4]
            candidates = Candidates(**{**vars(candidates), "vectors": one_hot})
            search = ExactSearch(one_hot)
        catalogue = Catalogue(candidates, EncodedBatch(ITEMS), search=search)
        users = KeyedTable(user_table(), "user_id")
        MappedTable.write_files(users, folder / "users")
        super().__init__(
            folder,
            manifest(name, version),
            "known",
            self,
            catalogue,
            MappedTable.open_files(folder / "users", "user_id"),
        )
        self.failing: Exception | None = None
        self.asked: list[Mapping[str, Any]] = []
        self._vectors = vectors

    @property
    def two_tower(self) -> bool:
        return self._vectors

    @cached_property
    def config(self) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "data": {"train": "x", "keys": {"user": "user_id", "item": "item_id", "time": "time"}},
                "features": {
                    "user_id": "id",
                    "item_id": "id",
                    "recent": {
                        "type": "sequence",
                        "of": "item_id",
                        "history": {"where": "rating >= 4", "last": 5},
                    },
                },
                "model": "deepfm",
                "tasks": {"click": {"type": "binary"}},
            }
        )

    @cached_property
    def histories(self) -> Histories:
        return Histories(self.manifest, self.config)

    def encode_items(self, table: pa.Table) -> EncodedBatch:
        return EncodedBatch(len(table))

    def embed(self, function: str, table: pa.Table) -> np.ndarray:
        return np.eye(4, dtype=np.float32)[[0] * len(table)]

    def user(self, columns: Mapping[str, Any]) -> Any:
        self.asked.append(dict(columns))
        age = columns.get("age")
        if age is not None and not isinstance(age, (int, float)):
            raise DataError(f"'age' takes a number, got {age!r}")
        return columns

    def score(self, user: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
        if self.failing is not None:
            raise self.failing
        click = (np.asarray(rows, np.float32) + 1) / 100
        return {"click": click, "watch": 1 - click}

    def user_vector(self, columns: Mapping[str, Any]) -> np.ndarray:
        self.user(columns)
        return np.array([1, 0.5, 0.25, 0], np.float32)


class World:
    """A recommender over known models, and all it stands on.

    Args:
        folder: Where it keeps files.
        scenes: By name; see `serving.settings`.
        towers: Also a model with vectors.
        assigner: Experiments.
    """

    def __init__(
        self,
        folder: Path,
        scenes: Mapping[str, Any] | None = None,
        towers: bool = False,
        assigner: Assigner | None = None,
    ) -> None:
        self.now = NOW
        self.model = KnownModel(folder / "films")
        self.hub = ModelHub(load=lambda path: self.models[path.name])
        self.models: dict[str, ServedModel] = {"films": self.model}
        if towers:
            self.models["towers"] = KnownModel(folder / "towers", "towers", vectors=True)
        for name in self.models:
            self.hub.load_now(name)
        self.store = GuardedStore(MemoryStore())
        tables = Tables()
        self.resources = Resources(tables, Trends(), NewItems(tables, lambda: self.now))
        self.log = EventLog(folder / "events")
        self.writer = EventWriter(self.log, self.store, lambda: self.now)
        self.writer.listeners.append(self.resources.trends.add)
        self.scenes = Scenes(scenes or {}, list(self.models.values()), self.resources)
        self.recommender = Recommender(
            self.hub,
            "films",
            self.scenes,
            People(self.store),
            self.writer,
            assigner or NoExperiments(),
            lambda: self.now,
        )
