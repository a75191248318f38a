"""The bundle: a folder that holds all it takes to predict and to recommend, and refers to nothing outside.

What lies where in it: `easyrec.export.layout`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from easyrec.config.loader import load_stored_config
from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import BundleError, DataError
from easyrec.export.candidates import Candidates
from easyrec.export.examples import replay_examples
from easyrec.export.frames import Frame, as_table
from easyrec.export.layout import CANDIDATES, CONFIG, EXAMPLES, MODEL, USERS, find_bundle
from easyrec.export.manifest import Manifest, read_manifest, verify_files
from easyrec.export.predict import Predictor
from easyrec.export.ranking import Ranker
from easyrec.export.recommend import FUNNEL, Catalogue, Recommender
from easyrec.export.runtime import BATCH_ROWS, SCORE, Runtime
from easyrec.export.savedmodel import load_runtime
from easyrec.export.tables import KeyedTable
from easyrec.export.users import Users


@dataclass(frozen=True)
class Bundle:
    """A loaded bundle.

    Attributes:
        folder: Where it is.
        manifest: What it is.
        runtime: Its model.
        candidates: The catalogue, or None when items have no key.
        users: The users it keeps, or None.
    """

    folder: Path
    manifest: Manifest
    runtime: Runtime
    candidates: Candidates | None
    users: KeyedTable | None

    @classmethod
    def load(cls, path: str | Path, verify: bool = True) -> Bundle:
        """Loads a bundle.

        Args:
            path: The folder of a bundle, or of a run that has one.
            verify: Compare all checksums, and predict the stored examples again.

        Raises:
            BundleError: There is none, a file is missing, changed or one too many, or scores are not the stored ones.
        """
        folder = find_bundle(path)
        manifest = read_manifest(folder)
        if verify:
            verify_files(folder, manifest)
        runtime = load_runtime(folder / MODEL, manifest)
        item, user = manifest.keys.get("item"), manifest.keys.get("user")
        bundle = cls(
            folder,
            manifest,
            runtime,
            Candidates.read(folder / CANDIDATES, item) if item and (folder / CANDIDATES).is_dir() else None,
            KeyedTable.read(folder / USERS, user) if user and (folder / USERS).exists() else None,
        )
        if verify:
            replay_examples(folder / EXAMPLES, runtime)
        return bundle

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"Bundle({manifest.name!r}, model={manifest.model!r}, version={manifest.version!r})"

    @cached_property
    def config(self) -> PipelineConfig:
        """The resolved configuration it was trained with."""
        return load_stored_config(self.folder / CONFIG)

    def predict(
        self, frame: Frame, *, keep: Sequence[str] | Mapping[str, str] = (), batch_size: int = BATCH_ROWS
    ) -> pd.DataFrame:
        """Predictions for rows.

        Columns of the item or user table that the frame lacks are taken from the bundle, if the frame has the key.

        Args:
            frame: Raw columns: a DataFrame, an Arrow table, or a mapping of columns.
            keep: Columns of the frame to return beside the predictions; a mapping gives them other names.
            batch_size: Rows that are computed at once.

        Returns:
            One row a row, with the index of the frame: the columns kept; then, by task, its name with a float32, or for
            a task of C classes `<task>_0` to `<task>_<C-1>`. Classes with names of their own give `<task>`, the most
            probable one, and the probabilities `<task>_<class>`.

        Raises:
            DataError: A column is missing, or a value cannot be used.
        """
        if batch_size < 1:
            raise DataError(f"batch_size is how many rows are computed at once, at least 1; got {batch_size}")
        table = self.predictor.predict(as_table(frame), [keep] if isinstance(keep, str) else keep, batch_size)
        predictions = table.to_pandas()
        return predictions.set_index(frame.index) if isinstance(frame, pd.DataFrame) else predictions

    @cached_property
    def predictor(self) -> Predictor:
        """Predicts Arrow tables."""
        items = None if self.candidates is None else self.candidates.items
        return Predictor(self.runtime, items, self.users)

    @cached_property
    def catalogue(self) -> Catalogue:
        """What recommends.

        Raises:
            BundleError: Items have no key, or the model reads nothing of them.
        """
        if self.candidates is None or not self.runtime.has(SCORE):
            raise BundleError(
                f"{self.manifest.name} cannot recommend: "
                + (
                    "it was trained without `data.keys.item`, so it knows no items; it can only predict rows"
                    if self.candidates is None
                    else "its model reads nothing of the items, so all would score alike"
                )
            )
        ranker = Ranker(self.runtime, self.candidates.items, self.candidates.vectors)
        users = Users(self.manifest, self.candidates.items, self.users)
        return Catalogue(self.manifest.name, ranker, self.candidates, users)

    def recommend(
        self,
        user: Any = None,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        item_ids: Iterable[Any] | None = None,
        exclude_ids: Iterable[Any] = (),
        profile: Mapping[str, Any] | None = None,
        history: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        task: str | None = None,
        retriever: Bundle | None = None,
        candidates: int = FUNNEL,
    ) -> pd.DataFrame:
        """The best items for one user.

        A user of whom nothing is known gets what is popular now. `.attrs["source"]` of the result says how it was made
        (`model`, `retrieval`, `retrieval+model` or `popularity`), `.attrs["reason"]` why.

        Args:
            user: Key of the user.
            n: At most this many items.
            exclude_seen: Leave out what the user has interacted with, `history` included.
            item_ids: Only these items; those that are not in the catalogue are left out.
            exclude_ids: Not these items.
            profile: Raw columns of the user and of the context, in place of those in the bundle.
            history: Keys of the items the user took, oldest first, in place of the history in the bundle.
            columns: Columns of the item table to return; all that hold single values unless given.
            task: What to rank by, the first task unless given; several classes rank by the expected class.
            retriever: A bundle with a two-tower model that finds candidates; else the whole catalogue is scored.
            candidates: How many candidates it finds.

        Returns:
            The item key, `score`, `position` (from 1) and columns of the item table, best first.

        Raises:
            EasyRecError: The bundle cannot recommend, or an argument cannot be used.
        """
        recommender = Recommender(
            self.catalogue, None if retriever is None else retriever.catalogue, candidates
        )
        return recommender.recommend(
            user,
            n,
            exclude_seen=exclude_seen,
            item_ids=item_ids,
            exclude_ids=exclude_ids,
            profile=profile,
            history=history,
            columns=columns,
            task=task,
        )

    def rank_users(
        self, users: Iterable[Any], k: int, *, exclude_seen: bool = True, task: str | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The best items of the catalogue for many users of the bundle.

        Args:
            users: [U] Keys.
            k: At most this many items a user.
            exclude_seen: Leave out what each user has interacted with.
            task: What to rank by; the first task unless given.

        Returns:
            Rows of `candidates.items` [U, k], -1 where a user has fewer, and their scores [U, k], best first. A
            two-tower model gives dot products.

        Raises:
            EasyRecError: The bundle cannot recommend, or does not know a user.
        """
        columns, seen = self.catalogue.users.rows(users)
        positions = np.full((len(columns), k), -1, np.int64)
        scores = np.full((len(columns), k), -np.inf, np.float32)
        ranked = self.catalogue.ranker.rank(columns, k, seen if exclude_seen else None, task)
        for row, (found, values) in enumerate(ranked):
            positions[row, : len(found)], scores[row, : len(found)] = found, values
        return positions, scores

    def scores(self, users: Iterable[Any], task: str | None = None) -> npt.NDArray[np.float32]:
        """Scores [U, N] of every item of the catalogue for users of the bundle, see `rank_users`."""
        columns, _ = self.catalogue.users.rows(users)
        rows = list(self.catalogue.ranker.scores(columns, task=task))
        return np.stack(rows) if rows else np.empty((0, len(self.catalogue.candidates.items)), np.float32)


def load(path: str | Path, verify: bool = True) -> Bundle:
    """The bundle of a run, ready to predict and recommend: `easyrec.load("runs/films").recommend(42)`."""
    return Bundle.load(path, verify)
