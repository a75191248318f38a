"""The families of stages, how each is configured, and the one method each has.

A package of a user adds a member as any other part is added (docs/how_to/write_a_plugin.md):

    class ShelfConfig(SourceConfig):
        '''The items of the user's favourite shelf.'''
        type: Literal["shelf"] = "shelf"

    class Shelf:
        def __init__(self, config, resources): ...
        def find(self, query): return Found(rows, scores)

    SOURCES.register("shelf", ShelfConfig, Shelf)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from easyrec.config.base import TypedConfig
from easyrec.registry import Registry
from serving.funnel.candidates import Candidates, Found, Mask, Rows
from serving.funnel.items import NewItems, Tables
from serving.funnel.query import Query
from serving.funnel.trends import Trends


class SourceConfig(TypedConfig):
    """Options that every candidate source has."""

    n: int = Field(100, ge=1, le=10_000)
    """Quota: at most this many candidates."""
    weight: float = Field(1.0, ge=0)
    """How much its ranks count when sources are merged by rank."""
    deadline_ms: float = Field(100.0, gt=0)
    """Its answer is not waited for any longer, in milliseconds."""
    enabled: bool = True
    """Whether it runs."""


class FilterConfig(TypedConfig):
    """Options that every filter has."""

    soft: bool = False
    """Let dropped items back in when fewer than `n` would be left."""
    enabled: bool = True
    """Whether it runs."""


class RerankerConfig(TypedConfig):
    """Options that every re-ranker has."""

    enabled: bool = True
    """Whether it runs."""


@dataclass(frozen=True)
class Resources:
    """What stages share with the rest of the service.

    Attributes:
        tables: What is derived from each bundle, such as its items by popularity.
        trends: What is taken right now.
        new_items: Items put through the API.
    """

    tables: Tables
    trends: Trends
    new_items: NewItems


class Source(Protocol):
    """Finds candidates.

    A class whose `remote` is True, or that says nothing of it, may wait for something: it runs beside the other
    sources, in a thread of its own, and is given up on after its deadline. Those that only read memory say False.
    """

    def find(self, query: Query) -> Found:
        """Candidates for a request, best first; items that it cannot place are -1."""


class Filter(Protocol):
    """Drops candidates."""

    def keep(self, query: Query, rows: Rows) -> Mask:
        """[M] which of the candidates at `rows` [M] may be recommended."""


class Reranker(Protocol):
    """Orders what is ranked anew."""

    def rerank(self, query: Query, ranked: Candidates) -> Candidates:
        """Some or all of the candidates in another order; only the first `query.n` are returned to the caller."""


SOURCES: Registry[SourceConfig] = Registry("source", SourceConfig)
FILTERS: Registry[FilterConfig] = Registry("filter", FilterConfig)
RERANKERS: Registry[RerankerConfig] = Registry("reranker", RerankerConfig)
