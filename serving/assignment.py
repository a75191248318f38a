"""Where experiments join: who gets which variant, and what a variant changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


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
    """

    overrides: Mapping[str, Any] = field(default_factory=dict)
    exposures: Sequence[Exposure] = ()


class Assigner(Protocol):
    """Assigns requests to variants."""

    def assign(self, unit: str | None, scene: str | None, context: Mapping[str, Any]) -> Assignment:
        """The variants for a user, else a session, in a scene (None: the default one)."""


class NoExperiments:
    """Assigns nothing."""

    def assign(self, unit: str | None, scene: str | None, context: Mapping[str, Any]) -> Assignment:
        """See `Assigner.assign`."""
        return Assignment()
