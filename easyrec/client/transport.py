"""From a call to an HTTP request, and from an HTTP response to an answer or an error; nothing here waits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from easyrec.client.calls import Call
from easyrec.client.errors import (
    NoAnswerError,
    ProblemError,
    ServiceError,
    UnexpectedAnswerError,
    problem_class,
)
from easyrec.client.retries import Retries, may_repeat, retry_after, was_reached
from easyrec.errors import EasyRecError

T = TypeVar("T")

REQUEST_ID = "X-Request-Id"
_HINTS = {
    401: "Give `api_key=`, a key that `easyrec keys create` made for this service.",
    403: "Use a key with the scope that is named, or have one made.",
    429: "Send less at once, or have the limit raised.",
}


@dataclass(frozen=True)
class Options:
    """How a client talks to the service.

    Attributes:
        base_url: Where the service is.
        api_key: Sent as a bearer token, or None; never part of a message or a `repr`.
        timeout: Longest wait for a connection and for each answer, in seconds.
        retries: When to try again.
    """

    base_url: str
    api_key: str | None
    timeout: float
    retries: Retries

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise EasyRecError(f"base_url must begin with http:// or https://, got {self.base_url!r}")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise EasyRecError("api_key holds characters that no key has; was a line feed copied with it?")

    def __repr__(self) -> str:
        return f"{self.base_url!r}, api_key={'given' if self.api_key else None}, timeout={self.timeout}"

    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        headers = {"Accept": "application/json", "User-Agent": f"easyrec-client/{_version()}"}
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers


def request(client: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
    """The HTTP request of a call.

    Raises:
        EasyRecError: The body holds something that JSON has no form for.
    """
    params = {name: value for name, value in call.params.items() if value is not None}
    if call.body is None:
        return client.build_request(call.method, call.path, params=params)
    try:
        content = json.dumps(call.body, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:  # UnicodeEncodeError is a ValueError
        raise EasyRecError(f"{call.method} {call.path} cannot be sent as JSON: {error}") from error
    headers = {"Content-Type": "application/json"}
    return client.build_request(call.method, call.path, params=params, content=content, headers=headers)


def outcome(
    call: Call[T], sent: httpx.Request, result: httpx.Response | httpx.RequestError
) -> T | ServiceError:
    """What a call came to: the answer, or the error to raise."""
    if isinstance(result, httpx.RequestError):
        return _no_answer(sent, result)
    if not result.is_success:
        return _problem(sent, result)
    try:
        return call.read(result.json() if result.content else None)
    except (ValueError, TypeError, KeyError) as error:  # ValidationError and JSONDecodeError are ValueErrors
        reason = (
            f"{error.error_count()} fields do not fit" if isinstance(error, ValidationError) else str(error)
        )
        return UnexpectedAnswerError(
            f"{sent.method} {_place(sent)} answered {result.status_code} with something else than expected: {reason}. "
            "Is this the address of the service, and is it of the same version as this client?"
        )


def wait_before_next(call: Call[Any], failure: ServiceError, attempt: int, retries: Retries) -> float | None:
    """Seconds until a failed call is tried again; None if it is not."""
    if isinstance(failure, NoAnswerError):
        again = call.repeatable or not failure.reached
    elif isinstance(failure, ProblemError):
        again = may_repeat(failure.status, call.repeatable)
    else:
        again = False
    asked = failure.retry_after if isinstance(failure, ProblemError) else None
    return retries.wait(attempt, asked) if again else None


def _no_answer(sent: httpx.Request, error: httpx.RequestError) -> NoAnswerError:
    reached = was_reached(error)
    what = str(error) or type(error).__name__
    advice = (
        "It may have been carried out or not."
        if reached
        else "Is the service running, and is the address right? `easyrec serve RUN` starts one."
    )
    return NoAnswerError(f"{sent.method} {_place(sent)} got no answer: {what}. {advice}", reached)


def _problem(sent: httpx.Request, response: httpx.Response) -> ProblemError:
    status, problem = response.status_code, _document(response)
    text = str(problem.get("detail") or problem.get("title") or response.reason_phrase or "no reason given")
    details = "; ".join(_details(problem))
    request_id = response.headers.get(REQUEST_ID)
    message = f"{sent.method} {_place(sent)} was answered with {status}: {text}"
    message += f" ({details})" if details else ""
    message += f" [request {request_id}]" if request_id else ""
    message += f" {_HINTS[status]}" if status in _HINTS else ""
    after = retry_after(response.headers.get("Retry-After"))
    return problem_class(status)(message, status, problem, request_id, after)


def _document(response: httpx.Response) -> Mapping[str, Any]:
    try:
        document = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _details(problem: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a request that are wrong, as far as the problem document names them."""
    errors = problem.get("errors")
    for error in errors[:5] if isinstance(errors, list) else ():
        yield (
            ": ".join(str(error[key]) for key in ("pointer", "field", "detail", "message") if key in error)
            if isinstance(error, dict)
            else str(error)
        )


def _place(sent: httpx.Request) -> str:
    return str(sent.url.copy_with(query=None))


def _version() -> str:
    try:
        return version("easyrec")
    except PackageNotFoundError:
        return "unknown"
