"""Fits a configuration to the columns of the data: patterns written out, sides found, every column looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from easyrec.config.checks import check
from easyrec.config.columns import KIND_NAMES, ColumnInfo, ColumnKind
from easyrec.config.expression_types import ValueKind, check_types, require_condition
from easyrec.config.expressions import (
    Expression,
    ExpressionError,
    parse,
    parse_reference,
)
from easyrec.config.expressions import (
    columns as columns_of,
)
from easyrec.config.features import FeatureConfig, History, SequenceFeature, Side
from easyrec.config.locations import Locations, in_order
from easyrec.config.paths import Path
from easyrec.config.patterns import alternatives, is_pattern, matching
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import MulticlassTask, TaskConfig
from easyrec.errors import ConfigError, Problem, nearest

Columns = Mapping[str, ColumnInfo]


def resolve(config: PipelineConfig, columns: Columns) -> PipelineConfig:
    """Fits a configuration to the columns of the data.

    - A feature whose name is a pattern becomes one feature for each column it matches, in the order of the columns.
      Columns with an entry of their own, those that an earlier pattern took, the time key, and those that the labels
      or the sample weight are read from are left out. Each pattern, and each alternative in its braces, must match a
      column. Patterns in `model.features` and `model.wide_features` become the names of the features they match.
    - A feature without `side` is of the `user` or `item` when all its columns are the key or come from the table of
      that side; a sequence is of the `user`; everything else is `context`.
    - A sequence without `history` whose column does not exist is built from the interactions: of the column of its
      `of` feature, as long as `max_length`.
    - A task without `label` reads the column of its own name; a retrieval task may go without one.

    Args:
        config: As loaded. A resolved configuration may be resolved again.
        columns: All columns that features, labels and expressions may use, by name.

    Returns:
        The configuration with all of this written in; the locations of values still point to where they were written.

    Raises:
        ConfigError: Columns that do not exist or hold the wrong kind of values, patterns that match nothing, and
            all that `easyrec.config.checks` finds once patterns are written out; all of them together.
    """
    work = _Work(config, columns, config.locations)
    work.keys()
    tasks = {name: work.task(name, task) for name, task in config.tasks.items()}
    work.expressions()
    features = work.expand()
    features = {name: work.feature(name, feature, features) for name, feature in features.items()}
    model = config.model.model_copy(update=work.selections(features))
    resolved = config.model_copy(update={"features": features, "tasks": tasks, "model": model})
    resolved = resolved.with_locations(work.locations)
    if found := [*work.problems, *check(resolved)]:
        raise ConfigError(in_order(found))
    return resolved


@dataclass
class _Work:
    """What is being resolved, and what was found wrong so far."""

    config: PipelineConfig
    columns: Columns
    locations: Locations
    problems: list[Problem] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    """Columns that labels are read from, and what each is."""
    unmatched: dict[str, str] = field(default_factory=dict)
    """Columns that patterns leave out, and what each is."""

    def problem(self, path: Path, message: str) -> None:
        self.problems.append(self.locations.problem(path, message))

    def keys(self) -> None:
        wrong: dict[str, tuple[tuple[ColumnKind, ...], str]] = {
            "user": (("string", "int"), "cast it to int64 or string"),
            "item": (("string", "int"), "cast it to int64 or string"),
            "time": (("timestamp", "int", "float"), "cast it to timestamp"),
        }
        for key, (kinds, way_out) in wrong.items():
            name = getattr(self.config.data.keys, key)
            if name is None:
                continue
            if key == "time":
                self.unmatched[name] = "the time key"
            if key == "item" and name in ("score", "position"):
                self.problem(
                    ("data", "keys", key), f"recommendations have a column {name!r} already; rename it"
                )
            if name in self.reserved and (key, name) != ("item", "seen"):
                self.problem(
                    ("data", "keys", key), f"{name!r} is the name of {self.reserved[name]}; rename the column"
                )
            if name not in self.columns:
                self.problem(("data", "keys", key), self._no_column(name))
            elif self.columns[name].kind not in kinds:
                self.problem(
                    ("data", "keys", key),
                    f"the column {name!r} holds {KIND_NAMES[self.columns[name].kind]}, which cannot be the {key} key; "
                    f"{way_out} under `columns:` of its file",
                )

    @property
    def reserved(self) -> dict[str, str]:
        """Names that stand for something else where features are read, and for what."""
        data = self.config.data
        names = {f"label/{task}": f"the label of {task!r} once it is computed" for task in self.config.tasks}
        if data.weight is not None:
            names["weight"] = "the sample weight once it is computed"
        if data.keys.user is not None and data.keys.item is not None:
            names["seen"] = "the list of items that a user has seen"
        return names

    def _no_column(self, name: str) -> str:
        return f"the data have no column {name!r}.{nearest(name, self.columns)}"

    # ------------------------------------------------------------------------------------------------ expressions

    def task(self, name: str, task: TaskConfig) -> TaskConfig:
        label = name if task.label is None else task.label
        if task.label is None and label not in self.columns:
            if task.type == "retrieval":
                return task
            self.problem(
                ("tasks", name),
                f"`label` is not given and {self._no_column(label)} Set `label` to a column or an expression such as "
                "`rating >= 4`",
            )
            return task
        path: Path = ("tasks", name, "label")
        expression = self._read(path, label, reference=True)
        if expression is not None:
            named = isinstance(task, MulticlassTask) and not isinstance(task.classes, int)
            allowed: tuple[ValueKind, ...] = (
                ("number", "condition", "string") if named else ("number", "condition")
            )
            words = (
                "leave out `classes`, or list the words there"
                if isinstance(task, MulticlassTask)
                else f"compare it, such as `{expression.text} == 'yes'`; several words are for `type: multiclass`"
            )
            self._kind(path, expression, allowed, "a label is a number, or true or false", words)
            self.answers.update(dict.fromkeys(columns_of(expression), f"the label of {name!r}"))
        return task.model_copy(update={"label": label})

    def expressions(self) -> None:
        data, evaluation = self.config.data, self.config.evaluation
        if data.weight is not None:
            expression = self._read(("data", "weight"), data.weight, reference=True)
            if expression is not None:
                self._kind(("data", "weight"), expression, ("number", "condition"), "a weight is a number")
                self.unmatched.update(dict.fromkeys(columns_of(expression), "the sample weight"))
        self._condition(("data", "where"), data.where)
        if data.negatives is not None:
            self._condition(("data", "negatives", "where"), data.negatives.where)
        self._condition(("evaluation", "relevant"), evaluation.relevant)
        for name, feature in self.config.features.items():
            if isinstance(feature, SequenceFeature) and feature.history is not None:
                self._condition(("features", name, "history", "where"), feature.history.where)

    def _condition(self, path: Path, text: str | None) -> None:
        expression = None if text is None else self._read(path, text)
        if expression is None:
            return
        try:
            require_condition(expression, self.columns)
        except ExpressionError as error:
            self.problem(path, str(error))

    def _read(self, path: Path, text: str, *, reference: bool = False) -> Expression | None:
        try:
            return parse_reference(text, self.columns) if reference else parse(text)
        except ExpressionError as error:
            hint = f"\n    The data have no column of this name either.{nearest(text, self.columns)}"
            self.problem(path, f"{error}{hint if reference else ''}")
            return None

    def _kind(
        self, path: Path, expression: Expression, allowed: tuple[ValueKind, ...], rule: str, words: str = ""
    ) -> None:
        try:
            kind = check_types(expression, self.columns)
        except ExpressionError as error:
            self.problem(path, str(error))
            return
        if kind not in allowed:
            noun = {"string": "text", "timestamp": "a timestamp", "several": "a list or map"}[kind]
            way_out = words or f"compare it, such as `{expression.text} == 'yes'`"
            hint = f"; {way_out}" if kind == "string" else ""
            stray = self.columns[expression.text].stray if expression.text in self.columns else ""
            hint += f"; the first that is no number is {stray}" if stray else ""
            self.problem(path, f"{rule}, but {expression.text!r} is {noun}{hint}")

    # --------------------------------------------------------------------------------------------------- features

    def expand(self) -> dict[str, FeatureConfig]:
        explicit = {name for name in self.config.features if not self._is_pattern(name)}
        taken = set(explicit)
        expanded: dict[str, FeatureConfig] = {}
        for name, feature in self.config.features.items():
            if name in explicit:
                expanded[name] = feature
                continue
            for column in self._matches(name, taken):
                expanded[column] = feature
                taken.add(column)
                self.locations = self.locations.with_alias(("features", column), ("features", name))
        return expanded

    def _is_pattern(self, name: str) -> bool:
        return is_pattern(name) and name not in self.columns

    def _matches(self, pattern: str, taken: set[str]) -> list[str]:
        """The columns a pattern declares; an alternative that declares none is a problem."""
        try:
            parts = alternatives(pattern)
        except ValueError as error:
            self.problem(("features", pattern), f"{error}")
            return []
        found: dict[str, None] = {}
        for part in parts:
            matched = matching(part, self.columns)
            left_out = {**self.unmatched, **self.answers}
            free = [column for column in matched if column not in taken and column not in left_out]
            found.update(dict.fromkeys(free))
            if not matched:
                kind = "the pattern" if is_pattern(part) else "the column"
                self.problem(
                    ("features", pattern),
                    f"{kind} {part!r} matches nothing in the data.{nearest(part, self.columns)}",
                )
            elif not free:
                why = {column: left_out.get(column, "an entry of its own") for column in matched}
                listed = ", ".join(f"{column!r} is {reason}" for column, reason in list(why.items())[:3])
                self.problem(("features", pattern), f"{part!r} matches only columns in use already: {listed}")
        return [column for column in self.columns if column in found]

    def feature(
        self, name: str, feature: FeatureConfig, features: Mapping[str, FeatureConfig]
    ) -> FeatureConfig:
        path: Path = ("features", name)
        if isinstance(feature, SequenceFeature) and (
            feature.history is not None or (feature.column or name) not in self.columns
        ):
            return self._history(path, name, feature, features)
        sources = feature.columns(name)
        missing = [column for column in sources if column not in self.columns]
        for column in missing:
            self.problem(path, self._no_column(column))
        for column in sources:
            if column in self.answers:
                self.problem(
                    path,
                    f"the column {column!r} is {self.answers[column]}; a model that sees it would learn to copy the "
                    "answer, which is not known when it predicts",
                )
        for column in sources:
            of_item = feature.side == "item" or (
                column in self.columns and self.columns[column].table == "item"
            )
            if column in self.reserved and not (column == "seen" and of_item):
                self.problem(
                    path, f"the column {column!r} has the name of {self.reserved[column]}; rename it"
                )
        if missing:
            return feature
        if misfit := feature.misfit(name, {column: self.columns[column].kind for column in sources}):
            strays = [self.columns[column].stray for column in sources if self.columns[column].stray]
            self.problem(
                path, misfit + "".join(f"; the first that is no number is {stray}" for stray in strays)
            )
        return feature.model_copy(update={"side": self._side(path, feature, sources)})

    def _side(self, path: Path, feature: FeatureConfig, sources: Iterable[str]) -> Side:
        sides = {self._column_side(column) for column in sources}
        if feature.side is not None:
            tables = {self.columns[column].table for column in sources} - {"interactions"}
            if tables and tables != {feature.side}:
                self.problem(
                    (*path, "side"),
                    f"`side: {feature.side}`, but its column comes from the {' and '.join(sorted(tables))} table; "
                    "drop `side`",
                )
            return feature.side
        if isinstance(feature, SequenceFeature):
            return "item" if sides == {"item"} else "user"
        return sides.pop() if len(sides) == 1 else "context"

    def _column_side(self, column: str) -> Side:
        keys, table = self.config.data.keys, self.columns[column].table
        if table != "interactions":
            return table
        if column == keys.user:
            return "user"
        return "item" if column == keys.item else "context"

    def _history(
        self, path: Path, name: str, feature: SequenceFeature, features: Mapping[str, FeatureConfig]
    ) -> FeatureConfig:
        history = feature.history or History(last=feature.max_length)
        source = history.of
        if source is None and feature.of is not None and feature.of in features:
            source = features[feature.of].columns(feature.of)[0]
        if source is None:
            if feature.history is None and feature.of is None:
                self.problem(
                    path,
                    f"{self._no_column(feature.column or name)} A sequence that is not a column is built from the "
                    "interactions when `of` names an id feature",
                )
            elif feature.history is not None and feature.of is None:
                self.problem(
                    (*path, "history"), "`of` is missing: which column of the interactions is listed"
                )
            return feature
        if source not in self.columns:
            self.problem((*path, "history", "of"), self._no_column(source))
        elif self.columns[source].kind not in ("string", "int"):
            self.problem(
                (*path, "history", "of"),
                f"the column {source!r} holds {KIND_NAMES[self.columns[source].kind]}; a history lists ids: "
                "text or integers",
            )
        keys = self.config.data.keys
        needed = [key for key in ("user", "time") if getattr(keys, key) is None]
        if needed and feature.history is None:
            self.problem(
                path,
                f"the data have no column {feature.column or name!r}, and to build the sequence from the interactions "
                f"`data.keys` must name {' and '.join(needed)}",
            )
        if "last" not in history.model_fields_set:
            history = history.model_copy(update={"last": feature.max_length})
        return feature.model_copy(
            update={"history": history.model_copy(update={"of": source}), "side": feature.side or "user"}
        )

    def selections(self, features: Mapping[str, FeatureConfig]) -> dict[str, list[str]]:
        """`features` and `wide_features` of the model, patterns written out."""
        selections = {}
        for option in ("features", "wide_features"):
            names = getattr(self.config.model, option, None)
            if names is not None:
                selections[option] = self._selection(("model", option), names, features)
        return selections

    def _selection(self, path: Path, names: list[str], features: Mapping[str, FeatureConfig]) -> list[str]:
        selected: dict[str, None] = {}
        for index, name in enumerate(names):
            if name in features:
                selected[name] = None
                continue
            try:
                parts = alternatives(name)
            except ValueError as error:
                self.problem((*path, index), str(error))
                continue
            for part in parts:
                found = matching(part, features)
                selected.update(dict.fromkeys(found))
                if not found:
                    self.problem((*path, index), f"no feature {part!r}.{nearest(part, features)}")
        return list(selected)
