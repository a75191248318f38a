"""Fixtures of the service: a real Redis, and the whole application over a model whose scores are known."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import serving.service
from serving.app import create_app
from serving.settings import load_settings
from tests.serving.client import Client
from tests.serving.world import KnownModel


@dataclass
class RedisServer:
    """A Redis server that tests may end and start again.

    Attributes:
        folder: Where it keeps its data.
        port: Where it listens.
    """

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                "redis-server",
                "--port",
                str(self.port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                str(self.folder),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError("redis-server does not answer")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="session")
def start_redis(tmp_path_factory) -> Iterator[Callable[[], RedisServer]]:
    """Starts real Redis servers on free ports; skips where `redis-server` or the client is not installed."""
    pytest.importorskip("redis", reason="the client comes with the extra `redis`")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    servers = []

    def start() -> RedisServer:
        server = RedisServer(tmp_path_factory.mktemp("redis"), free_port())
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def redis_server(start_redis) -> RedisServer:
    """A Redis server that all tests share; they must use keys of their own."""
    return start_redis()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Client]]:
    """Starts applications with settings of their own; models are named by their folders."""

    def load(path: Path, **_: Any) -> KnownModel:
        name, _, version = path.name.partition("@")
        return KnownModel(tmp_path / path.name, name, version or "1", vectors=name == "towers")

    monkeypatch.setattr(serving.service, "load_served_model", load)
    monkeypatch.setattr(serving.service, "find_bundle", lambda path: path)
    with ExitStack() as stack:

        def start(**settings: Any) -> Client:
            given = {"models": ["films"], "data": str(tmp_path / "data"), **settings}
            return stack.enter_context(Client(create_app(load_settings(given=given, environment={}))))

        yield start


@pytest.fixture
def client(start: Callable[..., Client]) -> Client:
    """An application with default settings."""
    return start()
