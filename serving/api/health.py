"""Whether the process lives, and whether it can answer."""

from __future__ import annotations

from fastapi import APIRouter, Response

from serving.api.dependencies import ServiceDependency, json_response
from serving.api.problems import problem
from serving.api.schemas import Health

router = APIRouter(prefix="/health", tags=["health"])


@router.get("/live", response_model=Health)
async def live() -> Response:
    """The process lives; it never waits for anything."""
    return json_response({"status": "ok", "checks": {}})


@router.get("/ready", response_model=Health)
async def ready(service: ServiceDependency) -> Response:
    """Requests can be answered; `checks` says which parts are not well."""
    if not service.ready:
        return problem(503, "The service is starting or ending.", {"Retry-After": "1"})
    return json_response({"status": "ok", "checks": dict(service.status())})
