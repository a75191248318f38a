"""The whole application over the known model of `world`, in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

import serving.service
from serving.app import create_app
from serving.security.keys import KeyEntry, hash_key, write_keys
from serving.settings import load_settings
from tests.serving.world import KnownModel

ROOT = Path(__file__).parents[2]
SERVE = """
import runpy
import serving.service
known = runpy.run_path("tests/serving/world.py")["KnownModel"]
serving.service.load_served_model = lambda path, **options: known(path)
from easyrec.cli.main import main
main()
"""
SCENE = {
    "sources": {
        "together": {"type": "item_to_item", "n": 30},
        "popular": {"type": "popularity", "n": 40},
    },
    "filters": {"seen": {"type": "seen"}},
    "properties": ["title", "genres"],
    "n": 10,
}
KEYS = {"reader": ("read",), "writer": ("write",), "boss": ("admin",)}


def known_keys(folder: Path) -> Path:
    """A file of keys whose names are the keys themselves."""
    path = folder / "keys.yaml"
    write_keys(
        path, [KeyEntry(name=name, scopes=scopes, hash=hash_key(name)) for name, scopes in KEYS.items()]
    )
    return path


def make_app(folder: Path, monkeypatch: Any, **settings: Any) -> FastAPI:
    """The application with one scene, `home`; its settings may be changed."""
    _bundle(folder)
    monkeypatch.setattr(serving.service, "load_served_model", lambda path, **options: KnownModel(path))
    given = {
        "models": [str(folder / "films")],
        "data": str(folder / "data"),
        "scenes": {"home": SCENE},
        "events": {"sync": False, "compact": False},
        **settings,
    }
    return create_app(load_settings(given=given, environment={}))


@contextmanager
def running(app: FastAPI, **headers: str) -> Iterator[httpx.Client]:
    """A client of the application, which listens on a free port of this machine meanwhile."""
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, server_header=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for _ in range(1000):
        if server.started or not thread.is_alive():
            break
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def serving_process(folder: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """`easyrec serve` in a process of its own, its log in `folder / "log"`; killed at the end if it still runs."""
    _bundle(folder)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SERVE,
                "serve",
                str(folder / "films"),
                "--data",
                str(folder / "data"),
                *arguments,
            ],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def _bundle(folder: Path) -> None:
    """What tells a bundle from another folder."""
    (folder / "films").mkdir(exist_ok=True)
    (folder / "films" / "manifest.json").touch()
