"""Writes an exposure row for every answer that was made under a variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluation.abtest.exposures import ExposureLog, exposure_row
from evaluation.abtest.pseudonyms import Pseudonyms
from serving.experiments.live import Decided
from serving.funnel.reranking.explore import NOTE
from serving.recommender import Answer


class Exposures:
    """An observer of answers.

    Args:
        log: Where rows go; it never makes a request wait.
        pseudonyms: Names that take the place of ids of persons; None for the ids.
    """

    def __init__(self, log: ExposureLog, pseudonyms: Pseudonyms | None = None) -> None:
        self.log = log
        self._pseudonyms = pseudonyms

    def __call__(self, answer: Answer) -> None:
        """Writes the rows of one answer, and counts its units."""
        decided = answer.assignment.detail
        if not isinstance(decided, Decided) or not decided.chosen:
            return
        payload, trace, snapshot = answer.payload, answer.trace, decided.snapshot
        common = {
            "request_id": trace.request_id,
            "timestamp": answer.query.now,
            "config_hash": snapshot.config.hash,
            "user_id": answer.request.user_id,
            "session_id": answer.request.session_id,
            "scene": trace.scene,
            "model": payload["model"]["name"],
            "model_version": payload["model"]["version"],
            # Its unit stays in its arm (intention to treat), and the analysis sees what it got in its place.
            "fallback": bool(trace.degraded),
            "fallback_reason": ", ".join(trace.degraded) or None,
            "latency_ms": payload["took_ms"],
            "teams": trace.notes.get("teams"),
        }
        if NOTE in trace.notes:
            drawn = trace.notes[NOTE]
            common |= {
                "propensity": drawn["propensity"],
                "explored_item": drawn["item"],
                "explored_position": drawn["position"],
            }
        rows = []
        for one in decided.chosen:
            name = one.experiment or ""
            config = snapshot.config.experiments[name]
            differs = snapshot.differs.get((name, trace.scene), True)
            wanted = {*config.analysis.segments, *_names(config.when)}
            attributes = {key: value for key, value in decided.attributes.items() if key in wanted}
            row = exposure_row(one, **common, could_differ=differs, attributes=attributes)
            rows.append(self._pseudonyms.hide(row) if self._pseudonyms else row)
            if not one.forced:
                snapshot.counts[name].add(one.unit, one.variant or "")
        self.log.write(rows)


def _names(condition: Any) -> set[str]:
    """Attributes that a condition asks for."""
    if isinstance(condition, Mapping):
        found = {str(name) for name in condition}
        return found.union(*(_names(one) for one in condition.values()))
    return set().union(*map(_names, condition)) if isinstance(condition, list) else set()
