"""One person in one request, and the raw columns that a model reads of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from easyrec.errors import EasyRecError
from easyrec.export.tables import as_keys
from serving.models.served import ServedModel
from serving.stores.base import Behaviour, Record

SEEN = "seen"
_LARGEST = 2.0**53
"""Larger whole numbers are no values to compare."""


@dataclass(frozen=True)
class Person:
    """Who asks.

    Attributes:
        user_id: Key of the user, or None for somebody anonymous.
        session_id: The visit, or None.
        record: What the store knows.
        history: Events with an item that count for histories, oldest first.
        context: Raw columns given with the request.
    """

    user_id: str | None = None
    session_id: str | None = None
    record: Record = field(default_factory=Record)
    history: tuple[Behaviour, ...] = ()
    context: Mapping[str, Any] = field(default_factory=dict)

    def unread(self, columns: UserColumns) -> dict[str, Any]:
        """What is known of the person, and of the request, that a model does not read: the next one may.

        Args:
            columns: What it reads.
        """
        given = {**(self.record.profile or {}), **self.context}
        return {name: value for name, value in given.items() if name not in columns.values}

    def bundle_columns(self, model: ServedModel) -> Mapping[str, Any]:
        """What a bundle knows of the user; nothing of one who was erased, or is anonymous."""
        if self.user_id is None or self.record.erased is not None:
            return {}
        return model.known_user(self.user_id) or {}


@dataclass(frozen=True)
class UserColumns:
    """Raw columns of a person, for one model.

    Attributes:
        values: By column.
        known: What is known: any of `bundle`, `profile`, `history`, `context`. Empty for somebody of whom the model
            knows nothing, who gets what is popular.
        ignored: Columns of the request that the model does not read.
    """

    values: Mapping[str, Any]
    known: tuple[str, ...]
    ignored: tuple[str, ...] = ()


def user_columns(person: Person, model: ServedModel, bundle: Mapping[str, Any]) -> UserColumns:
    """The raw columns that a model reads of a person.

    In order of precedence: the request's context, the profile put through the API, and the bundle's columns. Events
    that the store has and training did not see are added to the bundle's sequences.

    Args:
        person: Who asks.
        model: Reads the columns.
        bundle: `person.bundle_columns(model)`.
    """
    read = set(model.user_columns)
    profile = person.record.profile or {}
    values: dict[str, Any] = {name: value for name, value in bundle.items() if name in read}
    values |= {name: value for name, value in profile.items() if name in read}
    context = {name: value for name, value in person.context.items() if name in read}
    history = [] if not person.history else new_behaviours(person.history, bundle, created(model))
    if history:
        values |= _sequences(values, history, model)
    values |= context
    key = model.manifest.keys.get("user")
    if key is not None and key in read and person.user_id is not None:
        values.setdefault(key, native_key(person.user_id, model))
    known = tuple(
        name
        for name, found in (
            ("bundle", bundle),
            ("profile", any(name in read for name in profile)),
            ("history", person.history),
            ("context", context),
        )
        if found
    )
    ignored = tuple(name for name in person.context if name not in read)
    return UserColumns(values, known, ignored)


def new_behaviours(
    history: Sequence[Behaviour], bundle: Mapping[str, Any], created: float
) -> list[Behaviour]:
    """Events that the bundle's sequences do not contain yet.

    A bundle does not say when its data end, only when it was written. So an older event counts as new unless the
    bundle knows that the user took its item.

    Args:
        history: Events, oldest first.
        bundle: What the bundle knows of the user.
        created: When the bundle was written, seconds since 1970.
    """
    seen = {str(item) for item in bundle.get(SEEN) or ()}
    return [one for one in history if one.time > created or one.item_id not in seen]


def created(model: ServedModel) -> float:
    """When a bundle was written, seconds since 1970."""
    return datetime.fromisoformat(model.manifest.created).timestamp()


def native_key(user_id: str, model: ServedModel) -> str | int | None:
    """The key as the user column holds it; None where the column holds numbers and the key is none."""
    key = model.manifest.keys.get("user")
    kind = next((entry.kind for entry in model.manifest.inputs if entry.column == key), "string")
    if kind == "string":
        return user_id
    digits = user_id.removeprefix("-")
    return int(user_id) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else None


def _sequences(values: Mapping[str, Any], history: Sequence[Behaviour], model: ServedModel) -> dict[str, Any]:
    """The sequence columns with new events at their ends."""
    if not model.histories.columns:
        return {}
    catalogue = model.catalogue
    items = as_keys([one.item_id for one in history], catalogue.schema.field(catalogue.key).type).to_pylist()
    columns = event_columns(history, model.histories.event_columns)
    try:
        added = model.history_columns(items, columns)
    except (EasyRecError, pa.ArrowException):  # properties that do not fit the condition: all events count
        added = model.history_columns(items)
    separators = {
        entry.column: history_entry.separator
        for history_entry in model.manifest.histories
        for entry in model.manifest.inputs
        if entry.name == history_entry.name
    }
    return {column: _joined(values.get(column), new, separators.get(column)) for column, new in added.items()}


def event_columns(history: Sequence[Behaviour], names: set[str]) -> dict[str, list[Any]]:
    """Columns of events that conditions of histories read.

    A property has the name of its column. An event whose type is a column's name gives its value for it: a `rating`
    of value 4 is `rating = 4`. A column that no event has is left out, so that conditions over it do not apply.
    """
    columns: dict[str, list[Any]] = {}
    for name in names:
        values = _of_one_kind([_event_value(one, name) for one in history])
        if any(value is not None for value in values):
            columns[name] = values
    return columns


def _of_one_kind(values: list[Any]) -> list[Any]:
    """Values of the kind that most have, numbers or text, None in place of others: what one sender got wrong."""
    kinds = Counter(kind for kind in map(_kind, values) if kind is not None)
    usual = max(kinds, key=kinds.__getitem__, default=None)
    return [value if usual is not None and _kind(value) is usual else None for value in values]


def _kind(value: Any) -> type | None:
    if isinstance(value, bool):
        return bool
    if isinstance(value, str):
        return str
    return float if isinstance(value, (int, float)) and abs(value) <= _LARGEST else None


def _event_value(one: Behaviour, name: str) -> Any:
    if name in one.properties:
        return one.properties[name]
    if name == one.type:
        return one.value
    return {"type": one.type, "value": one.value}.get(name)


def _joined(known: Any, new: Any, separator: str | None) -> Any:
    """A sequence and what is appended to it, both lists, or both text."""
    if known is None or (not isinstance(known, str) and len(known) == 0):
        return new
    if separator is not None:
        return separator.join(part for part in (str(known), str(new)) if part)
    return [*known, *new] if isinstance(known, (list, tuple)) else new
