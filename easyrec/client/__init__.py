"""A client for the service that `easyrec serve` starts; it needs httpx and pydantic, and no TensorFlow.

from easyrec.client import Client

with Client("http://localhost:8000", api_key=key) as client:
    for item in client.recommend(42, n=10).items:
        ...
"""

from easyrec.client.answers import (
    Assignment,
    Event,
    EventsAnswer,
    ItemState,
    LoadedVersion,
    ModelVersion,
    Recommendations,
    RecommendedItem,
    RejectedEvent,
    UserState,
)
from easyrec.client.asynchronous import AsyncClient
from easyrec.client.blocking import Client
from easyrec.client.errors import (
    InvalidRequestError,
    NoAnswerError,
    NotAllowedError,
    NotFoundError,
    ProblemError,
    ServiceError,
    TooManyRequestsError,
    UnavailableError,
    UnexpectedAnswerError,
)
from easyrec.client.retries import Retries

__all__ = [
    "Assignment",
    "AsyncClient",
    "Client",
    "Event",
    "EventsAnswer",
    "InvalidRequestError",
    "ItemState",
    "LoadedVersion",
    "ModelVersion",
    "NoAnswerError",
    "NotAllowedError",
    "NotFoundError",
    "ProblemError",
    "Recommendations",
    "RecommendedItem",
    "RejectedEvent",
    "Retries",
    "ServiceError",
    "TooManyRequestsError",
    "UnavailableError",
    "UnexpectedAnswerError",
    "UserState",
]
