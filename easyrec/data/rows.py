"""The rows of one part of the data, training or evaluation, as chunks that features can be computed from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from easyrec.config.expressions import Expression
from easyrec.config.expressions import columns as columns_of
from easyrec.data.column_types import cast
from easyrec.data.expressions import to_arrow
from easyrec.data.history import BuiltHistory
from easyrec.data.join import Side
from easyrec.data.labels import Label, Mask, refuse, weight_values
from easyrec.data.order import SEGMENT_ROWS, SMALLEST_SEGMENT, pieces
from easyrec.data.plan import Negatives, Plan, Positions
from easyrec.data.report import PassReport
from easyrec.data.row_groups import Source
from easyrec.data.splits import Split
from easyrec.errors import DataError, SchemaError, nearest

_SEGMENTS_OF_A_PART = 4


@dataclass
class _Chunk:
    """Rows on their way: read columns, positions in the source, and rows of the joined tables."""

    table: pa.Table
    positions: Positions
    found: dict[Side, Positions] = field(default_factory=dict)

    def filter(self, mask: Mask) -> _Chunk:
        if mask.all():
            return self
        return _Chunk(
            self.table.filter(pa.array(mask)),
            self.positions[mask],
            {side: rows[mask] for side, rows in self.found.items()},
        )

    def take(self, rows: Positions) -> _Chunk:
        return _Chunk(
            self.table.take(pa.array(rows)),
            self.positions[rows],
            {side: found[rows] for side, found in self.found.items()},
        )


class Rows:
    """Training or evaluation rows.

    Attributes:
        name: `train` or `eval`.
        source: Where they lie; a split may leave only some of its rows here.
        report: The latest complete epoch of training, or else the latest complete pass.
        num_rows: Rows of the source, an upper bound of the rows here.
    """

    def __init__(
        self, name: str, source: Source, plan: Plan, split: Split | None, part: Literal["train", "eval"]
    ) -> None:
        self.name = name
        self.source = source
        self.num_rows = source.num_rows
        self.report = PassReport()
        self.histories: dict[str, BuiltHistory] = {}
        self.negatives: Negatives | None = None
        self.shuffle = True
        self.after_pass: Callable[[], None] | None = None
        self.labels = [Label(label.task, label.config, label.expression) for label in plan.labels]
        self._plan = plan
        self.split = split
        self._held_out = part == "eval"
        self._whole = True

    def parts(self, rows: int) -> list[Rows]:
        """These rows in parts that can be read at the same time, at least about `rows` rows each.

        With shuffling each part has segments from all over the source, so that it resembles the whole; without, parts
        follow each other. A source of few row groups is one part, because reading the end of a row group means
        passing over its beginning.
        """
        largest = max((group.rows for group in self.source.groups), default=1)
        segments = self.source.segments(max(SMALLEST_SEGMENT, min(SEGMENT_ROWS, largest)))
        count = max(1, min(-(-self.source.num_rows // max(rows, 1)), len(segments) // _SEGMENTS_OF_A_PART))
        bounds = [len(segments) * number // count for number in range(count + 1)]
        chosen = [
            segments[number::count] if self.shuffle else segments[bounds[number] : bounds[number + 1]]
            for number in range(count)
        ]
        return [self._part(self.source.part(mine)) for mine in chosen]

    def _part(self, source: Source) -> Rows:
        part = copy.copy(self)
        part.source, part.num_rows = source, source.num_rows
        part.report, part.after_pass, part._whole = PassReport(), None, False
        part.labels = [Label(label.task, label.config, label.expression) for label in self.labels]
        return part

    def chunks(self, seed: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows in tables of about 65,536, ready for features.

        Args:
            seed: None for the rows as they are, in the order of the files, to fit features and to evaluate. A number
                for one epoch of training: row groups in random order, several side by side (unless `data.shuffle` is
                off), and sampled negatives where they are configured. The same seed gives the same chunks.
            columns: Only these; all that features need, the keys, and labels and weight, unless given.

        Yields:
            Tables with the raw columns, `label/<task>` (float32) for each task, and `weight` (float32) where one is
            configured.

        Raises:
            DataError: A file is damaged; a label or weight is wrong; no row is left.
        """
        wanted = self.columns() if columns is None else list(columns)
        yield from self._pass(seed, wanted, {}, labels=True)

    def columns(self) -> list[str]:
        """All columns of a chunk."""
        plan = self._plan
        names = [*plan.outputs, *(history.name for history in plan.histories)]
        names += [label.column for label in plan.labels]
        return [*names, "weight"] if plan.weight is not None else names

    def check_columns(self) -> None:
        """Whether the data have all columns that chunks, labels and conditions are made of.

        Raises:
            SchemaError: One is missing; the nearest is named.
        """
        plan = self._plan
        conditions = self._condition_columns(plan.where)
        self._stored({*plan.outputs, *self._answer_columns(), *conditions})

    def select(self, columns: Sequence[str], extras: Mapping[str, Expression]) -> Iterator[pa.Table]:
        """Columns and values of expressions for all rows with a label, in the order of the files, beside positions."""
        yield from self._pass(None, list(columns), extras, labels=True)

    def interactions(
        self, columns: Sequence[str], extras: Mapping[str, Expression] | None = None
    ) -> Iterator[tuple[Positions, pa.Table]]:
        """Columns and values of expressions for all rows, with or without a label, in the order of the files."""
        report = PassReport()
        extras = extras or {}
        for chunk in self._kept(None, {*columns, *_sources(extras)}, report):
            needed = {*columns, *_sources(extras)}
            values = self._with_joined(chunk, needed)
            arrays: dict[str, pa.Array | pa.ChunkedArray] = {name: values.column(name) for name in columns}
            arrays.update({name: to_arrow(expression, values) for name, expression in extras.items()})
            yield chunk.positions, pa.table(arrays)

    # ------------------------------------------------------------------------------------------------- one pass

    def _pass(
        self, seed: int | None, wanted: list[str], extras: Mapping[str, Expression], labels: bool
    ) -> Iterator[pa.Table]:
        plan = self._plan
        report = PassReport()
        for label in self.labels:
            label.begin()
        built = {history.name for history in plan.histories}
        special = {label.column for label in plan.labels} | {"weight"} | built
        raw = [name for name in wanted if name not in special or name in plan.columns]
        negatives = self.negatives if seed is not None else None
        needed = {*raw, *_sources(extras), *self._answer_columns()}
        if negatives is not None and negatives.where is not None:
            needed |= columns_of(negatives.where)
        for chunk in self._kept(seed, needed, report):
            chunk, answers = self._answers(chunk, report)
            if chunk.table.num_rows == 0:
                continue
            report.rows_used += chunk.table.num_rows
            values = {name: self._condition(expression, chunk) for name, expression in extras.items()}
            if negatives is not None and seed is not None:
                before = chunk.table.num_rows
                chunk, answers = self._add_negatives(chunk, answers, negatives, seed)
                report.negatives += chunk.table.num_rows - before
            yield self._assemble(chunk, wanted, answers, values)
        self._finish(report, epoch=seed is not None)

    def _finish(self, report: PassReport, epoch: bool) -> None:
        report.complete = True
        # What training saw is not overwritten by a later look at the same rows.
        if epoch or not self.report.epoch:
            self.report = report
            report.epoch = epoch
        if report.rows_used == 0 and self._whole:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in report.dropped.items())
            what = "no training rows are left" if self.name == "train" else "no evaluation rows are left"
            why = f" of {report.rows_read} ({reasons})" if reasons else ""
            hint = "" if self.split is None else "; `data.split` puts them all on the other side"
            raise DataError(f"{what}{why}{hint if not reasons else ''}")
        if self._plan.weight is not None and report.weight == 0 and self._whole:
            what = "training" if self.name == "train" else "evaluation"
            raise DataError(
                f"the sample weight, {self._plan.weight.text!r}, is 0 in all {report.rows_used} {what} rows"
            )
        if self.after_pass is not None:
            self.after_pass()

    def _kept(self, seed: int | None, needed: set[str], report: PassReport) -> Iterator[_Chunk]:
        """Rows of this part, with their keys, for which `data.where` holds."""
        plan = self._plan
        stored = self._stored({*needed, *self._condition_columns(plan.where)})
        order = seed if self.shuffle else None
        for positions, table in pieces(self.source, stored, order):
            chunk = _Chunk(table, positions)
            if self.split is not None:
                held_out = self.split.held_out(positions, table)
                chunk = chunk.filter(held_out if self._held_out else ~held_out)
            report.rows_read += chunk.table.num_rows
            for key in plan.required_keys():
                present = _mask(pc.is_valid(chunk.table.column(key)))
                report.drop(f"no value in key column {key!r}", int((~present).sum()))
                chunk = chunk.filter(present)
            for side, joined in plan.tables.items():
                chunk.found[side] = joined.find(chunk.table.column(joined.key))
            if plan.where is not None:
                holds = self._condition(plan.where, chunk)
                report.drop("`data.where` does not hold", int((~holds).sum()))
                chunk = chunk.filter(holds)
            for side, rows in chunk.found.items():
                report.unmatched[side] += int((rows < 0).sum())
            if chunk.table.num_rows:
                yield chunk

    def _answers(self, chunk: _Chunk, report: PassReport) -> tuple[_Chunk, dict[str, NDArray[np.float32]]]:
        """Labels and weights; rows without are left out."""
        plan = self._plan
        table = self._with_joined(chunk, self._answer_columns())
        keep = np.ones(chunk.table.num_rows, bool)
        numbers: dict[str, NDArray[np.float32]] = {}
        for label in self.labels:
            values = label.read(table)
            refuse(
                f"the label of task {label.task!r}",
                label.rule(),
                values,
                chunk.positions,
                self.source.place,
                plan.on_error,
            )
            report.drop(f"no label of task {label.task!r}", int((values.missing & keep).sum()))
            keep &= ~values.missing
            report.drop(f"wrong label of task {label.task!r}", int((values.wrong & keep).sum()))
            keep &= ~values.wrong
            numbers[label.column] = values.numbers
        if plan.weight is not None:
            values = weight_values(plan.weight, table)
            refuse(
                "the sample weight",
                "a weight is a finite number, at least 0",
                values,
                chunk.positions,
                self.source.place,
                plan.on_error,
            )
            report.drop("wrong sample weight", int((values.wrong & keep).sum()))
            keep &= ~values.wrong
            numbers["weight"] = values.numbers
        kept = {name: values[keep] for name, values in numbers.items()}
        report.weight += float(kept["weight"].sum(dtype=np.float64)) if plan.weight is not None else 0.0
        for label in self.labels:
            label.count(kept[label.column])
        return chunk.filter(keep), kept

    def _add_negatives(
        self, chunk: _Chunk, answers: dict[str, NDArray[np.float32]], negatives: Negatives, seed: int
    ) -> tuple[_Chunk, dict[str, NDArray[np.float32]]]:
        item = self._plan.keys.item or ""
        rows = np.arange(chunk.table.num_rows)
        if negatives.where is not None:
            rows = np.flatnonzero(self._condition(negatives.where, chunk))
        origin = chunk.take(rows)
        own = negatives.find(origin.table.column(item))
        seen = negatives.sampler.seen
        users = None if seen is None else seen.find(origin.table.column(self._plan.keys.user or ""))
        drawn = negatives.sampler.draw(origin.positions, own, users, seed)
        copies = np.repeat(rows, negatives.sampler.per_row)
        sampled = _with_items(chunk.take(copies), drawn, negatives.catalogue)
        if "item" in sampled.found:
            sampled.found["item"] = self._plan.tables["item"].find(sampled.table.column(item))
        order = np.argsort(np.concatenate([np.arange(chunk.table.num_rows), copies]), kind="stable")
        joined = _Chunk(
            pa.concat_tables([chunk.table, sampled.table]),
            np.concatenate([chunk.positions, sampled.positions]),
            {side: np.concatenate([found, sampled.found[side]]) for side, found in chunk.found.items()},
        )
        mixed = {}
        for name, values in answers.items():
            added = values[copies] if name == "weight" else np.zeros(len(copies), np.float32)
            mixed[name] = np.concatenate([values, added])[order]
        return joined.take(order), mixed

    def _assemble(
        self,
        chunk: _Chunk,
        wanted: Sequence[str],
        answers: Mapping[str, NDArray[np.float32]],
        extras: Mapping[str, Mask],
    ) -> pa.Table:
        raw = {name for name in wanted if name not in answers and name not in self.histories}
        table = self._with_joined(chunk, raw)
        arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
        for name in wanted:
            if name in answers:
                arrays[name] = pa.array(answers[name])
            elif name in self.histories:
                arrays[name] = self.histories[name].gather(chunk.positions)
            else:
                arrays[name] = table.column(name)
        arrays.update({name: pa.array(mask) for name, mask in extras.items()})
        return pa.table(arrays)

    # --------------------------------------------------------------------------------------------------- columns

    def _condition(self, expression: Expression, chunk: _Chunk) -> Mask:
        """Whether a condition holds for each row; a missing answer is no."""
        value = to_arrow(expression, self._with_joined(chunk, self._condition_columns(expression)))
        return _mask(pc.fill_null(value, False))

    def _condition_columns(self, expression: Expression | None) -> set[str]:
        return set() if expression is None else columns_of(expression)

    def _answer_columns(self) -> set[str]:
        names = {name for label in self._plan.labels for name in label.sources}
        return names | self._condition_columns(self._plan.weight)

    def _with_joined(self, chunk: _Chunk, names: set[str]) -> pa.Table:
        """The columns `names`, those of joined tables included."""
        arrays = {name: chunk.table.column(name) for name in names if name in chunk.table.column_names}
        for side, joined in self._plan.tables.items():
            rest = [name for name in joined.columns() if name in names and name not in arrays]
            if rest:
                arrays.update(joined.take(chunk.found[side], rest))
        if not arrays:
            return chunk.table
        missing = names - arrays.keys()
        if missing:
            raise self._no_column(min(missing))
        return pa.table(arrays)

    def _stored(self, names: set[str]) -> list[str]:
        """The columns to read from the interactions."""
        plan = self._plan
        needed = {*plan.required_keys(), *(joined.key for joined in plan.tables.values())}
        if self.split is not None and plan.keys.time is not None:
            needed.add(plan.keys.time)
        for name in names:
            info = plan.columns.get(name)
            if info is None or info.table == "interactions":
                needed.add(name)
        for name in sorted(needed):
            if name not in self.source.schema.names:
                raise self._no_column(name)
        return [name for name in self.source.schema.names if name in needed]

    def _no_column(self, name: str) -> SchemaError:
        return SchemaError(
            f"the {self.name} data ({self.source.name}) have no column {name!r}."
            f"{nearest(name, self.source.schema.names)}"
        )


def _with_items(chunk: _Chunk, items: Positions, catalogue: pa.Table) -> _Chunk:
    """The rows with other items: every column that the catalogue also has is read from it."""
    table = chunk.table
    for name in catalogue.column_names:
        index = table.schema.get_field_index(name)
        if index >= 0:
            values = cast(catalogue.column(name).take(pa.array(items)), table.schema.field(name).type)
            table = table.set_column(index, table.schema.field(index), values)
    return _Chunk(table, chunk.positions, dict(chunk.found))


def _sources(expressions: Mapping[str, Expression]) -> set[str]:
    return {name for expression in expressions.values() for name in columns_of(expression)}


def _mask(array: pa.Array | pa.ChunkedArray) -> Mask:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return np.asarray(array.to_numpy(zero_copy_only=False), bool)
