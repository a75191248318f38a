"""`easyrec serve`: bundles behind a REST API."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn

from easyrec.cli.common import messages
from easyrec.errors import ConfigError
from easyrec.export.layout import find_bundle
from easyrec.export.manifest import read_manifest
from serving.app import create_app
from serving.asgi import RESOLVED
from serving.operations.logs import configure_logs
from serving.operations.metrics import MULTIPROCESS
from serving.security.keys import read_keys
from serving.security.settings import check_address
from serving.settings import MEMORY, Settings, load_settings


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN...", help="Folders of runs or bundles; the first one ranks."),
    ] = None,
    retriever: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A run with a two-tower model that finds candidates."),
    ] = None,
    scene: Annotated[
        Path | None,
        typer.Option(
            "--scene", "--config", metavar="FILE", help="A YAML file with scenes and other settings."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 127.0.0.1 unless given.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 8000 unless given.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of events and histories; serving_data unless given."),
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="sqlite, memory, or the URL of a Redis server; sqlite unless given.")
    ] = None,
    runtime: Annotated[
        str | None, typer.Option(help="auto, tensorflow or litert; auto unless given.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; 1 unless given.")] = None,
) -> None:
    """Serve recommendations from one or several bundles over REST.

    The API is documented at /docs. Ctrl-C ends the service after the requests under way.
    """
    if not runs and scene is None and "EASYREC_MODELS" not in os.environ:
        raise ConfigError(
            "say what to serve, such as `easyrec serve runs/films`; `models:` in a file does it, too"
        )
    models = [*(runs or ()), *([retriever] if retriever is not None else ())]
    given: dict[str, Any] = {
        "models": [str(path) for path in models] or None,
        "host": host,
        "port": port,
        "data": None if data is None else str(data),
        "store": store,
        "runtime": runtime,
        "workers": workers,
    }
    settings = load_settings(scene, {name: value for name, value in given.items() if value is not None})
    check_address(settings.host, settings.security)
    if settings.security.keys is not None:
        read_keys(settings.security.keys)  # before models are loaded, which takes a while
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
        uvicorn.run("serving.asgi:create", factory=True, workers=settings.workers, **_options(settings))


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
