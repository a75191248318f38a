"""Puts an application behind the gate, and says so in its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from serving.api.problems import MEDIA_TYPE, documented
from serving.operations.request_ids import HEADER
from serving.security.access import required_scope
from serving.security.keys import KeyFileRing
from serving.security.middleware import Gate
from serving.security.settings import SecuritySettings

_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
}
_REFUSALS = documented(401, 403, 429)
_BODY_REFUSALS = documented(400, 408, 413)


def install_security(app: FastAPI, settings: SecuritySettings) -> None:
    """Adds keys, limits, and the origins that browsers may call from.

    Args:
        app: The application.
        settings: Who may call, and how much.

    Raises:
        ConfigError: The file of keys cannot be used.
    """
    keys = None if settings.keys is None else KeyFileRing(settings.keys)
    app.add_middleware(Gate, settings=settings, keys=keys)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", HEADER],
            expose_headers=[HEADER, "Retry-After"],
        )
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(generate())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(document: dict[str, Any]) -> dict[str, Any]:
    """Adds which keys an operation takes and what it answers without one; every error is a problem document."""
    document.setdefault("components", {})["securitySchemes"] = _SCHEMES
    for method, path, operation in _operations(document):
        scope = required_scope(method.upper(), path)
        refusals: dict[int | str, dict[str, Any]] = {}
        if scope is not None:
            operation["security"] = [{name: []} for name in _SCHEMES]
            described = operation.get("description", "").strip()
            operation["description"] = f"{described}\n\nNeeds the scope `{scope}`.".strip()
            refusals = _REFUSALS | (_BODY_REFUSALS if "requestBody" in operation else {})
        responses = operation["responses"]
        responses |= {str(status): dict(refusal) for status, refusal in refusals.items()}
        for status, response in responses.items():
            if status.isdecimal() and int(status) >= 400:
                response.pop("model", None)
                response["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict) and "responses" in operation:
                yield method, path, operation
