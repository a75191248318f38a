"""Starts the service: settings, one process or several, the server that runs it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvicorn

from easyrec.cli.common import messages
from easyrec.errors import ConfigError, EasyRecError
from easyrec.export.layout import find_bundle
from easyrec.export.manifest import read_manifest
from serving.app import create_app
from serving.asgi import RESOLVED, STARTED
from serving.operations.logs import configure_logs
from serving.operations.metrics import MULTIPROCESS
from serving.security.keys import read_keys
from serving.security.settings import check_address
from serving.settings import MEMORY, Settings, load_settings


def launch(scene: Path | None, given: Mapping[str, Any]) -> None:
    """Serves until it is told to stop.

    Args:
        scene: A YAML file of settings.
        given: Settings that win over it.

    Raises:
        ConfigError: A setting is wrong, or none says what to serve.
    """
    if "models" not in given and scene is None and "EASYREC_MODELS" not in os.environ:
        raise ConfigError(
            "say what to serve, such as `easyrec serve runs/films`; `models:` in a file does it, too"
        )
    settings = load_settings(scene, given)
    check_address(settings.host, settings.security)
    if settings.security.keys is not None:
        read_keys(settings.security.keys)  # before models are loaded, which takes a while
    _check_free(settings.host, settings.port)
    configure_logs(settings.operations)
    console = messages()
    console.print(f"loading {', '.join(map(str, settings.models))} ...", markup=False)
    if settings.workers > 1:
        _serve_many(settings)
        return
    app = create_app(settings)
    service = app.state.service
    served = ", ".join(f"{name} {service.hub.active(name).version}" for name in service.hub.names())
    console.print(
        f"serving {served} on http://{settings.host}:{settings.port} (documentation: /docs); "
        f"events and histories in {settings.data}",
        markup=False,
    )
    uvicorn.run(app, **_options(settings))


def _check_free(host: str, port: int) -> None:
    """Tries to listen, before models are loaded.

    Raises:
        ConfigError: Something else listens there, or this machine has no such address.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        raise ConfigError(
            f"the service cannot listen on {host}:{port}: {error.strerror or error}; choose another --port or --host"
        ) from error


def _serve_many(settings: Settings) -> None:
    """Several processes, each with the models of its own; the store and the event log are shared."""
    if settings.store == MEMORY:
        raise ConfigError(
            "store: memory is known to one process only; use sqlite or Redis with several workers"
        )
    for path in settings.models:  # mistakes that show at once are told here, and not by each worker
        read_manifest(find_bundle(path))
    os.environ[RESOLVED] = settings.model_dump_json()
    with tempfile.TemporaryDirectory(prefix="easyrec-metrics-") as folder:
        os.environ.setdefault(MULTIPROCESS, folder)
        started = Path(folder) / "started"
        os.environ[STARTED] = str(started)
        uvicorn.run("serving.asgi:create", factory=True, workers=settings.workers, **_options(settings))
        if not started.exists():
            raise EasyRecError("no worker could start; each has said above why")


def _options(settings: Settings) -> dict[str, Any]:
    return {
        "host": settings.host,
        "port": settings.port,
        "log_config": None,
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": settings.operations.grace_seconds,
    }
