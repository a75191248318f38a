"""Puts an application under watch."""

from __future__ import annotations

import asyncio
import logging

from fastapi import APIRouter, FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from serving.operations.access import Access
from serving.operations.drift import DriftMonitor
from serving.operations.metrics import Answered, Metrics, Observer
from serving.operations.settings import OperationSettings
from serving.operations.state import StateCollector
from serving.operations.tracing import SpanWriter, open_tracer
from serving.service import Service

logger = logging.getLogger(__name__)

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    found: Metrics = request.app.state.metrics
    return Response(await asyncio.to_thread(found.text), media_type=CONTENT_TYPE_LATEST)


def install_operations(app: FastAPI, settings: OperationSettings) -> None:
    """Adds request ids, metrics, the log of requests and traces.

    To be called last: what is added after it is neither named nor counted.

    Args:
        app: The application, with `app.state.service`.
        settings: How it is watched.

    Raises:
        ConfigError: Tracing is wanted, and OpenTelemetry is not installed.
    """
    service: Service = app.state.service
    drift = DriftMonitor(settings.drift_every)
    app.state.metrics = Metrics([StateCollector(service), drift])
    service.writer.state.counters.append(app.state.metrics.observe_events)
    observers: list[Observer] = [app.state.metrics.observe_answer, drift.observe]
    if settings.tracing:
        observers.append(SpanWriter(open_tracer()))
    service.recommender.observers += [_harmless(observer) for observer in observers]
    app.include_router(router)
    app.add_middleware(Access, metrics=app.state.metrics, log=settings.log_requests)


def _harmless(observer: Observer) -> Observer:
    def observe(answer: Answered) -> None:
        try:
            observer(answer)
        except Exception:
            logger.exception("an answer could not be observed")

    return observe
