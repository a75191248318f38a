"""Data bound to a resolved configuration: labels, weights, split, histories and negatives are known."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from easyrec.config.columns import ColumnInfo
from easyrec.config.data import NegativesConfig, SplitConfig
from easyrec.config.expressions import Column, Expression, parse, parse_reference
from easyrec.config.features import SequenceFeature
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import BinaryTask, RetrievalTask
from easyrec.data import snapshot
from easyrec.data.column_types import plain
from easyrec.data.events import write_log
from easyrec.data.history import BuiltHistory, HistoryColumn, build
from easyrec.data.join import KeyedTable, Side
from easyrec.data.keys import KeyIndex
from easyrec.data.labels import Label, refuse_one_class
from easyrec.data.negatives import MAX_SEEN_PAIRS, NegativeSampler, SeenItems
from easyrec.data.plan import Negatives, Plan
from easyrec.data.report import DataReport
from easyrec.data.row_groups import Source
from easyrec.data.rows import Rows
from easyrec.data.splits import (
    MarkedSplit,
    RandomSplit,
    Split,
    TimeSplit,
    UserSplit,
    cutting_time,
    mark_latest,
)
from easyrec.data.store import Store, fingerprint
from easyrec.errors import ConfigError, DataError


class BoundDataset:
    """The rows of a pipeline, ready to be encoded.

    Attributes:
        config: The resolved pipeline.
        columns: All columns that features, labels and expressions may use.
        train: Training rows.
        eval: Evaluation rows, or None when none are configured.
        histories: Columns built from the interactions.
    """

    def __init__(
        self,
        config: PipelineConfig,
        train: Source,
        evaluation: Source | None,
        tables: Mapping[Side, KeyedTable],
        columns: Mapping[str, ColumnInfo],
        store: Store,
        report: DataReport,
    ) -> None:
        self.config = config
        self.columns = columns
        self._tables = tables
        self._store = store
        self._report = report
        self._plan = plan = _plan(config, columns, tables)
        self.histories = plan.histories
        split = None if config.data.split is None else self._split(config.data.split, train)
        self.train = Rows("train", train, plan, split, "train")
        self.train.shuffle = config.data.shuffle
        self.train.after_pass = self.check_labels
        self.eval: Rows | None = None
        if evaluation is not None:
            self.eval = Rows("eval", evaluation, plan, None, "train")
        elif split is not None:
            self.eval = Rows("eval", train, plan, split, "eval")
        for part in (self.train, self.eval):
            if part is not None:
                part.check_columns()
        self._build_histories()
        if config.data.negatives is not None:
            self.train.negatives = self._negatives(config.data.negatives)

    @property
    def feature_columns(self) -> dict[str, ColumnInfo]:
        """The columns of chunks that features may read: those of the data, and the histories."""
        built = {
            history.name: ColumnInfo(
                history.name, "list<int>" if self.columns[history.of].kind == "int" else "list<string>"
            )
            for history in self.histories
        }
        return {**self.columns, **built}

    @property
    def report(self) -> DataReport:
        """What was read and what was left out, with the latest complete pass over each part."""
        parts = [part for part in (self.train, self.eval) if part is not None]
        self._report.parts = {part.name: part.report for part in parts if part.report.complete}
        return self._report

    @property
    def users(self) -> pa.Table | None:
        """The user table, or None when none is configured."""
        joined = self._tables.get("user")
        return None if joined is None else joined.table

    @cached_property
    def items(self) -> pa.Table | None:
        """The catalogue: the item table, or else the items of the training data with what was last seen of them.

        None when no item key is configured.
        """
        joined = self._tables.get("item")
        if joined is not None:
            return joined.table
        key = self.config.data.keys.item
        if key is None:
            return None
        return snapshot.latest_of_each(self.train, self._log(), key, "item", self.side_columns("item"))

    def side_columns(self, side: str) -> list[str]:
        """The key of a side and the raw columns of its features, histories not counted."""
        built = {history.name for history in self.histories}
        key = getattr(self.config.data.keys, side, None)
        names = [] if key is None else [key]
        for name, feature in self.config.features.items():
            if feature.side == side:
                names += [column for column in feature.columns(name) if column not in built]
        return list(dict.fromkeys(names))

    def user_snapshot(self, users: pa.Array | None = None) -> pa.Table:
        """One row a user as of the end of the training data.

        Args:
            users: Only these users, in this order, those without training rows included; all of the training data,
                in the order of their keys, unless given.

        Returns:
            The user key; raw columns of user and context features from the user's latest training row (without one,
            user columns from the user table); histories that end with the latest training interaction; `seen`, the
            items of all training interactions, each once (only when there is an item key).

        Raises:
            DataError: No user key is configured.
        """
        key = self.config.data.keys.user
        if key is None:
            raise DataError("a snapshot of the users needs the user key: give `data.keys.user`")
        columns = list(dict.fromkeys([*self.side_columns("user"), *self.side_columns("context")]))
        latest = snapshot.latest_of_each(self.train, self._log(), key, "user", columns)
        wanted = latest.column(key).combine_chunks() if users is None else users
        table = snapshot.rows_of(latest, key, wanted, self._tables.get("user"))
        for index, history in enumerate(self.histories):
            built = BuiltHistory(self._history_folder(index, self.train))
            table = table.append_column(history.name, snapshot.final_histories(built, wanted, history.last))
        if self.config.data.keys.item is not None:
            table = table.append_column("seen", snapshot.seen_items(self._log(), wanted))
        return table

    def relevant(self, rows: Rows | None = None) -> pa.Table:
        """The evaluation rows that count as hits in ranked lists, by `evaluation.relevant` or the first task's label.

        Args:
            rows: The evaluation rows unless given.

        Returns:
            User key, item key and `gain` (float64: the label, or 1 under a condition); each pair once, with its
            largest gain.

        Raises:
            DataError: There are no evaluation rows, or no user or item key is configured.
        """
        part = rows or self.eval
        if part is None:
            raise DataError("there are no evaluation rows: give `data.eval` or `data.split`")
        keys = self.config.data.keys
        if keys.user is None or keys.item is None:
            raise DataError(
                "relevant items are known by user and item: give `data.keys.user` and `data.keys.item`"
            )
        condition = self.config.evaluation.relevant
        return snapshot.relevant_items(
            part, keys.user, keys.item, None if condition is None else parse(condition), part.labels[0].column
        )

    def facts(self, part: Rows, strict: bool = False) -> dict[str, Any]:
        """All that decides which rows a part has, and which labels: for fingerprints.

        Args:
            part: The rows.
            strict: What it would be where nothing may be left out because it is faulty.
        """
        data = self.config.data
        return {
            "data": fingerprint(self._log_parts(part, strict)),
            "labels": [(label.task, str(label.expression)) for label in part.labels],
            "weight": data.weight,
            "negatives": None if part.negatives is None else data.negatives,
            "on_error": "fail" if strict else data.on_error,
            "shuffle": part.shuffle,
        }

    def check_labels(self) -> None:
        """Whether the latest pass over the training rows had something to learn for every task.

        Called at the end of every complete pass over the training rows.

        Raises:
            DataError: All rows of a binary or multi-class task have the same label, or no row of a retrieval was taken.
        """
        refuse_one_class(self.train.labels, sampled=self.config.data.negatives is not None)

    # --------------------------------------------------------------------------------------------------- made once

    def _split(self, config: SplitConfig, source: Source) -> Split:
        keys = self.config.data.keys
        needs = {"user": ["user"], "time": ["time"], "user_latest": ["user", "time"]}.get(config.type, [])
        missing = [f"data.keys.{key}" for key in needs if getattr(keys, key) is None]
        if missing:
            raise ConfigError(f"data.split of type {config.type!r} needs {' and '.join(missing)}")
        if config.type == "random":
            return RandomSplit(config.fraction, config.seed)
        if config.type == "user":
            return UserSplit(config.fraction, config.seed, keys.user or "")
        everything = Rows("train", source, self._plan, None, "train")
        parts = [*self._log_parts(everything), "split", config.type, config.fraction]
        if config.type == "user_latest":

            def mark(folder: Path) -> None:
                write_log(folder / "log.parquet", everything, keys, ())
                mark_latest(folder, folder / "log.parquet", config.fraction, source.num_rows)
                (folder / "log.parquet").unlink()

            return MarkedSplit(self._store.build("split", parts, mark) / "marks.npy")

        def cut(folder: Path) -> None:
            write_log(folder / "log.parquet", everything, keys, ())
            moment = cutting_time(folder, folder / "log.parquet", config.fraction)
            (folder / "log.parquet").unlink()
            if moment is None:
                raise DataError(f"data.split by time: no row has a value in column {keys.time!r}")
            np.save(folder / "cut.npy", np.asarray([moment.as_py()]))

        moment = np.load(self._store.build("split", parts, cut) / "cut.npy")[0]
        return TimeSplit(keys.time or "", pa.scalar(moment.item()))

    def _log_parts(self, rows: Rows, strict: bool = False) -> list[Any]:
        """What an event log depends on."""
        data = self.config.data
        split = None if rows.split is None or data.split is None else data.split.model_dump()

        def mark(read: Source | KeyedTable) -> str:
            return read.strict_fingerprint if strict else read.fingerprint

        return [
            rows.name,
            mark(rows.source),
            [str(column) for column in rows.source.schema],
            data.keys.model_dump(),
            data.where,
            split,
            {side: mark(joined) for side, joined in self._tables.items()},
            [(history.of, history.where) for history in self.histories],
        ]

    def _log(self, rows: Rows | None = None) -> Path:
        """The event log of a part, training unless given."""
        part = rows or self.train

        def write(folder: Path) -> None:
            write_log(folder / "log.parquet", part, self.config.data.keys, self.histories)

        return self._store.build("events", self._log_parts(part), write) / "log.parquet"

    def _history_folder(self, index: int, rows: Rows) -> Path:
        history = self.histories[index]
        parts = [self.train] if rows is self.train else [self.train, rows]
        described = [self._log_parts(part) for part in parts]

        def write(folder: Path) -> None:
            names = {"value": f"value_{index}", "keep": f"keep_{index}"}
            logs = [self._log(part) for part in parts]
            build(folder, logs, len(parts) - 1, rows.num_rows, history.last, names)

        return self._store.build("history", [described, history.of, history.where, history.last], write)

    def _build_histories(self) -> None:
        keys = self.config.data.keys
        if self.histories and (keys.user is None or keys.time is None):
            raise ConfigError(
                f"features.{self.histories[0].name}: a history built from the interactions needs `data.keys.user` and "
                "`data.keys.time`"
            )
        for part in (self.train, self.eval):
            if part is not None:
                for index, history in enumerate(self.histories):
                    part.histories[history.name] = BuiltHistory(self._history_folder(index, part))

    def _negatives(self, config: NegativesConfig) -> Negatives:
        keys = self.config.data.keys
        if keys.item is None:
            raise ConfigError("data.negatives: sampled items replace the item key; give `data.keys.item`")
        wrong = [
            name
            for name, task in self.config.tasks.items()
            if not isinstance(task, (BinaryTask, RetrievalTask))
        ]
        if wrong:
            raise ConfigError(
                f"data.negatives gives sampled rows the label 0, which task {wrong[0]!r} of type "
                f"{self.config.tasks[wrong[0]].type!r} does not know; leave out one of them"
            )
        catalogue = self._catalogue(keys.item)
        joined = self._tables.get("item")
        find = joined.find if joined is not None else KeyIndex(catalogue.column(keys.item)).find
        where = None if config.where is None else parse(config.where)
        counts = np.zeros(catalogue.num_rows, np.int64)
        users: list[pa.Array] = []
        chosen: list[Any] = []
        columns = [keys.item] if keys.user is None else [keys.item, keys.user]
        label = self.train.labels[0].column
        rows = 0
        for table in self.train.select([*columns, label], {} if where is None else {"chosen": where}):
            items = find(table.column(keys.item))
            counts += np.bincount(items[items >= 0], minlength=len(counts))
            rows += table.num_rows if where is None else pc.sum(table.column("chosen")).as_py() or 0
            mask = pc.greater(table.column(label), 0) if where is None else table.column("chosen")
            mask = mask.to_numpy()
            if keys.user is not None and sum(map(len, chosen)) <= MAX_SEEN_PAIRS:
                users.append(plain(table.column(keys.user)).filter(pa.array(mask)).combine_chunks())
                chosen.append(items[mask])
        seen = None
        if users and sum(map(len, chosen)) <= MAX_SEEN_PAIRS:
            seen = SeenItems(pa.chunked_array(users).combine_chunks(), np.concatenate(chosen), len(counts))
        return Negatives(NegativeSampler(config, counts, seen), catalogue, find, where, rows * config.per_row)

    def _catalogue(self, key: str) -> pa.Table:
        """One row an item: the columns of the interactions that describe the item, and its key."""
        joined = self._tables.get("item")
        if joined is None:
            items = self.items
            if items is None:
                raise DataError("there is no item key")
            return items
        described = [name for name in self.side_columns("item") if self.columns[name].table == "interactions"]
        if described == [key]:
            return joined.table.select([key])
        latest = snapshot.latest_of_each(self.train, self._log(), key, "item", described)
        return snapshot.rows_of(latest, key, joined.table.column(key).combine_chunks(), None)


def _plan(
    config: PipelineConfig, columns: Mapping[str, ColumnInfo], tables: Mapping[Side, KeyedTable]
) -> Plan:
    data = config.data
    histories = [
        HistoryColumn.of_feature(feature.column or name, feature.history)
        for name, feature in config.features.items()
        if isinstance(feature, SequenceFeature) and feature.history is not None
    ]
    built = {history.name for history in histories}
    outputs = [name for name in (data.keys.user, data.keys.item, data.keys.time) if name is not None]
    for name, feature in config.features.items():
        outputs += [column for column in feature.columns(name) if column not in built]
    return Plan(
        columns=columns,
        keys=data.keys,
        outputs=list(dict.fromkeys(outputs)),
        histories=histories,
        labels=[Label(name, task, _label(name, task, columns)) for name, task in config.tasks.items()],
        weight=None if data.weight is None else parse_reference(data.weight, columns),
        where=None if data.where is None else parse(data.where),
        tables=tables,
        on_error=data.on_error,
    )


def _label(name: str, task: Any, columns: Mapping[str, ColumnInfo]) -> Expression | None:
    """What a task's label is read from; a retrieval task without one takes every row as chosen."""
    if task.label is not None:
        return parse_reference(task.label, columns)
    if isinstance(task, RetrievalTask) and name not in columns:
        return None
    return Expression(name, Column(name))
