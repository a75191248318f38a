"""Experiments over HTTP: what is live, what a unit gets and why, and reading the file again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from evaluation.abtest.errors import ExperimentConfigError
from serving.api.dependencies import json_response
from serving.api.problems import ProblemError, documented
from serving.assignment import Subject
from serving.experiments.counts import split_p
from serving.experiments.exposing import Exposures
from serving.experiments.live import Decided, LiveExperiments, Snapshot

router = APIRouter(prefix="/v1/experiments", tags=["experiments"], responses=documented(404, 422))

Id = Annotated[str | None, Query(min_length=1, max_length=256)]


def _live(request: Request) -> LiveExperiments:
    live = getattr(request.app.state, "experiments", None)
    if not isinstance(live, LiveExperiments):
        raise ProblemError(
            404, "the service runs without experiments; name their file in the setting `experiments`"
        )
    return live


Live = Annotated[LiveExperiments, Depends(_live)]


@router.get("")
async def experiments(request: Request, live: Live) -> Response:
    """What is live, with counts of this process since it began."""
    snapshot = live.snapshot
    exposures: Exposures = request.app.state.exposures
    return json_response(
        {
            "config": snapshot.config.hash,
            "age_seconds": round(request.app.state.service.clock() - snapshot.loaded, 3),
            "refused": [str(problem) for problem in live.problems],
            "holdout_percent": snapshot.config.holdout.percent if snapshot.config.holdout else 0,
            "exposures": {
                "written": exposures.log.written,
                "dropped": exposures.log.dropped,
                "last_error": exposures.log.last_error or None,
            },
            "experiments": [_described(snapshot, name) for name in snapshot.config.experiments],
        }
    )


def _described(snapshot: Snapshot, name: str) -> dict[str, Any]:
    one, counts = snapshot.config.experiments[name], snapshot.counts[name]
    weights = {key: variant.weight for key, variant in one.variants.items()}
    return {
        "experiment": name,
        "layer": one.layer,
        "status": one.status,
        "phase": one.phase,
        "hypothesis": one.hypothesis,
        "interleave": one.interleave,
        "scenes": sorted(snapshot.scenes.get(name, ())),
        "share": sum(end - start for start, end in snapshot.config.segments_of(name)) / 10_000,
        "variants": [
            {
                "variant": key,
                "weight": weights[key],
                "control": key == one.control,
                "overrides": one.variants[key].overrides,
                "units": counts.units.get(key, 0),
                "requests": counts.requests.get(key, 0),
            }
            for key in one.variants
        ],
        "split_p": None if one.interleave else split_p(counts.units, weights),
    }


@router.get("/assignment")
async def assignment(
    request: Request,
    live: Live,
    user_id: Id = None,
    session_id: Id = None,
    scene: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Which variant a unit gets in every layer, and why; further query parameters are attributes. Logs nothing."""
    service = request.app.state.service
    known = {"user_id", "session_id", "scene"}
    context = {name: value for name, value in request.query_params.items() if name not in known}
    name = service.scenes.default if scene is None else scene
    if name not in service.scenes.names:
        raise ProblemError(422, f"there is no scene {name!r}")
    found = live.assign(Subject("", name, user_id, session_id, context))
    decided: Decided = found.detail
    units = {"user_id": user_id, "session_id": session_id, "visitor": user_id or session_id, **context}
    decision = decided.snapshot.assigner.assign(units, decided.attributes, service.clock())
    return json_response(
        {
            "config": decided.snapshot.config.hash,
            "scene": name,
            "holdout": decision.holdout,
            "parameters": found.overrides,
            "assignments": [
                {
                    **{
                        key: getattr(one, key)
                        for key in ("layer", "experiment", "phase", "variant", "reason")
                    },
                    "bucket": one.bucket if one.bucket >= 0 else None,
                    "unit_type": one.unit_type,
                    "served_here": one in decided.chosen,
                }
                for one in decision.assignments
            ],
        }
    )


@router.post("/reload")
async def reload(request: Request, live: Live) -> Response:
    """Read the file again; a refused file leaves what was live."""
    try:
        snapshot = await request.app.state.service.call(live.reload)
    except ExperimentConfigError as error:
        raise ProblemError(
            422,
            "the file is refused and the experiments stay as they were",
            errors=[{"path": one.path, "message": str(one)} for one in error.problems],
        ) from error
    return json_response({"config": snapshot.config.hash})
