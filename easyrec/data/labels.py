"""Labels and sample weights: columns or expressions as float32, every value checked.

A row whose label is null is left out and counted, whatever the task. A label that is NaN, text, or outside what the
task allows ends the run with the first such rows, or is left out and counted under `on_error: skip`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from easyrec.config.expressions import Column, Expression, columns
from easyrec.config.tasks import BinaryTask, MulticlassTask, RegressionTask, RetrievalTask, TaskConfig
from easyrec.data.column_types import is_text
from easyrec.data.expressions import to_arrow
from easyrec.errors import DataError, SchemaError
from easyrec.features.statistics import Moments

Mask = NDArray[np.bool_]


@dataclass
class Values:
    """What an expression gave for the rows of a chunk.

    Attributes:
        numbers: [B] float32; what stands at rows that are not `ok` has no meaning.
        missing: [B] whether the value is null.
        wrong: [B] whether it is not allowed.
    """

    numbers: NDArray[np.float32]
    missing: Mask
    wrong: Mask


@dataclass
class Label:
    """The label of one task.

    Attributes:
        task: Name of the task.
        config: The task.
        expression: What it is read from, or None for 1 in every row.
        seen: How many rows of each class the latest pass met; of a retrieval, whether an item was taken.
        moments: For regression tasks, mean and deviation of the labels that the latest pass met.
        words: Some values of the columns of text that it reads, to show when a comparison is never true.
    """

    task: str
    config: TaskConfig
    expression: Expression | None
    seen: dict[int, int] = field(default_factory=dict)
    moments: Moments = field(default_factory=Moments)
    words: dict[str, list[str]] = field(default_factory=dict)

    @property
    def column(self) -> str:
        """Its name in a chunk."""
        return f"label/{self.task}"

    @property
    def sources(self) -> set[str]:
        """The columns it reads."""
        return set() if self.expression is None else columns(self.expression)

    def read(self, table: pa.Table) -> Values:
        """The labels of a chunk."""
        if self.expression is None:
            rows = table.num_rows
            return Values(np.ones(rows, np.float32), np.zeros(rows, bool), np.zeros(rows, bool))
        values = evaluate(self.expression, table, f"the label of task {self.task!r}")
        if not self.words:
            self.words = _words(self.expression, table)
        allowed = self._allowed(values.numbers)
        values.wrong |= ~values.missing & ~allowed
        return values

    def begin(self) -> None:
        """Forgets what earlier passes met."""
        self.seen, self.moments = {}, Moments()

    def count(self, numbers: NDArray[np.float32]) -> None:
        """Remembers which classes there were, and how large the labels of a regression task are."""
        if isinstance(self.config, RegressionTask):
            self.moments.update(numbers)
        elif isinstance(self.config, (BinaryTask, MulticlassTask, RetrievalTask)):
            # For a retrieval, an item was taken or it was not.
            classes = numbers > 0 if isinstance(self.config, RetrievalTask) else numbers
            for value, rows in zip(*np.unique(classes, return_counts=True), strict=True):
                self.seen[int(value)] = self.seen.get(int(value), 0) + int(rows)

    def holds(self) -> str:
        """A sentence with values of the columns of text that the label is read from; "" when there are none."""
        lines = [
            f"{name!r} holds {', '.join(map(repr, values))}" for name, values in self.words.items() if values
        ]
        return f" The column {' and the column '.join(lines)}." if lines else ""

    def rule(self) -> str:
        """What is allowed, and what to do, in words."""
        source = self.expression.text if self.expression is not None else ""
        if isinstance(self.config, BinaryTask):
            return f"a binary label is 0 or 1; for other values write a condition, such as `label: {source} >= 4`"
        if isinstance(self.config, MulticlassTask):
            return f"a label is a whole number from 0 to {self.config.classes - 1} (`classes: {self.config.classes}`)"
        return "a label is a finite number"

    def _allowed(self, numbers: NDArray[np.float32]) -> Mask:
        if isinstance(self.config, BinaryTask):
            return (numbers == 0) | (numbers == 1)
        if isinstance(self.config, MulticlassTask):
            return (numbers >= 0) & (numbers < self.config.classes) & (numbers == np.floor(numbers))
        return np.isfinite(numbers)


def _words(expression: Expression, table: pa.Table) -> dict[str, list[str]]:
    """Up to six values of each column of text that an expression reads."""
    words = {}
    for name in sorted(columns(expression)):
        if is_text(table.schema.field(name).type):
            values = pc.drop_null(pc.unique(table.column(name).combine_chunks()))
            words[name] = [str(value) for value in values.slice(0, 6).to_pylist()]
    return words


def weight_values(expression: Expression, table: pa.Table) -> Values:
    """Sample weights of a chunk: finite and at least 0; a missing one is wrong."""
    values = evaluate(expression, table, "the sample weight")
    values.numbers[values.missing] = np.nan
    values.wrong |= values.missing | ~np.isfinite(values.numbers) | (values.numbers < 0)
    return values


def evaluate(expression: Expression, table: pa.Table, what: str) -> Values:
    """A column or an expression as float32.

    Raises:
        SchemaError: It is text or a list.
    """
    if isinstance(expression.root, Column):
        array = table.column(expression.root.name).combine_chunks()
    else:
        array = to_arrow(expression, table)
    kind = array.type
    if pa.types.is_null(kind):
        array = pc.cast(array, pa.float64())
    elif is_text(kind):
        example = next((value for value in array.to_pylist() if value is not None), None)
        raise SchemaError(
            f"{what}, {expression.text!r}, is text ({example!r}); write a condition, such as "
            f"`{expression.text} == {str(example)!r}`, or give the column a type under `columns:`"
        )
    elif not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise SchemaError(f"{what}, {expression.text!r}, is a {kind}, not a number")
    missing = array.is_null().to_numpy(zero_copy_only=False)
    filled = pc.fill_null(pc.cast(array, pa.float64(), safe=False), 0.0)
    numbers = filled.to_numpy(zero_copy_only=False)
    wrong = np.isnan(numbers)
    return Values(numbers.astype(np.float32), missing, wrong)


def refuse(
    what: str,
    rule: str,
    values: Values,
    positions: NDArray[np.int64],
    place: Callable[[int], str],
    on_error: Literal["fail", "skip"],
) -> None:
    """Raises for the first wrong values, unless they are skipped.

    Raises:
        DataError: It names up to three rows and their values.
    """
    if on_error == "skip" or not values.wrong.any():
        return
    first = np.flatnonzero(values.wrong)[:3]
    shown = "; ".join(f"{_shown(values, index)} in {place(int(positions[index]))}" for index in first)
    raise DataError(
        f"{what} has wrong values: {shown}. {rule[0].upper()}{rule[1:]}. "
        "With `data.on_error: skip` such rows are left out and counted"
    )


def _shown(values: Values, index: int) -> str:
    if values.missing[index]:
        return "null"
    return f"{values.numbers[index]:g}".replace("nan", "NaN")
