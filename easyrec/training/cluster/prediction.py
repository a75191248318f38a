"""Evaluation on a cluster: workers predict the held-out splits, the chief measures all predictions as always."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from easyrec.data.prepared.shards import ShardSet, reason_of
from easyrec.embedding.lookup import Lookup
from easyrec.errors import DataError, EasyRecError
from easyrec.training.cluster.connection import Connection
from easyrec.training.cluster.dispatch import Dispatcher, Outcome, Task
from easyrec.training.cluster.errors import lost, of_a_shard, to_be_done_again
from easyrec.training.step import Tensors


def read_predictions(path: Path) -> Callable[[Any], dict[str, Any]]:
    """Predictions that workers made, given out table by table in the order in which they were made.

    Args:
        path: The file that `SplitPredictor.write` wrote.

    Returns:
        A function from a table of held-out rows, the next ones each time, to predictions by task.
    """
    names = path.with_suffix(".json").read_text(encoding="utf-8").split("\n")
    with np.load(path) as stored:
        arrays = {name: stored[f"task_{position}"] for position, name in enumerate(names)}
    position = 0

    def predict(table: Any) -> dict[str, Any]:
        nonlocal position
        start, position = position, position + table.num_rows
        return {name: array[start:position] for name, array in arrays.items()}

    return predict


class SplitPredictor:
    """Predicts held-out rows on the workers of a cluster.

    Args:
        connection: To the cluster.
        network: The network, with its weights on the servers.
        shards: The held-out rows, in the order of the files.
        timeout: As for `Dispatcher`.
        on_hang: Called with files of splits that seem to hang.
    """

    def __init__(
        self,
        connection: Connection,
        network: Any,
        shards: ShardSet,
        timeout: float | None = None,
        on_hang: Callable[[list[str]], None] = lambda files: None,
    ) -> None:
        self._on_hang = on_hang
        self._network = network
        self._shards = shards
        self._names: list[str] = []
        self._place = 0
        self._dispatcher = Dispatcher(
            lambda arguments: connection.coordinator.schedule(self._function, args=arguments),
            len(connection.cluster.roles("worker")) + 1,
            timeout=timeout,
        )
        self._function = tf.function(
            partial(self._predict),
            input_signature=[tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int32)],
            autograph=False,
        )
        self._function.get_concrete_function()  # now, while every process answers

    def write(self, folder: Path, max_rows: int | None) -> Path:
        """Writes the predictions of the first rows, in order, as arrays by task; gives the file back.

        Args:
            folder: Where to.
            max_rows: Stop after about so many rows.
        """
        chosen, rows = [], 0
        for index, split in enumerate(self._shards.splits):
            if max_rows is not None and rows >= max_rows:
                break
            chosen.append(index)
            rows += split.rows
        parts = self._run(chosen)
        joined = {
            name: np.concatenate([parts[index][position] for index in chosen])
            for position, name in enumerate(self._names)
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "predictions.npz"
        arrays: dict[str, Any] = {
            f"task_{position}": joined[name] for position, name in enumerate(self._names)
        }
        np.savez(path, **arrays)
        path.with_suffix(".json").write_text("\n".join(self._names), encoding="utf-8")
        return path

    def _run(self, chosen: list[int]) -> dict[int, list[Any]]:
        dispatcher = self._dispatcher
        waiting = list(reversed(chosen))
        done: dict[int, list[Any]] = {}
        while waiting or dispatcher.running:
            while waiting and dispatcher.may_submit(self._place):
                index = waiting.pop()
                split = self._shards.splits[index]
                arguments = (tf.constant(self._shards.path(split)), tf.constant(split.batches, tf.int32))
                dispatcher.submit(Task(self._place, index, arguments))
                self._place += 1
            for outcome in dispatcher.collect(0.2):
                if to_be_done_again(outcome.error):
                    waiting.append(outcome.task.split)
                elif outcome.values is None:
                    raise self._trouble(outcome) from outcome.error
                else:
                    done[outcome.task.split] = [
                        np.asarray(outcome.values[f"task_{position}"]) for position in range(len(self._names))
                    ]
            hanging = dispatcher.hanging()
            if hanging:
                self._on_hang([self._shards.splits[task.split].file for task in hanging])
        return done

    def _trouble(self, outcome: Outcome) -> EasyRecError:
        if not of_a_shard(outcome.error):
            return lost(outcome.error)
        path = self._shards.path(self._shards.splits[outcome.task.split])
        return DataError(
            f"{path}: the shard of held-out rows is damaged or missing ({reason_of(outcome.error)}). "
            "Delete the folder and go on with --resume, which prepares it again; no row is left out of a measurement"
        )

    def _predict(self, path: tf.Tensor, count: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Predictions of a split by the position of the task, [rows, ...]."""
        records = tf.data.TFRecordDataset(path, buffer_size=1 << 20)
        dataset = records.map(self._ready, num_parallel_calls=2).prefetch(2)
        batches = iter(dataset)
        predict = tf.function(partial(self._one), input_signature=dataset.element_spec, autograph=False)
        outputs = predict.get_concrete_function().structured_outputs
        self._names = sorted(outputs)
        arrays = tuple(
            tf.TensorArray(
                outputs[name].dtype, count, infer_shape=False, element_shape=[None, *outputs[name].shape[1:]]
            )
            for name in self._names
        )

        def body(index: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
            predicted = predict(*next(batches))
            written = [
                array.write(index, predicted[name]) for array, name in zip(arrays, self._names, strict=True)
            ]
            return (index + 1, *written)

        _, *filled = tf.while_loop(
            lambda index, *_: index < count, body, (tf.constant(0), *arrays), parallel_iterations=1
        )
        return {f"task_{position}": array.concat() for position, array in enumerate(filled)}

    def _ready(self, record: tf.Tensor) -> tuple[Tensors, Lookup]:
        batch, coded = self._shards.layout.parse(record)
        return batch, self._network.embeddings.lookup(batch, coded)

    def _one(self, batch: Tensors, lookup: Lookup) -> Mapping[str, tf.Tensor]:
        """Predictions of a batch; each row is asked of the servers once."""
        embeddings = self._network.embeddings
        activations = embeddings.expand(embeddings.gather(lookup), lookup)
        return dict(self._network.predictions(self._network.dense(activations, batch.get("numbers"))))
