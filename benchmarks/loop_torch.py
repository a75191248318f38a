"""(b) A PyTorch loop written by hand for this one model, reading Parquet.

The same layout and mathematics as (a): one fused 16-wide table and a linear column, gradients of unique ids added up,
Adagrad on those rows, Adam on the dense weights. A thread reads, decodes and shuffles ahead.
"""

from __future__ import annotations

import queue
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from criteo_like import COUNTS, IDS, VOCABULARIES, auc
from settings import ADAGRAD, BATCH, DIM, HIDDEN, LEARNING_RATE, Outcome, arguments, finish
from torch.nn import functional

FIELDS = len(IDS)
OFFSETS = np.concatenate([[0], np.cumsum(VOCABULARIES)[:-1]]).astype(np.int32)
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def row_groups(path: Path, order: np.ndarray | None = None) -> Iterator[Rows]:
    """Ids as rows of the fused table, numbers and labels of each row group."""
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups) if order is None else order:
        table = file.read_row_group(int(group))
        ids = np.stack([table[name].to_numpy() for name in IDS], 1) + OFFSETS
        numbers = np.log1p(np.stack([table[name].to_numpy() for name in COUNTS], 1), dtype=np.float32)
        yield ids, numbers, table["label"].to_numpy().astype(np.float32)


def batches(path: Path, random: np.random.Generator) -> Iterator[Rows]:
    """Batches of rows in random order: groups in random order, rows shuffled over four groups at a time."""
    order = random.permutation(pq.ParquetFile(path).num_row_groups)
    rest: list[Rows] = []
    for place, rows in enumerate(row_groups(path, order)):
        rest.append(rows)
        if len(rest) < 4 and place + 1 < len(order):
            continue
        joined = [np.concatenate(parts) for parts in zip(*rest, strict=True)]
        shuffled = random.permutation(len(joined[2]))
        joined = [values[shuffled] for values in joined]
        full = len(shuffled) // BATCH * BATCH
        for start in range(0, full, BATCH):
            yield tuple(values[start : start + BATCH] for values in joined)
        rest = [tuple(values[full:] for values in joined)]


def ahead(items: Iterator[Rows], depth: int = 8) -> Iterator[Rows]:
    """The items, made on a thread a few ahead."""
    ready: queue.Queue = queue.Queue(depth)

    def work() -> None:
        for item in items:
            ready.put(item)
        ready.put(None)

    threading.Thread(target=work, daemon=True).start()
    while (item := ready.get()) is not None:
        yield item


class DeepFM:
    """Weights, step and prediction."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        rows = int(sum(VOCABULARIES))
        start = ADAGRAD["initial_accumulator"]
        self.table = torch.empty(rows, DIM)
        torch.nn.init.trunc_normal_(self.table, std=0.05, a=-0.1, b=0.1)
        self.table_sums = torch.full((rows, DIM), start)
        self.linear = torch.zeros(rows)
        self.linear_sums = torch.full((rows,), start)
        layers: list[torch.nn.Module] = []
        width = FIELDS * DIM + len(COUNTS)
        for units in HIDDEN:
            layers += [torch.nn.Linear(width, units), torch.nn.ReLU()]
            width = units
        self.deep = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))
        for layer in self.deep:
            if isinstance(layer, torch.nn.Linear):
                torch.nn.init.xavier_uniform_(layer.weight)
                torch.nn.init.zeros_(layer.bias)
        self.numbers = torch.nn.Linear(len(COUNTS), 1, bias=False)
        torch.nn.init.zeros_(self.numbers.weight)
        weights = [*self.deep.parameters(), *self.numbers.parameters()]
        self.adam = torch.optim.Adam(weights, LEARNING_RATE, eps=1e-7)

    def logits(self, embeddings: torch.Tensor, linear: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """[B] from [B, F, D], [B, F] and [B, K]."""
        deep = self.deep(torch.cat([embeddings.flatten(1), numbers], 1))[:, 0]
        total = embeddings.sum(1)
        pairs = 0.5 * (total * total - (embeddings * embeddings).sum(1)).sum(1)
        return deep + pairs + linear.sum(1) + self.numbers(numbers)[:, 0]

    def step(self, ids: np.ndarray, numbers: np.ndarray, labels: np.ndarray) -> float:
        """One batch; the loss."""
        unique, inverse = torch.unique(torch.from_numpy(ids).reshape(-1), return_inverse=True)
        # `index_select` and `index_copy_` take half the time of indexing with a tensor.
        rows, linear = self.table.index_select(0, unique), self.linear.index_select(0, unique)
        embeddings = rows.index_select(0, inverse).view(-1, FIELDS, DIM).requires_grad_()
        weights = linear.index_select(0, inverse).view(-1, FIELDS).requires_grad_()
        loss = functional.binary_cross_entropy_with_logits(
            self.logits(embeddings, weights, torch.from_numpy(numbers)), torch.from_numpy(labels)
        )
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        self.adam.step()
        with torch.no_grad():
            gradient = torch.zeros_like(rows).index_add_(0, inverse, embeddings.grad.view(-1, DIM))
            unique = unique.long()
            self._adagrad(self.table, self.table_sums, unique, rows, gradient)
            gradient = torch.zeros_like(linear).index_add_(0, inverse, weights.grad.view(-1))
            self._adagrad(self.linear, self.linear_sums, unique, linear, gradient)
        return loss.item()

    @staticmethod
    def _adagrad(
        table: torch.Tensor, sums: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        total = sums.index_select(0, ids).addcmul_(gradient, gradient)
        sums.index_copy_(0, ids, total)
        scale = total.add_(ADAGRAD["epsilon"]).rsqrt_()
        table.index_copy_(0, ids, rows.addcmul(gradient, scale, value=-ADAGRAD["learning_rate"]))

    def predict(self, ids: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Probabilities [B]."""
        with torch.no_grad():
            index = torch.from_numpy(ids)
            logits = self.logits(self.table[index], self.linear[index], torch.from_numpy(numbers))
            return torch.sigmoid(logits).numpy()


def main() -> None:
    """Trains one epoch and prints the outcome."""
    options = arguments(__doc__)
    model = DeepFM(options.seed)
    begin, cpu, examples = 0.0, 0.0, 0
    for step, rows in enumerate(
        ahead(batches(options.data / "train.parquet", np.random.default_rng(options.seed)))
    ):
        model.step(*rows)
        if step == 0:
            begin, cpu = time.perf_counter(), time.process_time()
        else:
            examples += len(rows[2])
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    labels, scores = [], []
    for ids, numbers, label in row_groups(options.data / "test.parquet"):
        labels.append(label)
        scores.append(model.predict(ids, numbers))
    quality = auc(np.concatenate(labels), np.concatenate(scores))
    finish(Outcome(examples, seconds, cpu_seconds, quality, peak))


if __name__ == "__main__":
    main()
