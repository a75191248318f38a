"""Where experiments join: who gets which variant, and what a variant changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Subject:
    """What an assignment may depend on.

    Attributes:
        request_id: Of the request.
        scene: Name of the scene.
        user_id: Key of the user, or None for somebody anonymous.
        session_id: The visit, or None.
        context: Raw columns of the request.
    """

    request_id: str
    scene: str
    user_id: str | None = None
    session_id: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Exposure:
    """That a request was answered under a variant."""

    layer: str
    experiment: str
    variant: str


@dataclass(frozen=True)
class Assignment:
    """What experiments do to one request.

    Attributes:
        overrides: Parameters of the scene, by dotted path, such as `{"sources.towers.n": 300}`.
        exposures: The variants, for the answer and the log.
        beside: Parameters of a second funnel whose list is interleaved with the first one's; None for one list.
        detail: What the assigner wants to find again on the answer.
    """

    overrides: Mapping[str, Any] = field(default_factory=dict)
    exposures: Sequence[Exposure] = ()
    beside: Mapping[str, Any] | None = None
    detail: Any = None


class Assigner(Protocol):
    """Assigns requests to variants."""

    def assign(self, subject: Subject) -> Assignment:
        """The variants for a request."""


class NoExperiments:
    """Assigns nothing."""

    def assign(self, subject: Subject) -> Assignment:
        """See `Assigner.assign`."""
        return Assignment()
