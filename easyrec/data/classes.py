"""Classes of multi-class labels: found in the data where the configuration does not name them, and numbered."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from easyrec.config.checks import check
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import MulticlassTask
from easyrec.data.bound import BoundDataset
from easyrec.data.labels import label_values
from easyrec.errors import ConfigError, DataError

MOST_CLASSES = 1000
"""More different labels than this are hardly classes; who means it gives `classes`."""


def needs_classes(config: PipelineConfig) -> bool:
    """Whether the classes of a task must be found in the data."""
    return any(isinstance(task, MulticlassTask) and task.classes is None for task in config.tasks.values())


def with_classes(config: PipelineConfig, data: BoundDataset) -> PipelineConfig:
    """The configuration with the classes of its multi-class tasks written in.

    The classes are the different labels of all rows, held-out ones included, so that a rare class that only they have
    is one too. Whole numbers from 0 are only counted; other whole numbers and words are listed in order.

    Args:
        config: The resolved configuration.
        data: The data bound to it.

    Raises:
        DataError: The labels of a task are no classes: fractions, fewer than two, or more than 1,000.
        ConfigError: Two columns of predictions would have one name.
    """
    tasks = dict(config.tasks)
    for name, task in config.tasks.items():
        if isinstance(task, MulticlassTask) and task.classes is None:
            classes = _ordered(name, _different(name, data))
            tasks[name] = task.model_copy(update={"classes": classes})
    known = config.model_copy(update={"tasks": tasks}).with_locations(config.locations)
    if found := check(known):
        raise ConfigError(found)
    return known


def _different(name: str, data: BoundDataset) -> pa.Array:
    """The different labels of a task, without missing ones."""
    found: pa.Array | None = None
    rows = 0
    for part in (data.train, data.eval):
        label = None if part is None else next(label for label in part.labels if label.task == name)
        if part is None or label is None or label.expression is None:
            continue
        for _, table in part.interactions(sorted(label.sources)):
            values = pc.unique(label_values(label.expression, table, f"the label of task {name!r}"))
            found = values if found is None else pc.unique(pa.concat_arrays([found, values.cast(found.type)]))
            rows += table.num_rows
            if len(found) > MOST_CLASSES + 1:
                raise _too_many(name, f"more than {MOST_CLASSES:,} different values", found)
    if found is None:
        return pa.array([], pa.string())
    if 2 * len(found) > rows > 20:
        raise _too_many(name, f"{len(found)} different values in {rows} rows", found)
    return pc.drop_null(found)


def _too_many(name: str, many: str, found: pa.Array) -> DataError:
    return DataError(
        f"task {name!r}: the label has {many}, such as {', '.join(map(repr, found[:3].to_pylist()))}; these are hardly "
        "classes. Use `type: regression` for an amount and `type: retrieval` for items, or list `classes`"
    )


def _ordered(name: str, values: pa.Array) -> int | list[str] | list[int]:
    if len(values) < 2:
        held = f"all rows have the label {values[0].as_py()!r}" if len(values) else "no row has a label"
        raise DataError(f"task {name!r}: {held}, so there is nothing to learn")
    if pa.types.is_string(values.type):
        return sorted(values.to_pylist())
    numbers = np.unique(values.to_numpy(zero_copy_only=False).astype(np.float64))
    wrong = numbers[~(np.isfinite(numbers) & (numbers == np.floor(numbers)))]
    if len(wrong):
        raise DataError(
            f"task {name!r}: the label holds {wrong[0]:g}, but classes are words or whole numbers; use `type: "
            "regression` for an amount"
        )
    if numbers[0] == 0 and numbers[-1] == len(numbers) - 1:
        return len(numbers)
    return [int(number) for number in numbers]
