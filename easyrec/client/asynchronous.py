"""The client whose answers are awaited."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from easyrec.client import calls
from easyrec.client.answers import Event, EventsAnswer
from easyrec.client.blocking import TIMEOUT, with_self
from easyrec.client.calls import Call
from easyrec.client.errors import NoAnswerError, ServiceError, UnavailableError
from easyrec.client.retries import Retries
from easyrec.client.transport import Options, outcome, request, wait_before_next

P = ParamSpec("P")
T = TypeVar("T")

_POLL = 0.2


def _method(build: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @functools.wraps(build)
    async def method(self: AsyncClient, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.send(build(*args, **kwargs))

    return with_self(method, build)


class AsyncClient:
    """`Client` for asyncio: the same methods, each to be awaited.

        async with AsyncClient("http://localhost:8000", api_key=key) as client:
            shown = await client.recommend(42, n=10)

    Args:
        base_url: Where the service is.
        api_key: A key that the service knows.
        timeout: Longest wait for a connection and for each answer, in seconds.
        retries: When a failed request is tried again, see `Retries`.
        transport: How bytes travel.

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
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._options = Options(base_url, api_key, timeout, retries or Retries())
        self._http = httpx.AsyncClient(
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

    async def post_events(self, events: Iterable[Event | Mapping[str, Any]]) -> EventsAnswer:
        """Sends events, in batches one after the other; see `Client.post_events`."""
        return EventsAnswer.joined(
            [(start, await self.send(call)) for start, call in calls.event_batches(events)]
        )

    async def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Waits until the service takes requests; see `Client.wait_until_ready`."""
        end = time.monotonic() + timeout
        while True:
            try:
                await self.ready()
                return
            except (NoAnswerError, UnavailableError):
                if time.monotonic() >= end:
                    raise
            await asyncio.sleep(_POLL)

    async def send(self, call: Call[T]) -> T:
        """Carries out a call, again if need be; see `Client.send`."""
        sent = request(self._http, call)
        attempt = 0
        while True:
            attempt += 1
            try:
                result: httpx.Response | httpx.RequestError = await self._http.send(sent)
            except httpx.RequestError as error:
                result = error
            found = outcome(call, sent, result)
            if not isinstance(found, ServiceError):
                return found
            wait = wait_before_next(call, found, attempt, self._options.retries)
            if wait is None:
                raise found from (result if isinstance(result, httpx.RequestError) else None)
            await asyncio.sleep(wait)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self._options})"
