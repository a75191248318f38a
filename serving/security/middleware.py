"""The gate in front of the API: who calls, how often, how many at once, how much."""

from __future__ import annotations

import asyncio
import ipaddress
import math
from typing import Protocol
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.api.problems import problem
from serving.security.access import required_scope
from serving.security.keys import ANYBODY, Caller
from serving.security.limits import RateLimiter, shape
from serving.security.settings import SecuritySettings, is_loopback

CALLER = "caller"
"""Where a request's state holds its `Caller`."""
_BEARER = "bearer "


class Keys(Protocol):
    """Knows who uses a key."""

    def caller(self, key: str) -> Caller | None:
        """The caller; None if the key is unknown."""


class Refusal(Exception):  # noqa: N818 it is an answer, not an error
    """A request that does not pass.

    Args:
        status: HTTP status.
        detail: What is wrong, and what to do.
        headers: Of the answer.
    """

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the problem document."""
        await problem(self.status, str(self), self.headers)(scope, receive, send)


class Gate:
    """ASGI middleware; see the module.

    Args:
        app: What is behind the gate.
        settings: Limits.
        keys: The API keys, or None where everybody may do everything.
    """

    def __init__(self, app: ASGIApp, settings: SecuritySettings, keys: Keys | None = None) -> None:
        self._app = app
        self._settings = settings
        self._keys = keys
        self._rates = RateLimiter(settings.requests_per_second, settings.burst)
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request pass, or answers it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            needed = self._admit(scope)
        except Refusal as refusal:
            await refusal.answer(scope, receive, send)
            return
        if needed is None:  # health and the page answer however busy the service is
            await self._app(scope, receive, send)
            return
        self._under_way += 1
        try:
            if self._under_way > self._settings.concurrent:
                raise Refusal(
                    429,
                    "the service is busy; try again in a moment",
                    Retry_After="1",
                )
            receive = await self._checked(scope, receive)
            await self._app(scope, receive, send)
        except Refusal as refusal:
            await refusal.answer(scope, receive, send)
        finally:
            self._under_way -= 1

    def _admit(self, scope: Scope) -> str | None:
        """Notes who calls; returns the scope that this needs, or None.

        Raises:
            Refusal: They may not do this, or not so often.
        """
        headers = Headers(scope=scope)
        if self._keys is None and not self._settings.open and not _is_from_here(scope, headers):
            raise Refusal(
                403,
                "without API keys the service answers this machine alone, by its own names; make a key with `easyrec "
                "keys create`, or set security.open if a gateway in front checks who calls",
            )
        needed = required_scope(scope["method"], scope["path"], self._settings.open_metrics)
        caller = self._caller(headers)
        scope.setdefault("state", {})[CALLER] = caller or Caller(None, frozenset())
        if needed is not None:
            if caller is None:
                raise Refusal(
                    401,
                    "an API key is missing; send it as `Authorization: Bearer KEY` or as `X-API-Key: KEY`",
                    WWW_Authenticate="Bearer",
                )
            if not caller.may(needed):
                raise Refusal(403, f"this needs an API key with the scope {needed!r}")
            self._limit(scope, caller)
        return needed

    def _caller(self, headers: Headers) -> Caller | None:
        if self._keys is None:
            return ANYBODY
        given = {value.strip() for value in headers.getlist("x-api-key")}
        for value in headers.getlist("authorization"):
            if value.lower().startswith(_BEARER):
                given.add(value[len(_BEARER) :].strip())
        if not given:
            return None
        caller = self._keys.caller(given.pop()) if len(given) == 1 else None
        if caller is None:
            raise Refusal(
                401,
                "the API key is unknown or has expired",
                WWW_Authenticate="Bearer",
            )
        return caller

    def _limit(self, scope: Scope, caller: Caller) -> None:
        client = scope.get("client") or ("",)
        wait = self._rates.wait(caller.name or f"@{client[0]}", caller.rate)
        if wait:
            raise Refusal(
                429,
                "the limit of requests a second is reached; wait as long as Retry-After says",
                Retry_After=str(math.ceil(wait)),
            )

    async def _checked(self, scope: Scope, receive: Receive) -> Receive:
        """Reads the body as far as it may go, and hands it on as one message.

        Raises:
            Refusal: It is too large, too deep, or has too many values.
        """
        limit = self._settings.body_kib << 10
        too_large = Refusal(413, f"the body may have at most {limit} bytes; send it in several requests")
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":  # the caller has gone
                        return _then([message], receive)
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise too_large
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Refusal(408, "the body did not arrive in time", Connection="close") from None
        if body:
            depth, values = shape(bytes(body))
            if depth > self._settings.depth:
                raise Refusal(
                    422,
                    f"lists and objects may be nested {self._settings.depth} deep, not {depth}",
                )
            if values > self._settings.values:
                raise Refusal(
                    422,
                    f"a body may hold about {self._settings.values} values, not {values}; send several requests",
                )
        return _then([{"type": "http.request", "body": bytes(body), "more_body": False}], receive)


def _then(messages: list[Message], receive: Receive) -> Receive:
    """Some messages, then those that come."""
    waiting = iter(messages)

    async def receive_next() -> Message:
        for message in waiting:
            return message
        return await receive()

    return receive_next


def _is_from_here(scope: Scope, headers: Headers) -> bool:
    """Whether a request was made on this machine, and not by a web page that had its own name point here."""
    client = scope.get("client")
    name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    return (client is None or is_loopback(client[0])) and (name == "localhost" or _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
