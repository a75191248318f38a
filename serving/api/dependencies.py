"""What routes share."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request, Response
from pydantic_core import to_json
from starlette.convertors import Convertor, register_url_convertor

from serving.security.keys import ANYBODY, Caller
from serving.service import Service


class KeyConvertor(Convertor[str]):
    """`{item_id:key}` in a path: any text, slashes and line feeds included, for addresses are keys too."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        """The key."""
        return value

    def to_string(self, value: str) -> str:
        """The key as it stands in a path."""
        return value


register_url_convertor("key", KeyConvertor())  # routes are compiled when their modules are imported


# Coroutines, although they wait for nothing: FastAPI runs other functions on a thread.


async def service_of(request: Request) -> Service:
    """The service of the application that a request came to."""
    service: Service = request.app.state.service
    return service


ServiceDependency = Annotated[Service, Depends(service_of)]


async def caller_of(request: Request) -> Caller:
    """Who sends a request."""
    caller: Caller = getattr(request.state, "caller", ANYBODY)
    return caller


CallerDependency = Annotated[Caller, Depends(caller_of)]


def json_response(payload: Any, status: int = 200) -> Response:
    """A body of plain values, written without checking them against the documented form again."""
    return Response(
        to_json(payload, inf_nan_mode="null", bytes_mode="base64", fallback=str),
        status,
        media_type="application/json",
    )
