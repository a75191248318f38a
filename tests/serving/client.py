"""Requests to an application in this process, over its real ASGI interface, from ordinary tests."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI


class Client:
    """Starts an application, sends requests to it, and stops it.

    Args:
        app: The application.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    def __enter__(self) -> Client:
        self._context = start_blocking_portal()
        self._portal: BlockingPortal = self._context.__enter__()
        self._lifespan = self._portal.wrap_async_context_manager(self.app.router.lifespan_context(self.app))
        self._lifespan.__enter__()
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, client=("127.0.0.1", 1))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._portal.call(self._client.aclose)
        self._lifespan.__exit__(None, None, None)
        self._context.__exit__(kind, error, trace)

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        """Sends a request and waits for the answer."""
        return self._portal.call(partial(self._client.request, method, url, **options))

    def get(self, url: str, **options: Any) -> httpx.Response:
        return self.request("GET", url, **options)

    def post(self, url: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.request("POST", url, **({} if body is None else {"json": body}), **options)

    def put(self, url: str, body: Any) -> httpx.Response:
        return self.request("PUT", url, json=body)

    def patch(self, url: str, body: Any) -> httpx.Response:
        return self.request("PATCH", url, json=body)

    def delete(self, url: str) -> httpx.Response:
        return self.request("DELETE", url)
