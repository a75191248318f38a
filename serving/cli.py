"""Serve recommendations from bundles over REST."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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
    # Before NumPy is loaded: a request is one thread's work, and threads of a library that wait for each other cost the
    # other requests more than they save this one.
    for name in _THREADS:
        os.environ.setdefault(name, "1")
    from serving.launch import launch

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
    launch(scene, {name: value for name, value in given.items() if value is not None})
