"""Bodies of requests and responses."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from serving.events.event import Event, JsonObject, Key

MOST_ITEMS = 100_000
MOST_EVENTS = 10_000
"""Lengths beyond which the settings cannot lift the limits."""


class Body(BaseModel):
    """A request body: unknown keys are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class Reply(BaseModel):
    """A response body."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class RequestBody(Body):
    """Who asks, and how."""

    user_id: Key | None = None
    """Key of the user; may be unknown or missing."""
    session_id: Key | None = None
    """The visit of somebody anonymous, or of the user."""
    scene: str | None = Field(None, max_length=128)
    """Name of the scene; the default one unless given."""
    context: JsonObject = Field(default_factory=dict, max_length=256)
    """Raw columns of this request, such as `{"device": "phone"}`."""
    request_id: Key | None = None
    """Name of this request, for events that refer to it; made up unless given."""
    debug: bool = False
    """Explain the answer: stages, times, counts, what was dropped and why."""
    properties: bool | list[Annotated[str, Field(max_length=256)]] | None = None
    """Columns of the item table to return: all, none, or those listed; those of the scene unless given."""


class RecommendBody(RequestBody):
    """A request for recommendations."""

    n: int | None = Field(None, ge=1, le=1000)
    """How many items; as many as the scene says unless given."""
    item_ids: list[Key] | None = Field(None, max_length=MOST_ITEMS)
    """Recommend only from these."""
    exclude_ids: list[Key] = Field(default_factory=list, max_length=MOST_ITEMS)
    """Recommend none of these."""


class RankBody(RequestBody):
    """A request to order given items for a person."""

    item_ids: list[Key] = Field(min_length=1, max_length=MOST_ITEMS)
    """The items."""


class ModelRef(Reply):
    """The model that ranked."""

    name: str
    version: str


class Exposure(Reply):
    """A variant of an experiment under which the request was answered."""

    layer: str
    experiment: str
    variant: str


class Item(Reply):
    """One recommended item."""

    item_id: str | int
    """Key of the item, as the catalogue has it."""
    score: float | None
    """Score of the ranking, comparable within this answer; null for items that only fill up a short list."""
    position: int
    """From 1."""
    sources: list[str]
    """The candidate sources that found it."""
    properties: dict[str, Any] | None = None
    """Columns of the item table."""


class Recommendations(Reply):
    """Recommended items, best first."""

    request_id: str
    scene: str
    model: ModelRef
    experiments: list[Exposure]
    items: list[Item]
    degraded: list[str]
    """Parts that were left out of this answer or replaced, such as `source.shelf`; empty when all is well."""
    took_ms: float
    debug: dict[str, Any] | None = None
    """How the answer came about, if asked for."""


class Ranking(Recommendations):
    """Given items in the order for a person."""

    unknown_ids: list[str | int]
    """Those that are not in the catalogue, or not available; they are not among `items`."""


class Rejection(Reply):
    """An event that was not accepted."""

    index: int
    """Its place in the request, from 0."""
    reason: str


class EventsReply(Reply):
    """What became of events. Accepted ones are durable, and the next request of their user knows them."""

    accepted: int
    duplicates: int
    """Events whose `event_id` was accepted before; they count once."""
    rejected: list[Rejection]


class PutItem(Body):
    """An item."""

    properties: JsonObject = Field(default_factory=dict, max_length=1000)
    """Columns of the item table; those left out are missing."""
    available: bool = True
    """Whether it may be recommended."""


class PatchItem(Body):
    """Changes of an item."""

    properties: JsonObject = Field(default_factory=dict, max_length=1000)
    """Columns of the item table; those left out stay."""
    available: bool | None = None
    """Whether it may be recommended."""


class ItemReply(Reply):
    """An item as it is now."""

    item_id: str
    properties: dict[str, Any]
    available: bool


class UserBody(Body):
    """Columns of a user."""

    properties: JsonObject = Field(default_factory=dict, max_length=1000)
    """Raw columns, such as `{"age": 31}`."""


class UserReply(Reply):
    """A user's columns that were put through the API."""

    user_id: str
    properties: dict[str, Any]
    unread: list[str]
    """Columns that no model reads; they are kept all the same."""


class MergeBody(Body):
    """An anonymous session that turns out to be the user's."""

    session_id: Key
    """The session."""


class ModelVersion(Reply):
    """A version of a model."""

    name: str
    version: str
    state: str
    """`active` serves, `previous` did before, `ready` is loaded, `failed` was refused."""
    runtime: str


class ShadowBody(Body):
    """A version that is tried beside the active one."""

    percent: float = Field(ge=0, le=100)
    """Share of the requests that it scores, for the log only; 0 ends it."""


class Models(Reply):
    """All models and versions."""

    models: list[ModelVersion]


class PredictBody(Body):
    """Rows in the form of TensorFlow Serving: `instances` row by row, or `inputs` column by column."""

    instances: list[dict[str, Any]] | None = Field(None, max_length=MOST_EVENTS)
    inputs: dict[str, list[Any]] | None = Field(None, max_length=1000)
    signature_name: str | None = Field(None, max_length=256)
    """Only `serving_default`."""


class Health(Reply):
    """How the service stands."""

    status: str
    checks: dict[str, str] = Field(default_factory=dict)


EventsBody = Annotated[list[Any], Field(min_length=1, max_length=MOST_EVENTS)]

__all__ = ["Event"]
