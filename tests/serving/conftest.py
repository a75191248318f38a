"""Fixtures of the service: a real Redis, and tiny bundles with random weights."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


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
