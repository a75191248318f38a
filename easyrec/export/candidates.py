"""What can be recommended without a model: the catalogue, popularity, and items that are taken together.

candidates/items.parquet         row i describes item i: all columns of the item table
candidates/items.arrow           the same, to be memory-mapped, and two arrays that find keys (`mapped.py`)
candidates/popularity.parquet    row i: the item's key, `count` and `recent`
candidates/neighbors.npy         [N, K] int32   row i: items taken by the same users, best first, -1 for none
candidates/neighbor_scores.npy   [N, K] float32
candidates/vectors.npy           [N, D] float32 item vectors, of two-tower models only
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from easyrec.errors import BundleError
from easyrec.export.mapped import MappedTable
from easyrec.export.search import top_k
from easyrec.export.tables import KeyedTable

ITEMS = "items.parquet"
MAPPED_ITEMS = "items"
POPULARITY = "popularity.parquet"
NEIGHBORS = "neighbors.npy"
NEIGHBOR_SCORES = "neighbor_scores.npy"
VECTORS = "vectors.npy"


@dataclass(frozen=True)
class Candidates:
    """The catalogue of N items and what is known of each without a model.

    Attributes:
        items: The item table.
        count: [N] How often each was taken in the training data.
        recent: [N] The same, each time discounted by its age.
        neighbors: [N, K] Rows of the items most often taken by the same users, best first, -1 for none.
        neighbor_scores: [N, K] How much more than by chance, from 0 to 1.
        vectors: [N, D] Item vectors of a two-tower model, or None.
    """

    items: KeyedTable
    count: npt.NDArray[np.int64]
    recent: npt.NDArray[np.float64]
    neighbors: npt.NDArray[np.int32]
    neighbor_scores: npt.NDArray[np.float32]
    vectors: npt.NDArray[np.float32] | None = None

    def write(self, folder: Path) -> None:
        """Writes the files listed at the top of this module."""
        folder.mkdir(parents=True, exist_ok=True)
        self.items.write(folder / ITEMS)
        MappedTable.write_files(self.items, folder / MAPPED_ITEMS)
        popularity = {self.items.key: self.items.keys, "count": self.count, "recent": self.recent}
        pq.write_table(pa.table(popularity), folder / POPULARITY, compression="zstd")
        np.save(folder / NEIGHBORS, self.neighbors)
        np.save(folder / NEIGHBOR_SCORES, self.neighbor_scores)
        if self.vectors is not None:
            np.save(folder / VECTORS, self.vectors)

    @classmethod
    def read(cls, folder: Path, key: str) -> Candidates:
        """Reads what `write` has written; arrays are memory-mapped.

        Raises:
            BundleError: A file cannot be read, or does not fit the others.
        """
        items = MappedTable.open_files(folder / MAPPED_ITEMS, key)
        popularity = _read_table(folder / POPULARITY, ["count", "recent"])
        arrays = {name: _read_array(folder / name) for name in (NEIGHBORS, NEIGHBOR_SCORES)}
        vectors = _read_array(folder / VECTORS) if (folder / VECTORS).exists() else None
        lengths = {POPULARITY: popularity.num_rows} | {name: len(array) for name, array in arrays.items()}
        if vectors is not None:
            lengths[VECTORS] = len(vectors)
        for name, length in lengths.items():
            if length != len(items):
                raise BundleError(f"{folder / name} has {length} rows, but {ITEMS} has {len(items)}")
        return cls(
            items,
            popularity["count"].to_numpy(),
            popularity["recent"].to_numpy(),
            arrays[NEIGHBORS],
            arrays[NEIGHBOR_SCORES],
            vectors,
        )

    def popular(self, n: int, allowed: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.int64]:
        """Rows of the `n` items taken most often, recent times counting more.

        Args:
            n: At most this many.
            allowed: [N] Which items may be returned; all unless given.
        """
        scores = self.recent if allowed is None else np.where(allowed, self.recent, -np.inf)
        return top_k(scores, n)

    def similar(self, row: int, n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Rows and scores of the `n` items that the users of one item took most, best first."""
        found = np.asarray(self.neighbors[row, :n])
        count = int(np.count_nonzero(found >= 0))
        return found[:count].astype(np.int64), np.asarray(self.neighbor_scores[row, :count])


def _read_array(path: Path) -> npt.NDArray[Any]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BundleError(f"{path} cannot be read: {error}") from error


def _read_table(path: Path, columns: list[str]) -> pa.Table:
    try:
        return pq.read_table(path, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise BundleError(f"{path} cannot be read: {error}") from error
