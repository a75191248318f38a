"""Rows with their scores inside a bundle, to prove wherever it is loaded that the model still gives the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from easyrec.errors import BundleError
from easyrec.export.manifest import InputEntry, TaskEntry
from easyrec.export.runtime import SCORE, Predictions, Runtime

ROWS, SCORES = "rows.parquet", "scores.parquet"
TOLERANCE = 1e-5
# LiteRT adds up in another order than TensorFlow; what is wrong differs by much more.
LITERT_TOLERANCE = 1e-4
_TWO_STAGE_ROWS = 4
_BATCH_ROWS = 64


def choose_examples(rows: pa.Table, inputs: Sequence[InputEntry], n: int) -> pa.Table:
    """Rows spread evenly over a table, and one in which everything is missing.

    Args:
        rows: Has the columns of `inputs`.
        inputs: What the model reads.
        n: About how many.
    """
    columns = list(dict.fromkeys(entry.column for entry in inputs))
    positions = np.unique(np.linspace(0, len(rows) - 1, min(n, len(rows))).astype(np.int64))
    chosen = rows.select(columns).take(pa.array(positions, pa.int64())).combine_chunks()
    blank = pa.table({field.name: pa.nulls(1, field.type) for field in chosen.schema}, schema=chosen.schema)
    return pa.concat_tables([chosen, blank]).unify_dictionaries().combine_chunks()


def write_examples(folder: Path, rows: pa.Table, scores: Mapping[str, npt.NDArray[Any]]) -> None:
    """Stores rows and their scores by task, [B] or [B, C]."""
    folder.mkdir()
    pq.write_table(rows, folder / ROWS, compression="zstd")
    columns = {
        task: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        if values.ndim == 2
        else pa.array(values)
        for task, values in scores.items()
    }
    pq.write_table(pa.table(columns), folder / SCORES, compression="zstd")


def replay_examples(folder: Path, runtime: Runtime, tolerance: float = TOLERANCE) -> None:
    """Predicts the stored rows again: all of them as rows, and some in two stages, as a service does.

    Args:
        folder: Where the rows are.
        runtime: The model.
        tolerance: How much a score may differ from the stored one (times its size, if above 1).

    Raises:
        BundleError: A score differs by more, naming the worst row.
    """
    try:
        rows, stored = pq.read_table(folder / ROWS), pq.read_table(folder / SCORES)
    except (OSError, pa.ArrowException) as error:
        raise BundleError(f"the example rows in {folder} cannot be read: {error}") from error
    expected = _arrays(stored, runtime.tasks)
    # In small parts, because a service may be answering requests meanwhile.
    compare(rows, expected, runtime.predict(rows, _BATCH_ROWS), "the bundle", tolerance)
    if runtime.has(SCORE):
        few = np.unique(np.linspace(0, len(rows) - 1, _TWO_STAGE_ROWS).astype(np.int64))
        compare(
            rows.take(pa.array(few)),
            {task: values[few] for task, values in expected.items()},
            _in_two_stages(rows, few, runtime),
            "the bundle, with users and items apart,",
            tolerance,
        )


def _in_two_stages(rows: pa.Table, few: npt.NDArray[np.int64], runtime: Runtime) -> Predictions:
    """Predictions of some rows, each with its user once and the items of all rows."""
    users, items = runtime.encode_user(rows), runtime.encode_items(rows)
    scored = [runtime.score(users.slice(row, row + 1), items) for row in few]
    return {
        task.task: np.stack([scores[task.task][row] for scores, row in zip(scored, few, strict=True)])
        for task in runtime.tasks
    }


def _arrays(table: pa.Table, tasks: Sequence[TaskEntry]) -> Predictions:
    arrays = {}
    for task in tasks:
        column = table[task.task].combine_chunks()
        arrays[task.task] = (
            column.to_numpy(zero_copy_only=False)
            if task.classes is None
            else column.flatten().to_numpy(zero_copy_only=False).reshape(-1, task.classes)
        )
    return arrays


def compare(
    rows: pa.Table, expected: Predictions, found: Predictions, what: str, tolerance: float = TOLERANCE
) -> None:
    """Raises a BundleError naming the row whose scores differ most, if they differ too much.

    Args:
        rows: The raw rows.
        expected: Scores by task.
        found: The same, computed by `what`.
        what: For the message.
        tolerance: How much is too much, see `replay_examples`.
    """
    for task, wanted in expected.items():
        got = found[task]
        if got.shape != wanted.shape:
            raise BundleError(
                f"{what} gives scores of shape {got.shape} for {task!r}, expected {wanted.shape}"
            )
        same = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
        with np.errstate(invalid="ignore"):
            errors = np.where(same, 0.0, np.abs(wanted - got) / np.maximum(1.0, np.abs(wanted)))
        errors = np.where(np.isnan(errors), np.inf, errors).reshape(len(rows), -1).max(axis=1, initial=0.0)
        if len(errors) and errors.max() > tolerance:
            row = int(errors.argmax())
            raise BundleError(
                f"{what} does not give the scores of its stored examples: {task!r} of row {row} is {got[row]}, "
                f"expected {wanted[row]} (row: {rows.slice(row, 1).to_pylist()[0]}). It was damaged, or this machine "
                "computes differently; export it again here with `easyrec export RUN`"
            )
