"""What the service answers, and the events that are sent to it.

Answers may hold more than is listed here: a newer service does not break an older client.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Part of an answer."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class ModelVersion(Answer):
    """The model that answered."""

    name: str
    version: str


class Assignment(Answer):
    """The variant of an experiment that a user is in."""

    layer: str | None = None
    experiment: str
    variant: str | None = None


class RecommendedItem(Answer):
    """One item of a list."""

    item_id: str | int
    score: float | None = None
    """Higher is better; comparable within one list only. None for items that only fill up a short list."""
    position: int
    """From 1; send it back with events about the item."""
    sources: list[str] = Field(default_factory=list)
    """Which candidate sources found it."""
    properties: dict[str, Any] | None = None
    """Columns of the item table, where the scene returns some."""


class Recommendations(Answer):
    """A list of items."""

    request_id: str
    """Send it back with events about the items: it joins what was shown to what was done."""
    scene: str | None = None
    model: ModelVersion | None = None
    experiments: list[Assignment] = Field(default_factory=list)
    items: list[RecommendedItem]
    degraded: list[str] = Field(default_factory=list)
    """Parts of the service that were left out because they failed or were too slow; empty when all is well."""
    took_ms: float | None = None
    unknown_ids: list[str | int] = Field(default_factory=list)
    """Of `rank`: keys that are not in the catalogue, or not available."""
    debug: dict[str, Any] | None = None
    """What each stage did, if asked for with `debug=True`."""


class ItemState(Answer):
    """An item as it is now."""

    item_id: str | int
    properties: dict[str, Any]
    """Columns of the item table."""
    available: bool
    """Whether it may be recommended."""


class UserState(Answer):
    """Columns of a user that were put through the API."""

    user_id: str | int
    properties: dict[str, Any]
    unread: list[str] = Field(default_factory=list)
    """Columns that no model reads; they are kept all the same."""


class LoadedVersion(Answer):
    """One version of a model."""

    name: str
    version: str
    state: str
    """`active` serves, `previous` did before, `ready` is loaded, `failed` was refused."""
    runtime: str = ""


class RejectedEvent(Answer):
    """An event that was not taken, and why."""

    index: int
    """Which one, from 0, of those that were sent."""
    reason: str


class EventsAnswer(Answer):
    """What became of events."""

    accepted: int
    """On the service's disk."""
    duplicates: int = 0
    """Known already by their `event_id`."""
    rejected: list[RejectedEvent] = Field(default_factory=list)

    @classmethod
    def joined(cls, parts: Iterable[tuple[int, EventsAnswer]]) -> EventsAnswer:
        """Answers to several batches as one; each comes with the index of the first event of its batch."""
        accepted, duplicates, rejected = 0, 0, []
        for start, part in parts:
            accepted += part.accepted
            duplicates += part.duplicates
            rejected += [RejectedEvent(index=start + one.index, reason=one.reason) for one in part.rejected]
        return cls(accepted=accepted, duplicates=duplicates, rejected=rejected)


class Event(BaseModel):
    """Something that a user did."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    """Such as `click`, `purchase` or `rating`."""
    user_id: str | int | None = None
    item_id: str | int | None = None
    event_id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    """An event that is sent again with the same one counts once; made up unless given."""
    request_id: str | None = None
    """Of the recommendations that showed the item."""
    session_id: str | None = None
    position: int | None = None
    """Where the item stood, from 1."""
    value: float | None = None
    """Such as a rating, a price or seconds watched."""
    timestamp: datetime | float | None = None
    """When it happened; when it arrives at the service unless given."""
    properties: dict[str, Any] | None = None
