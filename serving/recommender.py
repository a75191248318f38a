"""From a request to an answer: who asks, which funnel, what is written to the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic_core import to_json

from easyrec.errors import ConfigError, EasyRecError
from evaluation.abtest.interleaving import team_draft
from serving.assignment import Assigner, Assignment, Subject
from serving.events.writer import EventWriter
from serving.funnel.candidates import Candidates, Rows
from serving.funnel.funnel import Funnel
from serving.funnel.query import Query, RequestError
from serving.funnel.scenes import POPULAR, SIMILAR, Scenes
from serving.funnel.trace import Trace
from serving.models.hub import ModelHub
from serving.models.served import ServedModel
from serving.operations.request_ids import new_request_id
from serving.people.people import HISTORY_PART, People
from serving.stores.base import Served

logger = logging.getLogger(__name__)

Kind = Literal["recommend", "rank", "similar", "popular"]
_DROPPED_SHOWN = 20
_LOGGED_ITEMS = 500
"""Items of one answer that an impression holds at most."""


class UnknownItemError(EasyRecError):
    """The item that a request is about is not in the catalogue."""


@dataclass(frozen=True)
class Request:
    """What is asked; see the API."""

    kind: Kind = "recommend"
    user_id: str | None = None
    session_id: str | None = None
    scene: str | None = None
    n: int | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    item_ids: Sequence[Any] | None = None
    exclude_ids: Sequence[Any] = ()
    about: str | None = None
    request_id: str | None = None
    debug: bool = False
    properties: bool | Sequence[str] | None = None


@dataclass
class Answer:
    """What is answered.

    Attributes:
        payload: The body, of plain values.
        trace: What happened, for metrics and logs.
        query: The request as the stages saw it.
        ranked: The items returned.
        request: What was asked.
        assignment: What experiments did.
    """

    payload: dict[str, Any]
    trace: Trace
    query: Query
    ranked: Candidates
    request: Request = Request()
    assignment: Assignment = field(default_factory=Assignment)


@dataclass
class Recommender:
    """Answers requests; every method may be called from several threads.

    Attributes:
        hub: The models.
        default_model: Name of the model that ranks unless a scene says otherwise.
        people: Who asks.
        writer: Writes impressions.
        assigner: Says which experiments apply.
        clock: Seconds since 1970.
        impressions: Whether to write what was recommended.
        item_features: Whether to write the columns of recommended items, too.
        observers: Called with every answer, such as by metrics; they must not raise.
    """

    hub: ModelHub
    default_model: str
    scenes: Scenes
    people: People
    writer: EventWriter
    assigner: Assigner
    clock: Callable[[], float] = time.time
    impressions: bool = True
    item_features: bool = False
    observers: list[Callable[[Answer], None]] = field(default_factory=list)

    def answer(self, request: Request) -> Answer:
        """Answers a request.

        Raises:
            RequestError: The request is wrong in itself.
            UnknownItemError: The item it is about is not in the catalogue.
        """
        begun = time.perf_counter()
        trace = Trace(request.request_id or new_request_id(), "")
        assignment, funnel = self._funnel(request, trace)
        query = self._query(request, funnel, trace)
        if request.kind == "rank":
            ranked = funnel.rank(query, Candidates.of_rows(query.wanted_rows))
        else:
            ranked = funnel.recommend(query)
        payload = self._payload(request, funnel, query, ranked, assignment)
        if assignment.beside is not None and request.kind == "recommend":
            self._interleave(request, assignment, payload, query)
        payload["took_ms"] = round((time.perf_counter() - begun) * 1000, 2)
        if request.debug:
            payload["debug"] = explain(query, ranked, [item["item_id"] for item in payload["items"]])
        answer = Answer(payload, trace, query, ranked, request, assignment)
        if request.kind in ("recommend", "rank") and self.impressions:
            self._note(request, answer)
        for observer in self.observers:
            observer(answer)
        return answer

    def _funnel(self, request: Request, trace: Trace) -> tuple[Assignment, Funnel]:
        scene = {"similar": SIMILAR, "popular": POPULAR}.get(request.kind, request.scene)
        subject = Subject(
            trace.request_id,
            self.scenes.default if scene is None else scene,
            request.user_id,
            request.session_id,
            request.context,
        )
        assignment = self.assigner.assign(subject)
        try:
            trace.scene, funnel = self.scenes.funnel(scene, assignment.overrides)
        except ConfigError as error:  # a variant that cannot be built must not take the scene down
            logger.error("%s", error)
            trace.degrade("experiments")
            assignment = Assignment(detail=assignment.detail)
            trace.scene, funnel = self.scenes.funnel(scene)
        return assignment, funnel

    def _interleave(
        self, request: Request, assignment: Assignment, payload: dict[str, Any], query: Query
    ) -> None:
        """Mixes the list with that of a second funnel, and notes which of them brought each item."""
        trace = Trace(query.trace.request_id, query.trace.scene)
        _, funnel = self.scenes.funnel(trace.scene, assignment.beside)
        other = self._query(request, funnel, trace)
        second = self._payload(request, funnel, other, funnel.recommend(other), assignment)["items"]
        found = {item["item_id"]: item for item in [*second, *payload["items"]]}
        mine, theirs = ([item["item_id"] for item in items] for items in (payload["items"], second))
        salt = "/".join(exposure.experiment for exposure in assignment.exposures)
        ids, teams = team_draft(mine, theirs, query.n, salt=salt, request_id=trace.request_id)
        payload["items"] = [{**found[one], "position": place} for place, one in enumerate(ids, 1)]
        query.trace.notes["teams"] = {str(one): team for one, team in zip(ids, teams, strict=True)}
        for part in trace.degraded:
            query.trace.degrade(part)

    def _query(self, request: Request, funnel: Funnel, trace: Trace) -> Query:
        with trace.stage("people", "person") as stage:
            person, failure = self.people.find(request.user_id, request.session_id, request.context)
            stage.returned = len(person.history)
            if failure is not None:
                stage.problem = failure
                trace.degrade(HISTORY_PART)
        models = {name: self.hub.active(name) for name in self.hub.names()}
        model = models[funnel.config.ranking.model or self.default_model]
        n = request.n or (len(request.item_ids or ()) if request.kind == "rank" else 0) or funnel.config.n
        query = Query(
            person,
            n,
            model,
            models,
            trace,
            self.clock(),
            time.monotonic() + funnel.config.deadline_ms / 1000,
        )
        if request.about is not None:
            query.about = query.catalogue.rows([request.about])
            if query.about[0] < 0:
                raise UnknownItemError(f"there is no item {request.about!r}")
        if request.exclude_ids:
            query.excluded = query.catalogue.rows(request.exclude_ids)
        if request.item_ids is not None:
            query.wanted = self._wanted(request.item_ids, query)
        return query

    def _wanted(self, item_ids: Sequence[Any], query: Query) -> Rows:
        """The known and available ones, each once, in the order given; the others are noted."""
        rows = query.catalogue.rows(item_ids)
        usable = (
            (rows >= 0) & query.catalogue.available[np.maximum(rows, 0)]
            if len(query.catalogue)
            else rows >= 0
        )
        query.trace.notes["unknown_ids"] = [
            item_id for item_id, known in zip(item_ids, usable.tolist(), strict=True) if not known
        ]
        rows = rows[usable]
        _, first = np.unique(rows, return_index=True)
        return rows[np.sort(first)]

    def _payload(
        self, request: Request, funnel: Funnel, query: Query, ranked: Candidates, assignment: Assignment
    ) -> dict[str, Any]:
        names = funnel.sources
        ids = query.model.catalogue.ids.take(ranked.rows)
        properties = self._properties(request, funnel, query.model, ranked.rows)
        found_by = {
            mask: [name for bit, name in enumerate(names) if mask >> bit & 1]
            for mask in set(ranked.masks.tolist())
        }
        items: list[dict[str, Any]] = []
        for place, (item_id, score, mask) in enumerate(
            zip(ids, ranked.scores.tolist(), ranked.masks.tolist(), strict=True)
        ):
            item: dict[str, Any] = {
                "item_id": item_id,
                "score": score if score == score else None,
                "position": place + 1,
                "sources": found_by[mask],
            }
            if properties is not None:
                item["properties"] = properties[place]
            items.append(item)
        payload: dict[str, Any] = {
            "request_id": query.trace.request_id,
            "scene": query.trace.scene,
            "model": {"name": query.model.name, "version": query.model.version},
            "experiments": [vars(exposure) for exposure in assignment.exposures],
            "items": items,
            "degraded": query.trace.degraded,
        }
        if request.kind == "rank":
            payload["unknown_ids"] = query.trace.notes.get("unknown_ids", [])
        return payload

    def _properties(
        self, request: Request, funnel: Funnel, model: ServedModel, rows: Rows
    ) -> list[dict[str, Any]] | None:
        wanted = funnel.config.properties if request.properties is None else request.properties
        if not wanted:  # False, or an empty list
            return None
        key = model.catalogue.key
        columns = (
            [name for name in model.catalogue.columns if name != key] if wanted is True else list(wanted)
        )
        try:
            found = model.catalogue.properties(rows, columns)
        except EasyRecError as error:
            raise RequestError(f"properties: {error}") from error
        return found

    def _note(self, request: Request, answer: Answer) -> None:
        """Writes the impression to the log, and what was served to the store where a scene asks for it."""
        now, payload, query = answer.query.now, answer.payload, answer.query
        record = {
            "kind": "impression",
            "received": now,
            "user_id": request.user_id,
            "session_id": request.session_id,
            **{name: payload[name] for name in ("request_id", "scene", "model", "experiments", "degraded")},
            "fallback": answer.trace.fallback,
            "candidates": next((one.received for one in answer.trace.stages if one.kind == "ranking"), 0),
            "fresh_propensity": answer.trace.notes.get("fresh_propensity"),
            "items": self._noted_items(answer),
            "features": query.columns().values,
            "context": query.person.unread(query.columns()),
        }
        line = to_json(record, inf_nan_mode="null", bytes_mode="base64", fallback=str) + b"\n"
        served = None
        if self.scenes.uses_served and (request.user_id is not None or request.session_id is not None):
            keys = [str(item["item_id"]) for item in payload["items"]]
            served = Served(keys, now, request.user_id, request.session_id)
        self.writer.note([line], served)

    def _noted_items(self, answer: Answer) -> list[dict[str, Any]]:
        items = [
            {name: item[name] for name in ("item_id", "score", "position", "sources")}
            for item in answer.payload["items"][:_LOGGED_ITEMS]
        ]
        if self.item_features:
            model, catalogue = answer.query.model, answer.query.catalogue
            columns = [name for name in model.item_columns if name != catalogue.key]
            rows = catalogue.rows(
                [item["item_id"] for item in items]
            )  # of two lists, where they are interleaved
            features = catalogue.properties(np.maximum(rows, 0), columns) if items else []
            items = [
                item | {"features": values if row >= 0 else None}
                for item, row, values in zip(items, rows, features, strict=True)
            ]
        return items


def explain(query: Query, ranked: Candidates, shown: Sequence[Any]) -> dict[str, Any]:
    """What `debug: true` adds: the person, each stage with its time, counts and problem, and what was dropped.

    Args:
        query: The request.
        ranked: What the funnel found.
        shown: Keys of the items in the answer; an interleaved one holds some that only the other funnel found.
    """
    ids = query.model.catalogue.ids
    names: Sequence[str] = query.trace.notes.get("sources", ())
    columns = query.columns()
    places = {item_id: place for place, item_id in enumerate(ids.take(ranked.rows))}
    stages = []
    for stage in query.trace.stages:
        entry: dict[str, Any] = {
            "stage": stage.kind,
            "name": stage.name,
            "ms": round(stage.milliseconds, 3),
            "received": stage.received,
            "returned": stage.returned,
        }
        if len(stage.dropped):
            entry["dropped"] = len(stage.dropped)
            entry["dropped_ids"] = ids.take(stage.dropped[:_DROPPED_SHOWN])
        if stage.problem is not None:
            entry["problem"] = stage.problem
        if stage.notes:
            entry["notes"] = stage.notes
        stages.append(entry)
    return {
        "user": {
            "known": list(columns.known),
            "columns": columns.values,
            "recent": ids.take(query.recent[:_DROPPED_SHOWN]) if len(query.recent) else [],
            "ignored_context": list(columns.ignored),
        },
        "fallback": query.trace.fallback,
        "stages": stages,
        "source_scores": [
            {
                name: float(score)
                for name, score in zip(names, ranked.found[:, places[item_id]], strict=False)
                if score == score
            }
            if item_id in places
            else {}
            for item_id in shown
        ],
    }
