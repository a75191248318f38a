"""One request as the stages see it: who asks, for what, and what was looked up already."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from easyrec.errors import EasyRecError
from serving.funnel.candidates import Rows
from serving.funnel.trace import Trace
from serving.models.catalogue import Catalogue
from serving.models.served import EncodedUser, ServedModel
from serving.people.person import SEEN, Person, UserColumns, user_columns

T = TypeVar("T")


class RequestError(EasyRecError):
    """A request cannot be answered as it stands; the caller must change it."""


@dataclass
class Query:
    """See the module.

    Attributes:
        person: Who asks.
        n: How many items are wanted.
        model: Ranks, and its catalogue numbers the candidates.
        models: All models by name, as they were when the request came.
        trace: What happened so far.
        now: Seconds since 1970.
        deadline: When the answer is due, on the clock of `time.monotonic`.
        wanted: Rows that alone may be returned, or None.
        excluded: Rows that must not be returned.
        about: Rows of the items that the request is about, such as the one whose page is open.
    """

    person: Person
    n: int
    model: ServedModel
    models: Mapping[str, ServedModel]
    trace: Trace
    now: float
    deadline: float
    wanted: Rows | None = None
    excluded: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    about: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    _bundles: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _columns: dict[int, UserColumns] = field(default_factory=dict)
    _encoded: dict[int, EncodedUser] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalogue: Catalogue = self.model.catalogue

    @property
    def wanted_rows(self) -> Rows:
        """Rows that alone may be returned; none when there is no such restriction."""
        return np.empty(0, np.int64) if self.wanted is None else self.wanted

    @property
    def seconds_left(self) -> float:
        """Until the answer is due."""
        return self.deadline - time.monotonic()

    @cached_property
    def random(self) -> np.random.Generator:
        """Chance that is the same for the same request id, so that a request can be replayed."""
        return np.random.default_rng(zlib.crc32(self.trace.request_id.encode()))

    def columns(self, model: ServedModel | None = None) -> UserColumns:
        """The raw columns that a model, the ranking one unless given, reads of the person."""
        model = self.model if model is None else model
        key = id(model)
        if key not in self._columns:
            self._columns[key] = user_columns(self.person, model, self.bundle(model))
        return self._columns[key]

    def bundle(self, model: ServedModel | None = None) -> Mapping[str, Any]:
        """What a model's bundle, the ranking one's unless given, knows of the user."""
        model = self.model if model is None else model
        key = id(model)
        if key not in self._bundles:
            self._bundles[key] = self.person.bundle_columns(model)
        return self._bundles[key]

    def encoded(self) -> EncodedUser:
        """The person as the ranking model scores them.

        Raises:
            RequestError: A value of the request's context cannot be used.
        """
        key = id(self.model)
        if key not in self._encoded:
            self._encoded[key] = self.computed(self.model, self.model.user)
        return self._encoded[key]

    def computed(self, model: ServedModel, compute: Callable[[Mapping[str, Any]], T]) -> T:
        """`compute(columns)` with the person's raw columns for a model.

        Values that were put into a profile for an earlier model may not fit this one; they are left out then, and the
        answer says so.

        Raises:
            RequestError: A value of the request's context cannot be used.
        """
        values = self.columns(model).values
        try:
            return compute(values)
        except EasyRecError as error:
            return compute(self._without_misfits(model, values, error))

    def _without_misfits(
        self, model: ServedModel, values: Mapping[str, Any], error: EasyRecError
    ) -> Mapping[str, Any]:
        usable = {}
        for name, value in values.items():
            try:
                model.user({name: value})
            except EasyRecError as misfit:
                if name in self.person.context:
                    raise RequestError(f"context: {misfit}") from error
                self.trace.degrade("profile")
            else:
                usable[name] = value
        return usable

    @cached_property
    def recent(self) -> Rows:
        """Rows of the items that the person took, the latest first, each once."""
        if len(self.about):
            return self.about
        items = [one.item_id for one in reversed(self.person.history)]
        rows = self.catalogue.rows(items) if items else np.empty(0, np.int64)
        known = self._recent_of_bundle()
        rows = np.concatenate([rows, known[::-1]])
        rows = rows[rows >= 0]
        _, first = np.unique(rows, return_index=True)
        return rows[np.sort(first)]

    def _recent_of_bundle(self) -> Rows:
        """What the bundle knows the user took, oldest first: the longest sequence of items, else all items seen."""
        bundle = self.bundle()
        key = self.model.manifest.keys.get("item")
        inputs = {entry.name: entry.column for entry in self.model.manifest.inputs}
        lists = [
            _items(bundle.get(inputs[entry.name]), entry.separator)
            for entry in self.model.manifest.histories
            if entry.of == key and entry.name in inputs
        ]
        items: Sequence[Any] = max(lists, key=len, default=[]) or bundle.get(SEEN) or []
        return self.catalogue.rows(items) if len(items) else np.empty(0, np.int64)

    def rows_of(self, found: Rows, model: ServedModel) -> Rows:
        """Rows of another model's catalogue as rows of this one's; -1 for items that it lacks."""
        return found if model is self.model else self.catalogue.rows(model.catalogue.ids.take(found))


def _items(value: Any, separator: str | None) -> list[Any]:
    if isinstance(value, str):
        return [part for part in value.split(separator) if part] if separator else [value]
    return list(value or ())
