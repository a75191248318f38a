"""Events: what users do."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from serving.api.dependencies import ServiceDependency, json_response
from serving.api.problems import ProblemError, documented
from serving.api.schemas import EventsBody, EventsReply
from serving.events.event import Event, parse_events

router = APIRouter(prefix="/v1", tags=["events"], responses=documented(422, 503))


@router.post(
    "/events",
    response_model=EventsReply,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 10_000,
                        "items": Event.model_json_schema(ref_template="#/components/schemas/{model}"),
                    }
                }
            },
        }
    },
)
async def post_events(body: EventsBody, service: ServiceDependency) -> Response:
    """Accept events. Valid ones are durable when the answer comes; others are listed with the reason."""
    most = service.settings.limits.events
    if len(body) > most:
        raise ProblemError(422, f"a request holds at most {most} events here, got {len(body)}")
    events, rejected = parse_events(body)
    accepted = duplicates = 0
    if events:
        written = await asyncio.wrap_future(service.writer.write([event for _, event in events]))
        accepted, duplicates = written.accepted, written.duplicates
    return json_response(
        {
            "accepted": accepted,
            "duplicates": duplicates,
            "rejected": [{"index": index, "reason": reason} for index, reason in rejected],
        }
    )
