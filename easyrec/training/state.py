"""The state of training as named arrays: what a checkpoint holds.

embedding/<table>, linear/<table>    rows of a table, and with `/<slot>` behind it an optimizer's slot
dense/<name>                         dense weights, moving averages and dropout seeds
optimizer/<index>                    steps, rate and slots of the dense optimizer
steps/embedding                      steps of the embedding optimizer
"""

from __future__ import annotations

from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from easyrec.embedding.layout import Table
from easyrec.embedding.table import SLICE_ROWS, ShardedTable
from easyrec.training.array_files import Array, Variable
from easyrec.training.step import TrainableNetwork, TrainStep


def network_state(network: TrainableNetwork) -> Iterator[Variable]:
    """The weights of a network: what prediction and warm starts need."""
    for kind, table, key in network.embeddings.places():
        yield _rows(f"{kind}/{table.name}", network.embeddings.tables[key], table)
    for name, variable in network.named_variables().items():
        yield _keras(f"dense/{name}", variable)


def training_state(step: TrainStep) -> Iterator[Variable]:
    """The weights and both optimizers: what goes on as if it had never stopped."""
    yield from network_state(step.network)
    for kind, table, key in step.network.embeddings.places():
        for slot, values in step.row_optimizer.slots[key].items():
            yield _rows(f"{kind}/{table.name}/{slot}", values, table)
    yield _counter("steps/embedding", step.row_optimizer.iterations)
    # Keras numbers its names per process; the order depends on the architecture only.
    for index, variable in enumerate(step.dense_optimizer.variables):
        yield _keras(f"optimizer/{index}", variable)


def _rows(name: str, values: ShardedTable, table: Table) -> Variable:
    start, stop = table.offset, table.offset + table.rows

    def write(array: Array) -> None:
        for first in range(0, table.rows, SLICE_ROWS):
            values.write(start + first, np.asarray(array[first : first + SLICE_ROWS], np.float32))

    return Variable(
        name, (table.rows, values.dim), np.dtype(np.float32), lambda: values.slices(start, stop), write
    )


def _keras(name: str, variable: keras.Variable) -> Variable:
    return Variable(
        name,
        tuple(variable.shape),
        np.dtype(keras.backend.standardize_dtype(variable.dtype)),
        lambda: iter([variable.value.numpy()]),
        lambda array: variable.assign(np.asarray(array)),
    )


def _counter(name: str, variable: tf.Variable) -> Variable:
    return Variable(
        name,
        tuple(variable.shape),
        np.dtype(variable.dtype.as_numpy_dtype),
        lambda: iter([variable.numpy()]),
        lambda array: variable.assign(np.asarray(array)),
    )
