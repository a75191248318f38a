"""The requests that the service takes: for each a function from arguments to a `Call`.

Here is all that there is to know of the API; how a call travels, and whether the caller waits for it or awaits it, is
the business of `transport`, `blocking` and `asynchronous`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from easyrec.client.answers import (
    Event,
    EventsAnswer,
    ItemState,
    LoadedVersion,
    ModelVersion,
    Recommendations,
    UserState,
)
from easyrec.errors import EasyRecError, nearest

T = TypeVar("T")
Key = str | int
EVENTS_PER_REQUEST = 500


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request.

    Attributes:
        method: HTTP method.
        path: Path, quoted.
        read: From the JSON of the answer to what the caller gets.
        params: Query parameters; those that are None are left out.
        body: JSON, or None.
        repeatable: Whether carrying it out twice is the same as once.
    """

    method: str
    path: str
    read: Callable[[Any], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    repeatable: bool = False


def recommend(
    user_id: Key | None = None,
    *,
    scene: str | None = None,
    n: int | None = None,
    session_id: str | None = None,
    context: Mapping[str, Any] | None = None,
    item_ids: Sequence[Key] | None = None,
    exclude_ids: Sequence[Key] | None = None,
    request_id: str | None = None,
    properties: bool | Sequence[str] | None = None,
    debug: bool | None = None,
) -> Call[Recommendations]:
    """Recommends items to a user. One who is unknown gets what is popular, not an error.

    Args:
        user_id: Key of the user; may be missing for somebody anonymous.
        scene: Which funnel; the service's default unless given.
        n: How many items.
        session_id: The visit; what it did before counts.
        context: Raw columns of the request, such as the device.
        item_ids: Recommend only from these.
        exclude_ids: Items that must not be returned.
        request_id: Made up by the service unless given.
        properties: Columns of the items to return: all, none, or those named; those of the scene unless given.
        debug: Say what each stage did; needs the scope `admin`.
    """
    return Call("POST", "/v1/recommend", _model(Recommendations), body=_given(locals()))


def rank(
    user_id: Key | None = None,
    item_ids: Sequence[Key] = (),
    *,
    scene: str | None = None,
    session_id: str | None = None,
    context: Mapping[str, Any] | None = None,
    request_id: str | None = None,
    properties: bool | Sequence[str] | None = None,
    debug: bool | None = None,
) -> Call[Recommendations]:
    """Orders the caller's own candidates for a user; only unknown and unavailable items are left out.

    Args:
        user_id: Key of the user.
        item_ids: The candidates.
        scene: Which funnel's model; the service's default unless given.
        session_id: The visit.
        context: Raw columns of the request.
        request_id: Made up by the service unless given.
        properties: Columns of the items to return.
        debug: Say what each stage did; needs the scope `admin`.
    """
    body = _given(locals() | {"item_ids": list(item_ids)})
    return Call("POST", "/v1/rank", _model(Recommendations), body=body)


def similar(
    item_id: Key, *, n: int | None = None, user_id: Key | None = None, properties: bool | None = None
) -> Call[Recommendations]:
    """Items similar to one; with `user_id`, without those that the user has seen."""
    params = {"n": n, "user_id": user_id, "properties": properties}
    return Call("GET", f"/v1/items/{_key(item_id)}/similar", _model(Recommendations), params, repeatable=True)


def popular(
    *, n: int | None = None, user_id: Key | None = None, properties: bool | None = None
) -> Call[Recommendations]:
    """The items that are taken most; with `user_id`, without those that the user has seen."""
    params = {"n": n, "user_id": user_id, "properties": properties}
    return Call("GET", "/v1/popular", _model(Recommendations), params, repeatable=True)


def event_batches(
    events: Iterable[Event | Mapping[str, Any]], size: int = EVENTS_PER_REQUEST
) -> Iterator[tuple[int, Call[EventsAnswer]]]:
    """Requests that send events, and the index of the first event of each.

    Every event has an `event_id` before it is sent for the first time, so sending a batch again doubles nothing.

    Raises:
        EasyRecError: An event has no such form.
    """
    batch: list[dict[str, Any]] = []
    start = 0
    for index, event in enumerate(events):
        valid = event if isinstance(event, Event) else _event(event, index)
        batch.append(valid.model_dump(mode="json", exclude_none=True))
        if len(batch) == size:
            yield start, _events(batch)
            start, batch = start + size, []
    if batch:
        yield start, _events(batch)


def get_item(item_id: Key) -> Call[ItemState]:
    """An item as it is now."""
    return Call("GET", f"/v1/items/{_key(item_id)}", _model(ItemState), repeatable=True)


def put_item(
    item_id: Key, properties: Mapping[str, Any], *, available: bool | None = None
) -> Call[ItemState]:
    """Adds an item, or replaces it; it can be recommended from the next request on.

    Args:
        item_id: Key of the item.
        properties: Columns of the item table; those left out are missing.
        available: Whether it may be recommended; it may unless given.
    """
    return _put("PUT", f"/v1/items/{_key(item_id)}", ItemState, properties, available)


def patch_item(
    item_id: Key, properties: Mapping[str, Any] | None = None, *, available: bool | None = None
) -> Call[ItemState]:
    """Changes some columns of an item, or whether it may be recommended."""
    return _put("PATCH", f"/v1/items/{_key(item_id)}", ItemState, properties or {}, available)


def delete_item(item_id: Key) -> Call[None]:
    """Recommends an item no more."""
    return Call("DELETE", f"/v1/items/{_key(item_id)}", _nothing, repeatable=True)


def put_user(user_id: Key, properties: Mapping[str, Any]) -> Call[UserState]:
    """Sets the profile of a user: raw columns that the model reads."""
    return _put("PUT", f"/v1/users/{_key(user_id)}", UserState, properties)


def patch_user(user_id: Key, properties: Mapping[str, Any]) -> Call[UserState]:
    """Changes some columns of a profile; None removes one."""
    return _put("PATCH", f"/v1/users/{_key(user_id)}", UserState, properties)


def delete_user(user_id: Key) -> Call[None]:
    """Erases a user: profile, history and logged events."""
    return Call("DELETE", f"/v1/users/{_key(user_id)}", _nothing, repeatable=True)


def merge_session(user_id: Key, session_id: Key) -> Call[None]:
    """Makes what an anonymous session did the user's, as after a login."""
    path = f"/v1/users/{_key(user_id)}/merge"
    return Call("POST", path, _nothing, body={"session_id": session_id}, repeatable=True)


def models() -> Call[list[LoadedVersion]]:
    """The models and their versions."""
    return Call(
        "GET",
        "/v1/models",
        lambda answer: [LoadedVersion.model_validate(one) for one in _mapping(answer)["models"]],
        repeatable=True,
    )


def activate(name: str, version: str) -> Call[ModelVersion]:
    """Makes a loaded version of a model the one that answers."""
    path = f"/v1/models/{_key(name)}/versions/{_key(version)}:activate"
    return Call("POST", path, _model(ModelVersion), repeatable=True)


def rollback(name: str) -> Call[ModelVersion]:
    """Goes back to the version of a model that answered before."""
    return Call("POST", f"/v1/models/{_key(name)}:rollback", _model(ModelVersion))


def predict(name: str, instances: Sequence[Mapping[str, Any]]) -> Call[list[Any]]:
    """Predictions for rows of raw columns, in the form of TensorFlow Serving's REST API."""
    return Call(
        "POST",
        f"/v1/models/{_key(name)}:predict",
        lambda answer: list(_mapping(answer)["predictions"]),
        body={"instances": [dict(one) for one in instances]},
        repeatable=True,
    )


def experiments() -> Call[dict[str, Any]]:
    """The experiments that run."""
    return Call("GET", "/v1/experiments", _mapping, repeatable=True)


def assignment(user_id: Key) -> Call[dict[str, Any]]:
    """The variants that a user is in."""
    return Call("GET", "/v1/experiments/assignment", _mapping, {"user_id": user_id}, repeatable=True)


def ready() -> Call[dict[str, Any]]:
    """Whether the service takes requests; raises UnavailableError while it does not."""
    return Call("GET", "/health/ready", _mapping, repeatable=True)


def _events(batch: list[dict[str, Any]]) -> Call[EventsAnswer]:
    return Call("POST", "/v1/events", _model(EventsAnswer), body=batch, repeatable=True)


def _event(value: Mapping[str, Any], index: int) -> Event:
    try:
        return Event.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        hint = nearest(place, Event.model_fields) if first["type"] == "extra_forbidden" else ""
        raise EasyRecError(
            f"event {index}: {place}: {first['msg']}, got {first['input']!r}.{hint}"
        ) from error


def _put(
    method: str, path: str, kind: type[Any], properties: Mapping[str, Any], available: bool | None = None
) -> Call[Any]:
    body = {"properties": dict(properties)} | ({} if available is None else {"available": available})
    return Call(method, path, _model(kind), body=body, repeatable=True)


def _key(value: Key) -> str:
    return quote(str(value), safe="")


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _mapping(answer: Any) -> dict[str, Any]:
    if answer is None:
        return {}
    if not isinstance(answer, dict):
        raise TypeError(f"expected a JSON object, got {type(answer).__name__}")
    return answer


def _nothing(answer: Any) -> None:
    return None


def _model(kind: type[Any]) -> Callable[[Any], Any]:
    return kind.model_validate  # type: ignore[no-any-return]
