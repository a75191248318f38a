"""Recommendations, rankings, similar and popular items."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from serving.api.dependencies import CallerDependency, ServiceDependency, json_response
from serving.api.problems import ProblemError, documented
from serving.api.schemas import RankBody, Ranking, Recommendations, RecommendBody
from serving.events.event import Key
from serving.recommender import Request
from serving.security.keys import Caller
from serving.service import Service

router = APIRouter(prefix="/v1", tags=["recommend"], responses=documented(422, 503))

N = Annotated[int | None, Query(ge=1, le=1000, description="How many items.")]
User = Annotated[
    str | None, Query(max_length=256, min_length=1, description="Leave out what this user has met.")
]
Scene = Annotated[str | None, Query(max_length=128, description="Name of the scene.")]
Debug = Annotated[bool, Query(description="Explain the answer.")]
Properties = Annotated[bool | None, Query(description="Return the columns of the item table.")]
Id = Annotated[str, Path(min_length=1, max_length=256)]


@router.post("/recommend", response_model=Recommendations)
async def recommend(body: RecommendBody, service: ServiceDependency, caller: CallerDependency) -> Response:
    """Recommend items to a user, a session, or anybody."""
    _check_debug(caller, body.debug)
    _check(service, body.n, item_ids=body.item_ids, exclude_ids=body.exclude_ids)
    request = Request(**_fields(body), n=body.n, item_ids=body.item_ids, exclude_ids=body.exclude_ids)
    return json_response((await service.answer(request)).payload)


@router.get("/recommend/{user_id:key}", response_model=Recommendations)
async def recommend_to(
    user_id: Id,
    service: ServiceDependency,
    caller: CallerDependency,
    n: N = None,
    scene: Scene = None,
    debug: Debug = False,
    properties: Properties = None,
) -> Response:
    """Recommend items to a user."""
    _check_debug(caller, debug)
    _check(service, n)
    request = Request(user_id=user_id, n=n, scene=scene, debug=debug, properties=properties)
    return json_response((await service.answer(request)).payload)


@router.post("/rank", response_model=Ranking)
async def rank(body: RankBody, service: ServiceDependency, caller: CallerDependency) -> Response:
    """Order given items for a person; nothing but unknown and unavailable items is left out."""
    _check_debug(caller, body.debug)
    _check(service, None, item_ids=body.item_ids)
    request = Request(kind="rank", **_fields(body), item_ids=body.item_ids)
    return json_response((await service.answer(request)).payload)


@router.get("/items/{item_id:key}/similar", response_model=Recommendations, responses=documented(404))
async def similar(
    item_id: Id,
    service: ServiceDependency,
    caller: CallerDependency,
    n: N = None,
    user_id: User = None,
    debug: Debug = False,
    properties: Properties = None,
) -> Response:
    """Items that go with an item: taken by the same users, or alike."""
    _check_debug(caller, debug)
    _check(service, n)
    request = Request(kind="similar", about=item_id, n=n, user_id=user_id, debug=debug, properties=properties)
    return json_response((await service.answer(request)).payload)


@router.get("/popular", response_model=Recommendations)
async def popular(
    service: ServiceDependency,
    caller: CallerDependency,
    n: N = None,
    user_id: User = None,
    debug: Debug = False,
    properties: Properties = None,
) -> Response:
    """What most users took lately."""
    _check_debug(caller, debug)
    _check(service, n)
    request = Request(kind="popular", n=n, user_id=user_id, debug=debug, properties=properties)
    return json_response((await service.answer(request)).payload)


def _fields(body: RecommendBody | RankBody) -> dict[str, Any]:
    names = ("user_id", "session_id", "scene", "context", "request_id", "debug", "properties")
    return {name: getattr(body, name) for name in names}


def _check_debug(caller: Caller, debug: bool) -> None:
    """Explanations show what is inside: they are for those who run the service."""
    if debug and not caller.may("admin"):
        raise ProblemError(403, "debug needs an API key with the scope 'admin'")


def _check(service: Service, n: int | None, **lists: list[Key] | None) -> None:
    """Refuses what exceeds the limits of the settings."""
    limits = service.settings.limits
    if n is not None and n > limits.n:
        raise ProblemError(422, f"n is at most {limits.n} here, got {n}")
    for name, values in lists.items():
        if values is not None and len(values) > limits.items:
            raise ProblemError(422, f"{name} holds at most {limits.items} keys here, got {len(values)}")
