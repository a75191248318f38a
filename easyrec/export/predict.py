"""Predictions for tables: missing columns joined from the bundle, chosen columns kept beside the predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from easyrec.errors import SchemaError, nearest
from easyrec.export.inputs import describe
from easyrec.export.manifest import TaskEntry
from easyrec.export.runtime import BATCH_ROWS, Runtime
from easyrec.export.tables import KeyedTable

Keep = Sequence[str] | Mapping[str, str]


class Predictor:
    """Predicts the rows of Arrow tables.

    Args:
        runtime: The model.
        items: The catalogue, or None.
        users: The users of the bundle, or None.

    Attributes:
        known: The tables that columns are joined from.
    """

    def __init__(self, runtime: Runtime, items: KeyedTable | None, users: KeyedTable | None) -> None:
        self.runtime = runtime
        self.known = [table for table in (items, users) if table is not None]

    def predict(self, table: pa.Table, keep: Keep = (), batch_rows: int = BATCH_ROWS) -> pa.Table:
        """Predictions for the rows of a table, see `Bundle.predict`."""
        columns = {new: table[old] for old, new in self.kept(keep, table.column_names).items()}
        predictions = self.runtime.predict(self.complete(table), batch_rows)
        for task in self.runtime.tasks:
            values = predictions[task.task]
            if task.classes is None:
                columns[task.task] = pa.array(values)
                continue
            arrays = [pa.array(values[:, index]) for index in range(task.classes)]
            if task.class_names is not None:
                arrays = [pa.array(task.class_names).take(pa.array(values.argmax(axis=1))), *arrays]
            columns |= dict(zip(columns_of(task), arrays, strict=True))
        return pa.table(columns)

    def kept(self, keep: Keep, known: Sequence[str]) -> dict[str, str]:
        """The columns to keep, by name, with their new names.

        Raises:
            SchemaError: One is not there, or its name is that of a prediction or of another one.
        """
        names = dict(keep) if isinstance(keep, Mapping) else {name: name for name in keep}
        predictions = {name for task in self.runtime.tasks for name in columns_of(task)}
        for old, new in names.items():
            if old not in known:
                raise SchemaError(f"keep: the data have no column {old!r}.{nearest(old, known)}")
            if new in predictions:
                raise SchemaError(
                    f"keep: {new!r} is also the name of a prediction; keep the column under another name, such as "
                    f"--keep {old}={old}_label on the command line, keep={{{old!r}: '{old}_label'}} in Python"
                )
        if len(set(names.values())) < len(names):
            raise SchemaError(f"keep: two columns would have one name: {names}")
        return names

    def complete(self, table: pa.Table) -> pa.Table:
        """The table with the columns that the model reads, joined from the bundle where the table lacks them.

        Raises:
            SchemaError: A column is neither in the table nor can it be joined.
        """
        wanted = list(dict.fromkeys(entry.column for entry in self.runtime.inputs))
        for known in self.known:
            if known.key in table.column_names:
                rows = None
                for name in wanted:
                    if name not in table.column_names and name in known.table.column_names:
                        rows = known.rows(known.positions(table[known.key])) if rows is None else rows
                        table = table.append_column(name, rows[name])
        absent = [entry for entry in self.runtime.inputs if entry.column not in table.column_names]
        if not absent:
            return table
        columns = ", ".join(f"{entry.column!r} ({describe(entry)})" for entry in absent)
        keys = [known.key for known in self.known if absent[0].column in known.table.column_names]
        hint = nearest(absent[0].column, table.column_names)
        if keys:
            close = hint if hint.startswith(" Did you mean") else ""
            hint = f"{close} With {keys[0]!r} they are taken from the bundle."
        raise SchemaError(f"the data lack columns that the model reads: {columns}.{hint}")


def columns_of(task: TaskEntry) -> list[str]:
    """Names of the columns in a table of predictions."""
    if task.classes is None:
        return [task.task]
    if task.class_names is not None:
        return [task.task, *(f"{task.task}_{name}" for name in task.class_names)]
    return [f"{task.task}_{index}" for index in range(task.classes)]
