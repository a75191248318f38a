"""One event: its form, and what is refused, for HTTP and for streams alike."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from serving.stores.base import Behaviour, Entry

MAX_OBJECT_BYTES = 65_536
MERGE = "merge"
"""The type of an event that says no more than that a session is a user's."""
_MILLISECONDS = 1e11
_LATEST = 253_402_300_800.0  # the year 10000

Key = Annotated[str, Field(min_length=1, max_length=256), BeforeValidator(lambda value: key_text(value))]
"""A key of a user, an item, a session or an event; numbers are taken as their decimal text."""


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """A JSON object that can be stored and sent on as it is.

    Raises:
        ValueError: A number is not finite, a text is not Unicode, it is nested too deeply, or too large.
    """
    try:
        size = len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except (ValueError, TypeError, RecursionError):
        raise ValueError(
            "expected plain JSON: finite numbers, whole characters, not nested too deeply"
        ) from None
    if size > MAX_OBJECT_BYTES:
        raise ValueError(f"must not exceed {MAX_OBJECT_BYTES} bytes, got {size}")
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(plain)]
"""Raw columns in a request."""


def key_text(value: Any) -> Any:
    """A key as text; what cannot be one stays as it is, for the validator to refuse."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value


def seconds(value: Any) -> float:
    """A time as seconds since 1970.

    Args:
        value: Seconds or milliseconds since 1970, or ISO 8601 text, in UTC unless it names an offset.

    Raises:
        ValueError: It is neither.
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError("expected a time in ISO 8601, or seconds since 1970") from None
        value = (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).timestamp()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("expected a time in ISO 8601, or seconds since 1970")
    found = float(value)
    found = found / 1000 if abs(found) > _MILLISECONDS else found
    if not math.isfinite(found) or not 0 <= found < _LATEST:
        raise ValueError("a time lies between the years 1970 and 9999")
    return found


class Event(BaseModel):
    """Something a user, or an anonymous session, did."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    event_id: Key
    """Chosen by the sender; an event that is sent again with the same one counts once."""
    type: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$")
    """Such as `click`, `purchase` or `rating`."""
    user_id: Key | None = None
    """Who; may be missing when a session is given."""
    item_id: Key | None = None
    """The item it is about."""
    request_id: Key | None = None
    """The recommendation that showed the item."""
    session_id: Key | None = None
    """The visit; with a user, what the session did before becomes the user's."""
    position: int | None = Field(None, ge=1, le=100_000)
    """Where the item stood, from 1."""
    value: float | None = None
    """Such as a rating, a price or seconds watched."""
    timestamp: Annotated[float, BeforeValidator(seconds)] | None = Field(
        None, json_schema_extra={"anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}]}
    )
    """When: ISO 8601, or seconds or milliseconds since 1970. The time of arrival unless given."""
    properties: JsonObject = Field(default_factory=dict)
    """Further raw columns, such as those that `history.where` reads."""

    @model_validator(mode="after")
    def _somebody(self) -> Event:
        if self.user_id is None and self.session_id is None:
            raise ValueError("give user_id, or session_id for somebody anonymous")
        return self

    def record(self, received: float) -> dict[str, Any]:
        """The line of the log, as a mapping; what is not given is left out."""
        values = self.model_dump(exclude_none=True)
        if not values["properties"]:
            del values["properties"]
        return {"kind": "event", "received": received, **values, "timestamp": self.time(received)}

    def time(self, received: float) -> float:
        """When it happened; a clock that is ahead of ours does not make it happen after its arrival."""
        return received if self.timestamp is None else self.timestamp

    def entry(self, received: float) -> Entry:
        """What a store keeps of it."""
        return entry_of(self.record(received))


def entry_of(record: Mapping[str, Any]) -> Entry:
    """What a store keeps of a line of the log."""
    behaviour = Behaviour(
        record["event_id"],
        record["type"],
        record.get("item_id"),
        min(record["timestamp"], record["received"]),
        record.get("value"),
        record.get("properties") or {},
    )
    return Entry(behaviour, record.get("user_id"), record.get("session_id"))


def parse_events(values: Sequence[Any]) -> tuple[list[tuple[int, Event]], list[tuple[int, str]]]:
    """Validates events one by one.

    Args:
        values: JSON values.

    Returns:
        The valid ones and what is wrong with the others, each with its index.
    """
    events, rejected = [], []
    for index, value in enumerate(values):
        try:
            events.append((index, Event.model_validate(value)))
        except ValidationError as error:
            rejected.append((index, reason(error)))
    return events, rejected


_MESSAGES = {"model_type": 'expected an object, such as {"type": "click", ...}', "missing": "is missing"}


def reason(error: ValidationError) -> str:
    """What is wrong with one value, in a line."""
    parts = []
    for details in error.errors(include_url=False, include_input=False, include_context=False)[:5]:
        place = ".".join(str(step) for step in details["loc"])
        message = _MESSAGES.get(details["type"]) or details["msg"].removeprefix("Value error, ")
        parts.append(f"{place}: {message}" if place else message)
    return "; ".join(parts)
