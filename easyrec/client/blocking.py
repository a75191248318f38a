"""The client that waits for its answers."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from easyrec.client import calls
from easyrec.client.answers import Event, EventsAnswer
from easyrec.client.calls import Call
from easyrec.client.errors import NoAnswerError, ServiceError, UnavailableError
from easyrec.client.retries import Retries
from easyrec.client.transport import Options, outcome, request, wait_before_next

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT = 5.0
_POLL = 0.2


def _method(build: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(build)
    def method(self: Client, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.send(build(*args, **kwargs))

    return with_self(method, build)


def with_self(method: Callable[..., Any], build: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a method the signature of the function that builds its call, as editors and `help` show it."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.signature(build)
    method.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])  # type: ignore[attr-defined]
    return method


class Client:
    """Talks to a service.

        with Client("http://localhost:8000", api_key=key) as client:
            shown = client.recommend(42, n=10)
            client.post_events([{"type": "click", "user_id": 42, "item_id": shown.items[0].item_id,
                                 "request_id": shown.request_id, "position": 1}])

    May be used from several threads. Keep one for the life of the application: it holds open connections.

    Args:
        base_url: Where the service is.
        api_key: A key that the service knows; not needed where the service takes all comers.
        timeout: Longest wait for a connection and for each answer, in seconds.
        retries: When a failed request is tried again, see `Retries`.
        transport: How bytes travel; for tests, and for proxies or sockets of your own.

    Raises:
        EasyRecError: An argument cannot be used.
    """

    def __init__(
        self,
        base_url: str = "http://localhost:8000",
        api_key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._options = Options(base_url, api_key, timeout, retries or Retries())
        self._http = httpx.Client(
            base_url=base_url, headers=self._options.headers(), timeout=timeout, transport=transport
        )

    recommend = _method(calls.recommend)
    rank = _method(calls.rank)
    similar = _method(calls.similar)
    popular = _method(calls.popular)
    get_item = _method(calls.get_item)
    put_item = _method(calls.put_item)
    patch_item = _method(calls.patch_item)
    delete_item = _method(calls.delete_item)
    put_user = _method(calls.put_user)
    patch_user = _method(calls.patch_user)
    delete_user = _method(calls.delete_user)
    merge_session = _method(calls.merge_session)
    models = _method(calls.models)
    activate = _method(calls.activate)
    rollback = _method(calls.rollback)
    predict = _method(calls.predict)
    experiments = _method(calls.experiments)
    assignment = _method(calls.assignment)
    ready = _method(calls.ready)

    def post_events(self, events: Iterable[Event | Mapping[str, Any]]) -> EventsAnswer:
        """Sends events, in batches; when it returns, those that were accepted are on the service's disk.

        An event without an `event_id` gets one, and a batch whose answer was lost is sent again: the service counts
        each event once. If it fails for good after some batches, calling it again with the same `Event` objects
        doubles nothing.

        Args:
            events: `Event` objects, or mappings with their fields.

        Raises:
            ServiceError: A batch could not be delivered.
            EasyRecError: An event has no such form; the batches before it are sent.
        """
        return EventsAnswer.joined((start, self.send(call)) for start, call in calls.event_batches(events))

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Waits until the service takes requests.

        Raises:
            ServiceError: It does not, after `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while True:
            try:
                self.ready()
                return
            except (NoAnswerError, UnavailableError):
                if time.monotonic() >= end:
                    raise
            time.sleep(_POLL)

    def send(self, call: Call[T]) -> T:
        """Carries out a call, again if need be.

        Raises:
            ServiceError: It failed; the class says how.
        """
        sent = request(self._http, call)
        attempt = 0
        while True:
            attempt += 1
            try:
                result: httpx.Response | httpx.RequestError = self._http.send(sent)
            except httpx.RequestError as error:
                result = error
            found = outcome(call, sent, result)
            if not isinstance(found, ServiceError):
                return found
            wait = wait_before_next(call, found, attempt, self._options.retries)
            if wait is None:
                raise found from (result if isinstance(result, httpx.RequestError) else None)
            time.sleep(wait)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._options})"
