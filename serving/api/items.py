"""Items: put, changed, withdrawn."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from serving.api.dependencies import ServiceDependency, json_response
from serving.api.problems import ProblemError, documented
from serving.api.schemas import ItemReply, PatchItem, PutItem

router = APIRouter(prefix="/v1/items", tags=["items"], responses=documented(422, 503))

Id = Annotated[str, Path(min_length=1, max_length=256)]


@router.get("/{item_id:key}", response_model=ItemReply, responses=documented(404))
async def get_item(item_id: Id, service: ServiceDependency) -> Response:
    """An item as it is now."""
    found = await service.call(service.items.describe, item_id)
    if found is None:
        raise _unknown(item_id)
    return json_response({"item_id": item_id, "properties": found[0], "available": found[1]})


@router.put("/{item_id:key}", response_model=ItemReply)
async def put_item(item_id: Id, body: PutItem, service: ServiceDependency) -> Response:
    """Put an item, new or not; it can be recommended at once."""
    change = await service.call(service.items.put, item_id, body.properties, body.available)
    return json_response({"item_id": item_id, "properties": change.columns, "available": change.available})


@router.patch("/{item_id:key}", response_model=ItemReply, responses=documented(404))
async def patch_item(item_id: Id, body: PatchItem, service: ServiceDependency) -> Response:
    """Change some columns of an item, or its availability."""
    change = await service.call(service.items.patch, item_id, body.properties, body.available)
    if change is None:
        raise _unknown(item_id)
    return json_response({"item_id": item_id, "properties": change.columns, "available": change.available})


@router.delete("/{item_id:key}", status_code=204, responses=documented(404))
async def delete_item(item_id: Id, service: ServiceDependency) -> Response:
    """Withdraw an item; it is not recommended any more, also from pages that are being computed."""
    if not await service.call(service.items.delete, item_id):
        raise _unknown(item_id)
    return Response(status_code=204)


def _unknown(item_id: str) -> ProblemError:
    return ProblemError(404, f"there is no item {item_id!r}")
