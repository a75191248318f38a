"""What can go wrong between an application and the service.

ServiceError(EasyRecError)
├── NoAnswerError            no connection, or none in time
├── UnexpectedAnswerError    something answered, but not the service
└── ProblemError             the service said no; it has the status and the problem document
    ├── InvalidRequestError  400, 413, 415, 422: the request must be changed
    ├── NotAllowedError      401, 403: the API key is missing, unknown, or lacks a scope
    ├── NotFoundError        404
    ├── TooManyRequestsError 429
    └── UnavailableError     500 and above
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easyrec.errors import EasyRecError


class ServiceError(EasyRecError):
    """Root of all errors of the client."""


class NoAnswerError(ServiceError):
    """The service could not be reached, or did not answer in time.

    Attributes:
        reached: Whether the request may have arrived. If not, it has changed nothing.
    """

    def __init__(self, message: str, reached: bool) -> None:
        super().__init__(message)
        self.reached = reached


class UnexpectedAnswerError(ServiceError):
    """What answered is not the service, or one of another version."""


class ProblemError(ServiceError):
    """The service refused a request, or failed.

    Attributes:
        status: HTTP status.
        problem: The problem document (RFC 9457); empty when the answer held none.
        request_id: Of the request, as it stands in the service's log.
        retry_after: Seconds after which the service wants to be asked again, or None.
    """

    def __init__(
        self,
        message: str,
        status: int,
        problem: Mapping[str, Any],
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = dict(problem)
        self.request_id = request_id
        self.retry_after = retry_after


class InvalidRequestError(ProblemError):
    """The request must be changed."""


class NotAllowedError(ProblemError):
    """The API key is missing, unknown, or lacks a scope."""


class NotFoundError(ProblemError):
    """There is no such thing."""


class TooManyRequestsError(ProblemError):
    """A limit of the service is reached."""


class UnavailableError(ProblemError):
    """The service failed, or is not ready."""


def problem_class(status: int) -> type[ProblemError]:
    """The class for a status."""
    named = {401: NotAllowedError, 403: NotAllowedError, 404: NotFoundError, 429: TooManyRequestsError}
    if status in named:
        return named[status]
    return UnavailableError if status >= 500 else InvalidRequestError
