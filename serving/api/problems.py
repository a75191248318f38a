"""Errors as problem documents (RFC 9457). They say what the caller can do and nothing of what is inside."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from easyrec.errors import BundleError, ConfigError, DataError, EasyRecError
from serving.events.log import LogError
from serving.events.writer import OverloadedError
from serving.funnel.query import RequestError
from serving.recommender import UnknownItemError
from serving.stores.base import StoreError

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_MOST_ERRORS = 20


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = "about:blank"
    """What kind of problem it is."""
    title: str
    """The kind in words."""
    status: int
    """The HTTP status."""
    detail: str | None = None
    """What is wrong with this request, and what to do."""
    errors: list[dict[str, str]] = Field(default_factory=list)
    """Which values are wrong: `path` and `message`."""


class ProblemError(Exception):
    """Ends a request with a problem document.

    Args:
        status: The HTTP status.
        detail: What is wrong, and what to do.
        headers: Further headers, such as Retry-After.
        errors: Which values are wrong.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.errors = list(errors)


def problem(
    status: int,
    detail: str | None = None,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[Mapping[str, str]] = (),
) -> JSONResponse:
    """A problem document as a response."""
    content: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
    }
    if detail is not None:
        content["detail"] = detail
    if errors:
        content["errors"] = list(errors)
    return JSONResponse(content, status, dict(headers or {}), media_type=MEDIA_TYPE)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems a route may answer with, for the OpenAPI document."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "model": Problem,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }


def install(app: FastAPI) -> None:
    """Makes every error of an application a problem document."""
    app.add_exception_handler(ProblemError, _known)
    app.add_exception_handler(EasyRecError, _own)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unknown)


async def _known(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, ProblemError):
        raise error
    return problem(error.status, error.detail, error.headers, error.errors)


async def _own(request: Request, error: Exception) -> JSONResponse:
    """Errors raised on purpose: those that are the caller's say what to do; others are logged and say little."""
    if isinstance(error, UnknownItemError):
        return problem(404, str(error))
    if isinstance(error, (OverloadedError, LogError, StoreError)):
        detail = "The service cannot take this now; send it again in a moment."
        if not isinstance(error, OverloadedError):
            logger.error("%s %s: %s", request.method, request.url.path, error)
        return problem(503, detail, {"Retry-After": "1"})
    if isinstance(error, (RequestError, DataError)):
        return problem(422, str(error))
    if isinstance(error, (ConfigError, BundleError)):
        logger.error("%s %s: %s", request.method, request.url.path, error)
    return await _unknown(request, error)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    errors = error.errors() if isinstance(error, RequestValidationError) else []
    found = [
        {
            "path": ".".join(str(step) for step in details["loc"]),
            "message": str(details["msg"]).removeprefix("Value error, "),
        }
        for details in errors[:_MOST_ERRORS]
    ]
    more = "" if len(errors) <= _MOST_ERRORS else f" The first {_MOST_ERRORS} of {len(errors)} are listed."
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent and not sent.endswith("json"):  # such as what curl says unless told otherwise
        more += " A body is read as JSON only with the header `Content-Type: application/json`."
    return problem(422, f"The request does not have the form that the API documents.{more}", errors=found)


async def _http(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    detail = error.detail if error.detail != HTTPStatus(error.status_code).phrase else None
    return problem(error.status_code, detail, error.headers)


async def _unknown(request: Request, error: Exception) -> JSONResponse:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, "The service failed; the fault is in its log.")
