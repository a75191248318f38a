"""Spans for OpenTelemetry: one for each list of items, and one below it for each stage of the funnel.

They are made from the trace when the list is done, so they cost nothing where tracing is off. The package
`opentelemetry-api` alone hands them to nobody; an SDK, set up by `opentelemetry-instrument` or by your own code, does.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from easyrec.errors import ConfigError, Problem
from serving.operations.metrics import Answered

_NANOSECONDS = 1_000_000


def open_tracer() -> Any:
    """The tracer of OpenTelemetry.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    try:
        trace = importlib.import_module("opentelemetry.trace")
    except ImportError as error:
        raise ConfigError(
            [
                Problem(
                    "operations.tracing",
                    "tracing needs OpenTelemetry, which is not installed: pip install 'easyrec[tracing]'",
                )
            ]
        ) from error
    return trace.get_tracer("easyrec.serving")


class SpanWriter:
    """Makes spans of answers.

    Args:
        tracer: An OpenTelemetry tracer.
        clock: Nanoseconds since 1970.
    """

    def __init__(self, tracer: Any, clock: Callable[[], int] = time.time_ns) -> None:
        self._tracer = tracer
        self._clock = clock
        self._within = importlib.import_module("opentelemetry.trace").set_span_in_context

    def __call__(self, answer: Answered) -> None:
        """Makes the spans of one answer, the end of each where its stage ended."""
        trace, payload = answer.trace, answer.payload
        now, since = self._clock(), time.perf_counter()
        ends = [now - int((since - stage.ended) * 1e9) if stage.ended else now for stage in trace.stages]
        begins = [
            end - int(stage.milliseconds * _NANOSECONDS)
            for end, stage in zip(ends, trace.stages, strict=True)
        ]
        attributes = {
            "easyrec.request_id": trace.request_id,
            "easyrec.scene": trace.scene,
            "easyrec.model": f"{payload['model']['name']} {payload['model']['version']}",
            "easyrec.items": len(payload["items"]),
            "easyrec.degraded": list(trace.degraded),
        }
        begun = min([now - int(payload["took_ms"] * _NANOSECONDS), *begins])
        whole = self._tracer.start_span("recommend", start_time=begun, attributes=attributes)
        within = self._within(whole)
        for stage, begin, end in zip(trace.stages, begins, ends, strict=True):
            span = self._tracer.start_span(
                f"{stage.kind} {stage.name}",
                context=within,
                start_time=begin,
                attributes={"easyrec.received": stage.received, "easyrec.returned": stage.returned},
            )
            if stage.problem is not None:
                span.add_event("problem", {"message": stage.problem}, timestamp=end)
            span.end(end_time=end)
        whole.end(end_time=now)
