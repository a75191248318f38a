"""A seeded data set in the shape of Criteo's: 13 counts, 26 categorical ids, a click label that can be learnt.

Ids follow Zipf's law with exponent 1.05 over vocabularies of geometrically growing size, 100 to 1,000,000. The label
is drawn from a hidden factorization machine over ids and counts, so there is something for embeddings to find and an
upper limit of the AUC that is known. Files are written row group by row group: ten million rows need no more memory
than one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20240601
COUNTS = [f"I{index + 1}" for index in range(13)]
IDS = [f"C{index + 1}" for index in range(26)]
VOCABULARIES = [round(size) for size in np.geomspace(100, 1_000_000, len(IDS))]
EXPONENT = 1.05
GROUP_ROWS = 65_536
_FACTORS = 8


@dataclass(frozen=True)
class Data:
    """Files on disk, and the AUC of the probabilities that labels were drawn with."""

    train: Path
    test: Path
    train_rows: int
    bayes_auc: float


def generate(directory: Path, train_rows: int = 1_000_000, test_rows: int = 100_000) -> Data:
    """Writes `train.parquet` and `test.parquet`, unless they are there already with these many rows."""
    directory.mkdir(parents=True, exist_ok=True)
    data = Data(directory / "train.parquet", directory / "test.parquet", train_rows, 0.0)
    note = directory / "made.json"
    wanted = {"seed": SEED, "train_rows": train_rows, "test_rows": test_rows}
    if note.is_file():
        made = json.loads(note.read_text())
        if {key: made[key] for key in wanted} == wanted:
            return Data(data.train, data.test, train_rows, made["bayes_auc"])
    truth = _Truth(np.random.default_rng(SEED))
    _write(data.train, truth, train_rows, seed=SEED + 1)
    labels, probabilities = _write(data.test, truth, test_rows, seed=SEED + 2)
    bayes = auc(labels, probabilities)
    note.write_text(json.dumps({**wanted, "bayes_auc": bayes}))
    return Data(data.train, data.test, train_rows, bayes)


def auc(labels: npt.NDArray[np.float32], scores: npt.NDArray[np.float32]) -> float:
    """Area under the ROC curve, ties counted as half: the rank-sum formula."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives = labels > 0.5
    count = int(positives.sum())
    return float((ranks[positives].sum() - count * (count + 1) / 2) / (count * (len(labels) - count)))


class _Truth:
    """The hidden model, and the popularity of ids."""

    def __init__(self, random: np.random.Generator) -> None:
        self.cumulative = []
        self.permutations = []
        self.weights = []
        self.factors = []
        for size in VOCABULARIES:
            mass = np.cumsum(np.arange(1, size + 1, dtype=np.float64) ** -EXPONENT)
            self.cumulative.append(mass / mass[-1])
            self.permutations.append(random.permutation(size).astype(np.int32))
            self.weights.append(random.normal(0, 0.4, size).astype(np.float32))
            self.factors.append(random.normal(0, 0.12, (size, _FACTORS)).astype(np.float32))
        self.slopes = random.normal(0, 0.2, len(COUNTS)).astype(np.float32)

    def rows(
        self, random: np.random.Generator, count: int
    ) -> tuple[dict[str, npt.NDArray[np.generic]], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        columns: dict[str, npt.NDArray[np.generic]] = {}
        latent = random.standard_normal((count, len(COUNTS))).astype(np.float32)
        logit = latent @ self.slopes - 1.55
        for index, name in enumerate(COUNTS):
            columns[name] = np.floor(np.exp(latent[:, index] + 1.5)).astype(np.float32)
        total = np.zeros((count, _FACTORS), np.float32)
        squares = np.zeros((count, _FACTORS), np.float32)
        for index, name in enumerate(IDS):
            ranks = np.searchsorted(self.cumulative[index], random.random(count)).clip(
                max=VOCABULARIES[index] - 1
            )
            ids = self.permutations[index][ranks]
            columns[name] = ids
            logit += self.weights[index][ids]
            vectors = self.factors[index][ids]
            total += vectors
            squares += vectors * vectors
        logit += 0.5 * (total * total - squares).sum(1)
        probability = (1 / (1 + np.exp(-logit))).astype(np.float32)
        return columns, (random.random(count) < probability).astype(np.float32), probability


def _write(
    path: Path, truth: _Truth, rows: int, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    labels, probabilities = [], []
    temporary = path.with_suffix(".writing")
    writer = None
    for start in range(0, rows, GROUP_ROWS):
        columns, label, probability = truth.rows(random, min(GROUP_ROWS, rows - start))
        table = pa.table({"label": label.astype(np.int8), **columns})
        writer = writer or pq.ParquetWriter(temporary, table.schema, compression="snappy")
        writer.write_table(table)
        labels.append(label)
        probabilities.append(probability)
    if writer is not None:
        writer.close()
    temporary.replace(path)
    return np.concatenate(labels), np.concatenate(probabilities)
