"""The outermost layer: names each request, counts it, writes its line, and lets no exception out."""

from __future__ import annotations

import logging
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.api.problems import problem
from serving.operations.logs import FIELDS
from serving.operations.metrics import HttpRequest, Metrics
from serving.operations.request_ids import HEADER, request_named

logger = logging.getLogger("serving.access")

UNMATCHED = "unmatched"
"""The route of a request that leads nowhere, or was refused before; anybody can make up paths, so none is kept."""
GONE = 499
"""What is counted where the caller did not wait for the answer, as nginx has it."""
_NOT_LOGGED = ("/health/", "/metrics")


class Access:
    """ASGI middleware; see the module.

    Args:
        app: The application.
        metrics: Where requests are counted.
        log: Whether to write a line for each request.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log: bool = True) -> None:
        self._app = app
        self._metrics = metrics
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with request_named(Headers(scope=scope).get(HEADER)) as request_id:
            await self._answer(scope, receive, send, request_id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        begun = time.perf_counter()
        status = 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except Exception:  # whatever it is, the caller gets an answer and the log the rest
            logger.exception("the request failed")
            if status:  # too late to say so; the server closes the connection
                raise
            answer = problem(500, "The service failed; its log says more under the request's id.")
            await answer(scope, receive, send_named)
        finally:
            self._end(scope, status or GONE, time.perf_counter() - begun)

    def _end(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", UNMATCHED)
        self._metrics.observe_request(HttpRequest(scope["method"], route, status, seconds))
        if not self._log or scope["path"].startswith(_NOT_LOGGED):
            return
        caller = scope.get("state", {}).get("caller")
        fields = {
            "method": scope["method"],
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 2),
            "caller": getattr(caller, "name", None),
        }
        logger.info("request", extra={FIELDS: fields})
