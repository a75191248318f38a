"""Finds out who asks, in one round trip to the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from serving.people.person import Person
from serving.stores.base import HISTORY, Record, StoreError
from serving.stores.guard import GuardedStore

HISTORY_PART = "history"
"""What `degraded` says when the store could not be asked."""


class People:
    """Reads people from the store.

    Args:
        store: Histories, profiles, seen and served items.
        ignored_types: Types of events that are no part of histories, such as `dislike`.
        length: Latest events that are used.
    """

    def __init__(
        self, store: GuardedStore, ignored_types: Collection[str] = (), length: int = HISTORY
    ) -> None:
        self._store = store
        self._ignored = frozenset(ignored_types)
        self._length = length

    def find(
        self, user_id: str | None, session_id: str | None, context: Mapping[str, Any]
    ) -> tuple[Person, str | None]:
        """The person, and what went wrong.

        Args:
            user_id: Key of the user, or None.
            session_id: The visit, or None.
            context: Raw columns given with the request.

        Returns:
            The person as far as known, and the reason if the store could not be asked.
        """
        if user_id is None and session_id is None:
            return Person(context=context), None
        try:
            record, failure = self._store.read(user_id, session_id, self._length), None
        except StoreError as error:
            record, failure = Record(), str(error)
        history = tuple(
            one for one in record.behaviours if one.item_id is not None and one.type not in self._ignored
        )
        return Person(user_id, session_id, record, history, context), failure
