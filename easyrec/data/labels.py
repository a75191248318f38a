"""Labels and sample weights: columns or expressions as float32, every value checked.

A row whose label is null is left out and counted, whatever the task. A label that is NaN, text, or outside what the
task allows ends the run with the first such rows, or is left out and counted under `on_error: skip`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from easyrec.config.expressions import Column, Expression, columns
from easyrec.config.tasks import (
    BinaryTask,
    MulticlassTask,
    RegressionTask,
    RetrievalTask,
    TaskConfig,
    class_names,
)
from easyrec.data.column_types import is_text, plain
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
        read: [B] the values as they are in the data, for messages; None where they are the numbers.
    """

    numbers: NDArray[np.float32]
    missing: Mask
    wrong: Mask
    read: pa.Array | None = None


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
        what = f"the label of task {self.task!r}"
        if self._named:
            return _class_numbers(label_values(self.expression, table, what), class_names(self.config) or [])
        values = evaluate(self.expression, table, what)
        if not self.words:
            self.words = _words(self.expression, table)
        allowed = self._allowed(values.numbers)
        values.wrong |= ~values.missing & ~allowed
        return values

    @property
    def _named(self) -> bool:
        """Whether the classes are words or numbers of their own, not numbers from 0."""
        return isinstance(self.config, MulticlassTask) and isinstance(self.config.classes, list)

    def shown(self, number: int) -> str:
        """What a class is called in the data."""
        names = class_names(self.config)
        return repr(names[number]) if self._named and names is not None else str(number)

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
        classes = class_names(self.config)
        if self._named and classes is not None:
            more = ", ..." if len(classes) > 10 else ""
            return f"a label is one of the classes {', '.join(map(repr, classes[:10]))}{more} (`classes`)"
        if classes is not None:
            return f"a label is a whole number from 0 to {len(classes) - 1} (`classes: {len(classes)}`)"
        return "a label is a finite number"

    def _allowed(self, numbers: NDArray[np.float32]) -> Mask:
        if isinstance(self.config, BinaryTask):
            return (numbers == 0) | (numbers == 1)
        classes = class_names(self.config)
        if classes is not None:
            return (numbers >= 0) & (numbers < len(classes)) & (numbers == np.floor(numbers))
        return np.isfinite(numbers)


def label_values(expression: Expression, table: pa.Table, what: str) -> pa.Array:
    """The labels of classes: words (blank ones are missing) or float64.

    Raises:
        SchemaError: They are neither.
    """
    array = _values(expression, table)
    if pa.types.is_null(array.type):
        return pc.cast(array, pa.float64())
    if is_text(array.type):
        words = plain(pa.chunked_array([array])).combine_chunks().cast(pa.string())
        blank = pc.equal(pc.utf8_trim_whitespace(words), "")
        return pc.if_else(blank, pa.scalar(None, pa.string()), words)
    if not _is_number(array.type):
        raise SchemaError(
            f"{what}, {expression.text!r}, is a {array.type}, not a class: a word or a whole number"
        )
    numbers = pc.cast(array, pa.float64(), safe=False)
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)


def _class_numbers(labels: pa.Array, classes: list[str] | list[int]) -> Values:
    """The places of labels in the list of classes; one that is not there is wrong."""
    known = [str(name) for name in classes]
    texts = labels if pa.types.is_string(labels.type) else _whole_as_text(labels)
    places = pc.index_in(texts, value_set=pa.array(known, pa.string()), skip_nulls=True)
    missing = labels.is_null().to_numpy(zero_copy_only=False)
    found = pc.fill_null(places, -1).to_numpy(zero_copy_only=False)
    return Values(np.maximum(found, 0).astype(np.float32), missing, (found < 0) & ~missing, labels)


def _whole_as_text(numbers: pa.Array) -> pa.Array:
    """Whole numbers as their decimal text; others are missing."""
    values = pc.fill_null(numbers, np.nan).to_numpy(zero_copy_only=False)
    whole = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**53)
    return pc.cast(pa.array(np.where(whole, values, 0).astype(np.int64), mask=~whole), pa.string())


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
    array = _values(expression, table)
    kind = array.type
    if pa.types.is_null(kind):
        array = pc.cast(array, pa.float64())
    elif is_text(kind):
        example = next((value for value in array.to_pylist() if value is not None), None)
        raise SchemaError(
            f"{what}, {expression.text!r}, is text ({example!r}); write a condition, such as "
            f"`{expression.text} == {str(example)!r}`, or give the column a type under `columns:`"
        )
    elif not _is_number(kind):
        raise SchemaError(f"{what}, {expression.text!r}, is a {kind}, not a number")
    missing = array.is_null().to_numpy(zero_copy_only=False)
    filled = pc.fill_null(pc.cast(array, pa.float64(), safe=False), 0.0)
    numbers = filled.to_numpy(zero_copy_only=False)
    wrong = np.isnan(numbers)
    with np.errstate(over="ignore"):  # what a float32 cannot hold is infinite, and refused as such
        return Values(numbers.astype(np.float32), missing, wrong, filled)


def _values(expression: Expression, table: pa.Table) -> pa.Array:
    if isinstance(expression.root, Column):
        return table.column(expression.root.name).combine_chunks()
    return to_arrow(expression, table)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))


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
    value = values.numbers[index] if values.read is None else values.read[index].as_py()
    return repr(value) if isinstance(value, str) else f"{value:g}".replace("nan", "NaN")


def refuse_one_class(labels: Sequence[Label], sampled: bool) -> None:
    """Raises where the latest pass over the training rows had nothing to learn for a task.

    Args:
        labels: With what the pass has seen of each.
        sampled: Whether negatives are sampled, which have label 0.

    Raises:
        DataError: All rows of a binary or multi-class task have the same label, or no row of a retrieval was taken.
    """
    for label in labels:
        if len(label.seen) != 1:
            continue
        [(value, rows)] = label.seen.items()
        way_out = ""
        if isinstance(label.config, BinaryTask):
            way_out = (
                "; where only chosen items were recorded, add `data.negatives`, or use a `retrieval` task"
            )
        # A retrieval learns from what was taken.
        if value == 1 and (sampled or isinstance(label.config, RetrievalTask)):
            continue
        source = label.task if label.expression is None else label.expression.text
        raise DataError(
            f"task {label.task!r}: all {rows} training rows have label {label.shown(value)} ({source}), so "
            f"there is nothing to learn.{label.holds()} Check the column or the condition under `label:`{way_out}"
        )
