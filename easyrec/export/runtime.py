"""Calls the functions of a model with tables and arrays, be it a SavedModel or a model still in training.

Imports no TensorFlow: functions take and return NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from easyrec.export.inputs import blocks, to_tensors
from easyrec.export.manifest import EncodedEntry, InputEntry, TaskEntry
from easyrec.export.row import row_tensors
from easyrec.features.batch import EncodedBatch, RaggedColumn
from easyrec.features.inputs import MISSING_INT

Predictions = dict[str, npt.NDArray[np.float32]]
Functions = Mapping[str, Callable[..., dict[str, npt.NDArray[Any]]]]

SERVE, ENCODE_USER, ENCODE_ITEMS, SCORE = "serving_default", "encode_user", "encode_items", "score"
USER_EMBEDDING, ITEM_EMBEDDING, SCORE_EMBEDDINGS = "user_embedding", "item_embedding", "score_embeddings"
BATCH_ROWS = 8192


class Runtime:
    """A model as functions of tables.

    Args:
        functions: By name of the signature: keyword arguments are arrays, the result maps names to arrays.
        inputs: Raw inputs.
        encoded: What the encoding signatures return.
        tasks: What is predicted.
    """

    def __init__(
        self,
        functions: Functions,
        inputs: Sequence[InputEntry],
        encoded: Sequence[EncodedEntry],
        tasks: Sequence[TaskEntry],
    ) -> None:
        self._functions = functions
        self.inputs = tuple(inputs)
        self.tasks = tuple(tasks)
        self._encoded = tuple(encoded)

    def has(self, function: str) -> bool:
        """Whether the model has a function."""
        return function in self._functions

    def predict(self, table: pa.Table, batch_rows: int = BATCH_ROWS) -> Predictions:
        """Predictions for the rows of a table.

        Args:
            table: Has the columns of all `inputs`.
            batch_rows: How many rows are computed at once.

        Returns:
            By task: [B] float32, or [B, C] for a task of C classes.

        Raises:
            DataError: A column is missing or cannot be used.
        """
        parts = [
            self._call(SERVE, to_tensors(part, self.inputs))
            for part in blocks(table, self.inputs, batch_rows)
        ]
        return self._predictions(parts)

    def encode_user(self, table: pa.Table) -> EncodedBatch:
        """The user's side of each row of a table."""
        return self._encode(ENCODE_USER, "user", table)

    def encode_user_row(self, values: Mapping[str, Any]) -> EncodedBatch:
        """The user's side of one row, from values by column; columns that are not there are missing.

        Raises:
            DataError: A value cannot be used.
        """
        if not self.has(ENCODE_USER):
            return EncodedBatch(1)
        arrays = self._call(ENCODE_USER, row_tensors(values, self._side("user")))
        return self._batch("user", 1, arrays, {name: array.shape[-1] for name, array in arrays.items()})

    def embed_user_row(self, values: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """The vector [D] of one user, see `encode_user_row`."""
        vectors = self._call(USER_EMBEDDING, row_tensors(values, self._side("user")))["embedding"]
        return np.asarray(vectors[0])

    def encode_items(self, table: pa.Table) -> EncodedBatch:
        """The item's side of each row of a table."""
        return self._encode(ENCODE_ITEMS, "item", table)

    def score(self, user: EncodedBatch, items: EncodedBatch, batch_rows: int = BATCH_ROWS) -> Predictions:
        """Predictions for one user with many items.

        Args:
            user: One row of `encode_user`.
            items: N rows of `encode_items`.
            batch_rows: How many items are computed at once.

        Returns:
            By task: [N] or [N, C] float32.
        """
        fixed = self._tensors("user", user)
        parts = [
            self._call(SCORE, fixed | self._tensors("item", items.slice(start, start + batch_rows)))
            for start in range(0, max(len(items), 1), batch_rows)
        ]
        return self._predictions(parts)

    def embed(self, function: str, table: pa.Table, batch_rows: int = BATCH_ROWS) -> npt.NDArray[np.float32]:
        """Vectors [B, D] of users (`user_embedding`) or items (`item_embedding`)."""
        inputs = self._side("user" if function == USER_EMBEDDING else "item")
        parts = [
            self._call(function, to_tensors(part, inputs))["embedding"]
            for part in blocks(table, inputs, batch_rows)
        ]
        return np.concatenate(parts)

    def score_embeddings(self, users: npt.NDArray[np.float32], items: npt.NDArray[np.float32]) -> Predictions:
        """Predictions [U, N] of every user with every item, from their vectors."""
        outputs = self._call(SCORE_EMBEDDINGS, {"user_embedding": users, "item_embedding": items})
        return self._predictions([outputs])

    def _side(self, side: str) -> list[InputEntry]:
        return [entry for entry in self.inputs if entry.of_item == (side == "item")]

    def _encode(self, function: str, side: str, table: pa.Table) -> EncodedBatch:
        inputs = self._side(side)
        if not self.has(function):  # the model reads nothing of this side
            return EncodedBatch(len(table))
        parts = [
            (len(part), self._call(function, to_tensors(part, inputs)))
            for part in blocks(table, inputs, BATCH_ROWS)
        ]
        widest = {name: max(arrays[name].shape[-1] for _, arrays in parts) for name in parts[0][1]}
        return EncodedBatch.concat([self._batch(side, rows, arrays, widest) for rows, arrays in parts])

    def _batch(
        self, side: str, rows: int, arrays: Mapping[str, npt.NDArray[Any]], widest: Mapping[str, int]
    ) -> EncodedBatch:
        dense: dict[str, npt.NDArray[Any]] = {}
        ragged: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for entry in self._encoded:
            if entry.side == side and entry.part is None:
                array = arrays[entry.tensor]
                raw = entry.key.startswith("raw/")
                dense[entry.key] = padded(array, widest[entry.tensor]) if raw else array
            elif entry.side == side and entry.part is not None:
                ragged.setdefault(entry.key, {})[entry.part] = arrays[entry.tensor]
        return EncodedBatch(rows, dense, {key: RaggedColumn(**parts) for key, parts in ragged.items()})

    def _tensors(self, side: str, batch: EncodedBatch) -> dict[str, npt.NDArray[Any]]:
        return {
            entry.tensor: batch.dense[entry.key]
            if entry.part is None
            else getattr(batch.ragged[entry.key], entry.part)
            for entry in self._encoded
            if entry.side == side
        }

    def _call(self, function: str, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        return self._functions[function](**arrays)

    def _predictions(self, parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Predictions:
        return {
            task.task: parts[0][task.tensor]
            if len(parts) == 1
            else np.concatenate([part[task.tensor] for part in parts])
            for task in self.tasks
        }


def padded(array: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """Raw lists [B, L] of one block as wide as those of the others."""
    if array.ndim == 1 or array.shape[1] == width:
        return array
    missing = {"i": MISSING_INT, "f": np.nan}.get(array.dtype.kind, b"")
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=missing)
