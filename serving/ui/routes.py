"""`/ui`: three static files, and the data they ask for (which need the scope `admin`)."""

from __future__ import annotations

from importlib import resources
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response

from serving.api.dependencies import ServiceDependency, json_response
from serving.api.pages import page_headers
from serving.api.problems import ProblemError
from serving.events.event import Key
from serving.ui import view

STATIC = "static"
FILES = {
    "index.html": "text/html; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
HEADERS = page_headers("script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'")

router = APIRouter(prefix="/ui", include_in_schema=False)

Who = Annotated[str | None, Query(min_length=1, max_length=256)]


def install_page(app: FastAPI) -> None:
    """Adds the page to an application."""
    app.include_router(router)


@router.get("")
async def page() -> Response:
    """The page."""
    return _file("index.html")


@router.get("/{name}")
async def asset(name: str) -> Response:
    """A file that the page needs; only those listed here are ever read."""
    if name not in FILES:
        raise ProblemError(404, "there is no such file")
    return _file(name)


@router.get("/data/setup")
async def setup(request: Request, service: ServiceDependency) -> Response:
    """What there is to choose from."""
    found = await service.call(view.setup, service)
    experiments = getattr(request.app.state, "experiments", None)
    return json_response(found | {"experiments": experiments is not None})


@router.get("/data/person")
async def person(service: ServiceDependency, user_id: Who = None, session_id: Who = None) -> Response:
    """What is known of a person."""
    return json_response(await service.call(view.person, service, user_id, session_id))


@router.post("/data/titles")
async def titles(service: ServiceDependency, body: list[Key]) -> Response:
    """What items are called."""

    def find() -> dict[str, Any]:
        return view.item_titles(view.ranking_model(service), body)

    return json_response(await service.call(find))


def _file(name: str) -> Response:
    content = (resources.files(__package__ or "serving.ui") / STATIC / name).read_bytes()
    return Response(content, headers={**HEADERS, "Content-Type": FILES[name]})
