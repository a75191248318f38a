"""A store in the memory of one process; nothing outlives it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from serving.stores.base import (
    HISTORY,
    SEEN,
    TAKINGS_SECONDS,
    Behaviour,
    Entry,
    ItemChange,
    Mark,
    Record,
    Served,
    Takings,
    digest,
    owner,
    owners,
)

PEOPLE = 100_000
"""People kept at most; who was not met for longest is forgotten."""


@dataclass
class _Person:
    behaviours: list[Behaviour] = field(default_factory=list)
    seen: dict[tuple[str, str], float] = field(default_factory=dict)
    served: dict[str, float] = field(default_factory=dict)


class MemoryStore:
    """See the module.

    Args:
        people: How many people are kept at most.
    """

    def __init__(self, people: int = PEOPLE) -> None:
        self._lock = threading.Lock()
        self._limit = people
        self._people: OrderedDict[str, _Person] = OrderedDict()
        self._profiles: dict[str, Mapping[str, Any]] = {}
        self._erased: dict[str, float] = {}
        self._events: dict[str, float] = {}
        self._items: dict[str, ItemChange] = {}
        self._version = 0
        self._takings: dict[str, Takings] = {}

    def read(self, user_id: str | None, session_id: str | None, history: int = HISTORY) -> Record:
        """See `Store.read`."""
        with self._lock:
            people = [self._people[key] for key in owners(user_id, session_id) if key in self._people]
            behaviours = sorted(
                (one for person in people for one in person.behaviours), key=lambda one: one.time
            )
            seen = [Mark(item, kind, time) for person in people for (item, kind), time in person.seen.items()]
            served = [Mark(item, "", time) for person in people for item, time in person.served.items()]
            return Record(
                tuple(behaviours[-history:]) if history else (),
                tuple(sorted(seen, key=lambda mark: -mark.time)),
                tuple(sorted(served, key=lambda mark: -mark.time)),
                None if user_id is None else self._profiles.get(user_id),
                None if user_id is None else self._erased.get(user_id),
            )

    def known_events(self, event_ids: Sequence[str]) -> set[str]:
        """See `Store.known_events`."""
        with self._lock:
            return {event_id for event_id in event_ids if event_id in self._events}

    def append(self, entries: Sequence[Entry]) -> None:
        """See `Store.append`."""
        with self._lock:
            for entry in entries:
                if entry.user_id is not None and entry.session_id is not None:
                    self._merge(entry.session_id, entry.user_id)
                one = entry.behaviour
                if one.event_id in self._events:
                    continue
                self._events[one.event_id] = one.time
                person = self._person(owner(entry.user_id, entry.session_id))
                person.behaviours.append(one)
                person.behaviours.sort(key=lambda one: one.time)
                del person.behaviours[:-HISTORY]
                if one.item_id is not None:
                    _mark(person.seen, (one.item_id, one.type), one.time)

    def add_served(self, served: Sequence[Served]) -> None:
        """See `Store.add_served`."""
        with self._lock:
            for one in served:
                person = self._person(owner(one.user_id, one.session_id))
                for item_id in one.item_ids:
                    _mark(person.served, item_id, one.time)

    def put_profile(self, user_id: str, columns: Mapping[str, Any]) -> None:
        """See `Store.put_profile`."""
        with self._lock:
            self._profiles[user_id] = dict(columns)

    def merge(self, session_id: str, user_id: str) -> None:
        """See `Store.merge`."""
        with self._lock:
            self._merge(session_id, user_id)

    def erase(self, user_id: str, time: float) -> None:
        """See `Store.erase`."""
        with self._lock:
            self._people.pop(owner(user_id, None), None)
            self._profiles.pop(user_id, None)
            self._erased[user_id] = time

    def erased_since(self, time: float) -> dict[str, float]:
        """See `Store.erased_since`."""
        with self._lock:
            return {digest(user): moment for user, moment in self._erased.items() if moment >= time}

    def put_item(self, change: ItemChange) -> int:
        """See `Store.put_item`."""
        with self._lock:
            self._version += 1
            self._items.pop(change.item_id, None)
            self._items[change.item_id] = replace(change, version=self._version)
            return self._version

    def item(self, item_id: str) -> ItemChange | None:
        """See `Store.item`."""
        with self._lock:
            return self._items.get(item_id)

    def items_since(self, version: int) -> list[ItemChange]:
        """See `Store.items_since`."""
        with self._lock:
            return [change for change in self._items.values() if change.version > version]

    def put_takings(self, process: str, takings: Takings) -> None:
        """See `Store.put_takings`."""
        with self._lock:
            self._takings = {
                name: one
                for name, one in {**self._takings, process: takings}.items()
                if abs(one.time - takings.time) <= TAKINGS_SECONDS
            }

    def takings(self) -> dict[str, Takings]:
        """See `Store.takings`."""
        with self._lock:
            return dict(self._takings)

    def prune(self, before: float) -> None:
        """See `Store.prune`."""
        with self._lock:
            self._events = {key: time for key, time in self._events.items() if time >= before}
            for person in self._people.values():
                person.behaviours = [one for one in person.behaviours if one.time >= before]
                person.seen = {key: time for key, time in person.seen.items() if time >= before}
                person.served = {key: time for key, time in person.served.items() if time >= before}

    def ping(self) -> None:
        """Memory always answers."""

    def close(self) -> None:
        """Nothing is held."""

    def _person(self, key: str) -> _Person:
        person = self._people.setdefault(key, _Person())
        self._people.move_to_end(key)
        if len(self._people) > self._limit:
            self._people.popitem(last=False)
        return person

    def _merge(self, session_id: str, user_id: str) -> None:
        session = self._people.pop(owner(None, session_id), None)
        if session is None:
            return
        user = self._person(owner(user_id, None))
        user.behaviours = sorted([*user.behaviours, *session.behaviours], key=lambda one: one.time)[-HISTORY:]
        for key, time in session.seen.items():
            _mark(user.seen, key, time)
        for item_id, time in session.served.items():
            _mark(user.served, item_id, time)


def _mark(marks: dict[Any, float], key: Any, time: float) -> None:
    """Notes the last time of a key; of too many keys, those met longest ago are forgotten."""
    marks[key] = max(time, marks.pop(key, time))
    if len(marks) > 2 * SEEN:
        for old in sorted(marks, key=marks.__getitem__)[:-SEEN]:
            del marks[old]
