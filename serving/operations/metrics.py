"""Prometheus metrics: requests, stages of the funnel, what the answers are like.

Nothing here is global: each application has its own registry. With several worker processes the numbers of all are
added up through files in the folder that `PROMETHEUS_MULTIPROC_DIR` names; `easyrec serve` sets it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from serving.funnel.trace import Trace

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
COUNTS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
SCORES = (-10.0, -1.0, 0.0, *(round(0.05 * step, 2) for step in range(1, 20)), 1.0, 2.0, 5.0, 10.0, 100.0)

EVENTS = ("accepted", "duplicates", "failed")
"""What can become of an event."""

_CREATED = re.compile(rb"^(# (HELP|TYPE) )?easyrec_\w+_created\b.*\n", re.MULTILINE)
"""When each series began: as many lines again, which Prometheus does not need."""


class Answered(Protocol):
    """What metrics read of an answer: `serving.recommender.Answer`."""

    payload: dict[str, Any]
    trace: Trace
    query: Any


@dataclass(frozen=True)
class HttpRequest:
    """One HTTP request that was answered.

    Attributes:
        method: HTTP method.
        route: Path with names in place of keys, such as `/v1/items/{item_id}`.
        status: HTTP status.
        seconds: From its arrival to the end of the answer.
    """

    method: str
    route: str
    status: int
    seconds: float


class Metrics:
    """All metrics of one application.

    Args:
        collectors: Further numbers, asked for whenever metrics are read.
    """

    def __init__(self, collectors: Iterable[Collector] = ()) -> None:
        self._collectors = list(collectors)
        self._registry = CollectorRegistry()
        self._known: dict[tuple[object, ...], Any] = {}
        self._requests = self._counter("requests", "HTTP requests.", "method", "route", "status")
        self._request_seconds = self._histogram(
            "request_seconds", "Time to answer an HTTP request.", SECONDS, "route"
        )
        self._answers = self._counter("answers", "Lists of items returned.", "scene")
        self._answer_seconds = self._histogram(
            "answer_seconds", "Time to make a list of items.", SECONDS, "scene"
        )
        self._stage_seconds = self._histogram(
            "stage_seconds", "Time of a stage of the funnel.", SECONDS, "scene", "stage", "name"
        )
        self._stage_problems = self._counter(
            "stage_problems", "Stages that failed or had no time left.", "scene", "stage", "name"
        )
        self._found = self._histogram(
            "source_candidates", "Candidates that a source found.", COUNTS, "scene", "source"
        )
        self._dropped = self._counter(
            "dropped_candidates", "Candidates that a stage dropped.", "scene", "stage", "name"
        )
        self._returned = self._counter("returned_items", "Items returned, by source.", "scene", "source")
        self._empty = self._counter("empty_answers", "Lists without an item.", "scene")
        self._short = self._counter("short_answers", "Lists with fewer items than asked for.", "scene")
        self._degraded = self._counter(
            "degraded_answers", "Lists made without a part of the funnel.", "scene", "part"
        )
        self._fallback = self._counter(
            "fallback_answers", "Lists that a fallback filled.", "scene", "fallback"
        )
        self._exposures = self._counter(
            "exposures", "Lists made under a variant of an experiment.", "layer", "experiment", "variant"
        )
        self._scores = self._histogram(
            "scores", "Scores of the items returned.", SCORES, "scene", "model", "version"
        )

        self._events = self._counter("events", "Events, by what became of them.", "outcome")
        self._lost = self._counter("impressions_lost", "Impressions that could not be written.")
        for outcome in EVENTS:  # so that they are 0 and not missing until there is one
            self._of(self._events, outcome)

    def observe_events(self, name: str, number: int) -> None:
        """Counts what the writer of events has done; `name` is that in its state."""
        if name in EVENTS:
            self._of(self._events, name).inc(number)
        elif name == "notes_lost":
            self._lost.inc(number)

    def observe_request(self, request: HttpRequest) -> None:
        """Counts an HTTP request."""
        self._of(self._requests, request.method, request.route, str(request.status)).inc()
        self._of(self._request_seconds, request.route).observe(request.seconds)

    def observe_answer(self, answer: Answered) -> None:
        """Reads the trace of a list that was made."""
        trace, payload = answer.trace, answer.payload
        scene, items = trace.scene, payload["items"]
        self._of(self._answers, scene).inc()
        self._of(self._answer_seconds, scene).observe(payload["took_ms"] / 1000)
        self._observe_stages(trace)
        for part in trace.degraded:
            self._of(self._degraded, scene, part).inc()
        if trace.fallback is not None:
            self._of(self._fallback, scene, trace.fallback).inc()
        for one in payload["experiments"]:
            self._of(self._exposures, one["layer"], one["experiment"], one["variant"]).inc()
        if not items:
            self._of(self._empty, scene).inc()
        if answer.query.wanted is None and len(items) < answer.query.n:
            self._of(self._short, scene).inc()
        self._observe_items(scene, payload["model"], items)

    def text(self) -> bytes:
        """All numbers in Prometheus' text format."""
        registry = self._registry
        if os.environ.get(MULTIPROCESS):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        parts = [generate_latest(registry)]
        if self._collectors:
            asked = CollectorRegistry()
            for collector in self._collectors:
                asked.register(collector)
            parts.append(generate_latest(asked))
        return _CREATED.sub(b"", b"".join(parts))

    def _observe_stages(self, trace: Trace) -> None:
        scene = trace.scene
        for stage in trace.stages:
            self._of(self._stage_seconds, scene, stage.kind, stage.name).observe(stage.milliseconds / 1000)
            if stage.problem is not None:
                self._of(self._stage_problems, scene, stage.kind, stage.name).inc()
            if stage.kind in ("source", "fallback"):
                self._of(self._found, scene, stage.name).observe(stage.returned)
            elif len(stage.dropped):
                self._of(self._dropped, scene, stage.kind, stage.name).inc(len(stage.dropped))

    def _observe_items(
        self, scene: str, model: Mapping[str, str], items: Sequence[Mapping[str, Any]]
    ) -> None:
        sources: dict[str, int] = {}
        scores = self._of(self._scores, scene, model["name"], model["version"])
        for item in items:
            score = item["score"]
            if score is not None and math.isfinite(score):
                scores.observe(score)
            for source in item["sources"]:
                sources[source] = sources.get(source, 0) + 1
        for source, count in sources.items():
            self._of(self._returned, scene, source).inc(count)

    def _of(self, metric: Any, *labels: str) -> Any:
        """The child of a metric for some labels; kept, because looking it up takes longer than counting."""
        key = (metric, *labels)
        child = self._known.get(key)
        if child is None:
            child = self._known[key] = metric.labels(*labels)
        return child

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"easyrec_{name}", what, labels, registry=self._registry)

    def _histogram(self, name: str, what: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"easyrec_{name}", what, labels, registry=self._registry, buckets=buckets)


Observer = Callable[[Answered], None]
