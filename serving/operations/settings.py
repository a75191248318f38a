"""Settings of logs, metrics and traces."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from easyrec.config.base import StrictModel


class OperationSettings(StrictModel):
    """How the service is watched."""

    log_format: Literal["auto", "json", "text"] = "auto"
    """`json` writes an object a line, `text` a line to read; `auto` is text on a terminal and JSON elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Messages below it are left out."""
    log_requests: bool = True
    """Write a line for each request, but those of `/health` and `/metrics`."""
    drift_every: int = Field(10, ge=0)
    """The features of every so many-th request are compared with the training data; 0 compares none."""
    tracing: bool = False
    """Hand spans to OpenTelemetry, which must be installed; where they go is set by its own variables `OTEL_...`."""
    grace_seconds: int = Field(30, ge=1)
    """How long requests under way may take to end when the service is told to stop."""
