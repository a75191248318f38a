"""What every store can do, and the records it keeps.

A store keeps, for each person (a user, or an anonymous session), the latest behaviour, the items seen and the items
served; for users, profile columns; and the items put through the API. It is read once a request, in one round trip.
Every member of the family passes the same conformance suite.

Writing is idempotent: an event that is appended twice is kept once, so that the event log can be replayed into a
store after a crash. Keys of users, sessions and items are text. All methods may be called from several threads.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from easyrec.errors import EasyRecError

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")

HISTORY = 200
"""Latest events of a person that a store keeps at least."""
SEEN = 2000
"""Latest items seen, and served, that a store keeps of a person at least."""
TAKINGS_SECONDS = 8 * 3600.0
"""How far apart takings of different processes may be: what is older has faded, what is ahead had a wrong clock."""


class StoreError(EasyRecError):
    """A store cannot be reached, or cannot read or write."""


@dataclass(frozen=True)
class Behaviour:
    """One event of a person, as histories and models use it.

    Attributes:
        event_id: Identifies the event.
        type: Such as `click`.
        item_id: Key of the item, or None for events of no item.
        time: When it happened, seconds since 1970.
        value: Such as a rating or an amount.
        properties: Further raw columns.
    """

    event_id: str
    type: str
    item_id: str | None
    time: float
    value: float | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """An event and whose it is: a user's, else a session's.

    Where both are given, the session's earlier events become the user's.
    """

    behaviour: Behaviour
    user_id: str | None = None
    session_id: str | None = None


@dataclass(frozen=True)
class Served:
    """Items that were shown to a person."""

    item_ids: Sequence[str]
    time: float
    user_id: str | None = None
    session_id: str | None = None


@dataclass(frozen=True)
class Mark:
    """That a person met an item.

    Attributes:
        item_id: Key of the item.
        type: Type of the event; empty for items served.
        time: The last time, seconds since 1970.
    """

    item_id: str
    type: str
    time: float


@dataclass(frozen=True)
class Record:
    """What a store knows of a person.

    Attributes:
        behaviours: Events of the user and of the session, oldest first.
        seen: Items of events, the latest first.
        served: Items served, the latest first.
        profile: Columns put through the API.
        erased: When the user was erased, or None: what a bundle knows of the user must not be used then.
    """

    behaviours: tuple[Behaviour, ...] = ()
    seen: tuple[Mark, ...] = ()
    served: tuple[Mark, ...] = ()
    profile: Mapping[str, Any] | None = None
    erased: float | None = None


@dataclass(frozen=True)
class Takings:
    """What one process has counted of what is taken right now.

    Attributes:
        counts: Faded counts by item key, as they were at `time`.
        time: Seconds since 1970.
    """

    counts: Mapping[str, float]
    time: float


@dataclass(frozen=True)
class ItemChange:
    """An item put through the API.

    Attributes:
        item_id: Key of the item.
        columns: All its raw columns; empty when only its availability was changed.
        available: Whether it may be recommended; a deleted item is not.
        time: When the item came, seconds since 1970; 0 if a bundle had it before it was put.
        version: Changes in their order; given by the store.
    """

    item_id: str
    columns: Mapping[str, Any]
    available: bool
    time: float
    version: int = 0


class Store(Protocol):
    """See the module. Every method raises StoreError when the store cannot do it now."""

    def read(self, user_id: str | None, session_id: str | None, history: int = HISTORY) -> Record:
        """What is known of a user and of a session, together; in one round trip."""

    def known_events(self, event_ids: Sequence[str]) -> set[str]:
        """Those of `event_ids` that were appended before."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Adds events; those that are known already are passed over."""

    def add_served(self, served: Sequence[Served]) -> None:
        """Adds items that were shown."""

    def put_profile(self, user_id: str, columns: Mapping[str, Any]) -> None:
        """Sets all columns of a user."""

    def merge(self, session_id: str, user_id: str) -> None:
        """Makes what an anonymous session did the user's."""

    def erase(self, user_id: str, time: float) -> None:
        """Forgets all of a user and remembers that it did."""

    def erased_since(self, time: float) -> dict[str, float]:
        """Digests of the users erased at or after a time, seconds since 1970, and when each was last erased."""

    def put_item(self, change: ItemChange) -> int:
        """Keeps a changed item in place of its earlier changes; returns its version."""

    def item(self, item_id: str) -> ItemChange | None:
        """The last change of an item."""

    def items_since(self, version: int) -> list[ItemChange]:
        """Items changed after a version, in the order of their changes."""

    def put_takings(self, process: str, takings: Takings) -> None:
        """Keeps what a process has counted in place of what it had before, and forgets what is too far from it."""

    def takings(self) -> dict[str, Takings]:
        """What processes have counted, by their names."""

    def prune(self, before: float) -> None:
        """Forgets events of before a time, seconds since 1970."""

    def ping(self) -> None:
        """Raises StoreError unless the store answers."""

    def close(self) -> None:
        """Releases what the store holds."""


def digest(user_id: str) -> str:
    """What stands for an erased user, so that no list of them remains."""
    return hashlib.sha256(user_id.encode()).hexdigest()


def owner(user_id: str | None, session_id: str | None) -> str:
    """The key under which events of a user, else of a session, are kept."""
    return f"u:{user_id}" if user_id is not None else f"s:{session_id}"


def owners(user_id: str | None, session_id: str | None) -> list[str]:
    """The keys under which what is known of a person may be kept."""
    users = [] if user_id is None else [owner(user_id, None)]
    return users if session_id is None else [*users, owner(None, session_id)]


def takings_from(time: Any, counts: Any) -> Takings:
    """Takings as a store has kept them.

    Raises:
        ValueError, TypeError, AttributeError: They are damaged.
    """
    return Takings({str(item): float(count) for item, count in counts.items()}, float(time))


def readable(rows: Iterable[T], decode: Callable[[T], U]) -> list[U]:
    """What rows of a store say; those that are damaged are passed over, because all others are as good as ever."""
    found = []
    for row in rows:
        try:
            found.append(decode(row))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            logger.warning("a row of the store cannot be read and is passed over: %s", error)
    return found
