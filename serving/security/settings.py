"""Settings of who may call the service, and how much."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import Field

from easyrec.config.base import StrictModel
from easyrec.errors import ConfigError, Problem

Origin = Annotated[str, Field(pattern=r"^(\*|https?://[^/*]+)$")]


class SecuritySettings(StrictModel):
    """Who may call the service, and how much."""

    keys: Path | None = None
    """File of API keys, made by `easyrec keys create`. Without one, this machine alone may call, and do all."""
    open: bool = False
    """Take all comers without keys, because a gateway in front of the service checks who calls."""
    open_metrics: bool = False
    """Answer `/metrics` without a key."""
    origins: tuple[Origin, ...] = ()
    """Origins of web pages whose scripts may call the service (CORS), such as `https://shop.example`."""
    requests_per_second: float | None = Field(None, gt=0)
    """Most requests a second of one key, or of one address where there are no keys, in each process. A key may have a
    rate of its own."""
    burst: int = Field(20, ge=1)
    """Requests that may come at once before the rate counts."""
    concurrent: int = Field(256, ge=1)
    """Requests that one process works on at once."""
    body_kib: int = Field(4096, ge=1)
    """Largest body of a request, in KiB."""
    body_seconds: float = Field(30.0, gt=0)
    """How long a body may take to arrive, in seconds."""
    depth: int = Field(32, ge=1, le=200)
    """How deep lists and objects of a body may be nested."""
    values: int = Field(100_000, ge=1)
    """Most values in a body, those in nested lists and objects included."""


def check_address(host: str, settings: SecuritySettings) -> None:
    """Refuses to serve everybody by accident.

    Args:
        host: Address to listen on.
        settings: Who may call.

    Raises:
        ConfigError: The address can be reached from other machines, and there are no keys.
    """
    if settings.keys is not None or settings.open or is_loopback(host):
        return
    raise ConfigError(
        [
            Problem(
                "security.keys",
                f"the address {host!r} can be reached from other machines, and without API keys everybody there could "
                "read and change everything. Make a key with `easyrec keys create NAME --file keys.yaml` and set "
                "security.keys (EASYREC_SECURITY__KEYS) to the file; or listen on 127.0.0.1; or, if a gateway in front "
                "checks who calls, set security.open to true",
            )
        ]
    )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
