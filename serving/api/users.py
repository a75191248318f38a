"""Users: their columns, their sessions, and forgetting them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from serving.api.dependencies import ServiceDependency, json_response
from serving.api.problems import documented
from serving.api.schemas import MergeBody, UserBody, UserReply
from serving.events.event import MERGE, Event
from serving.operations.request_ids import new_request_id
from serving.people.profiles import put_profile
from serving.service import Service

router = APIRouter(prefix="/v1/users", tags=["users"], responses=documented(422, 503))

Id = Annotated[str, Path(min_length=1, max_length=256)]


@router.put("/{user_id:key}", response_model=UserReply)
async def put_user(user_id: Id, body: UserBody, service: ServiceDependency) -> Response:
    """Set the columns of a user; the next request knows them."""
    return await _put(service, user_id, body.properties, merge=False)


@router.patch("/{user_id:key}", response_model=UserReply)
async def patch_user(user_id: Id, body: UserBody, service: ServiceDependency) -> Response:
    """Change some columns of a user; null removes one."""
    return await _put(service, user_id, body.properties, merge=True)


@router.delete("/{user_id:key}", status_code=204)
async def delete_user(user_id: Id, service: ServiceDependency) -> Response:
    """Forget a user: columns, history, what was seen and served, and their events and exposures in the logs.

    The store forgets at once, the logs with the next compactions. What a bundle knows of the user is not used any more.
    """
    await asyncio.wrap_future(service.writer.erase(user_id))
    return Response(status_code=204)


@router.post("/{user_id:key}/merge", status_code=204)
async def merge_session(user_id: Id, body: MergeBody, service: ServiceDependency) -> Response:
    """Make what an anonymous session did the user's, as after a login; the log has it as an event `merge`."""
    event = Event(
        event_id=f"merge-{new_request_id()}", type=MERGE, user_id=user_id, session_id=body.session_id
    )
    await asyncio.wrap_future(service.writer.write([event]))
    return Response(status_code=204)


async def _put(service: Service, user_id: str, columns: Mapping[str, Any], merge: bool) -> Response:
    models = [service.hub.active(name) for name in service.hub.names()]
    kept, unread = await service.call(put_profile, service.store, models, user_id, columns, merge)
    return json_response({"user_id": user_id, "properties": kept, "unread": unread})
