"""Sends requests at a fixed rate, whatever becomes of the ones before, and says how long each took.

Latency counts from the moment at which a request was due, so that a server that falls behind is seen to (an open
loop). Without a rate, each of a few connections sends its next request when it has its answer: that gives the most a
server can do.

    python benchmarks/serving_load.py --port 8000 --body body.json --path /v1/rank --rate 30 --seconds 20
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

TIMER_SECONDS = 2e-3
"""So long before a request is due it is waited for awake: timers round up to milliseconds, which are the client's."""


class Connection:
    """One HTTP connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        if self._streams is not None and self._streams[0].at_eof():  # the server closes what is idle for long
            await self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        head = ["Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        writer.write("\r\n".join([f"POST {path} HTTP/1.1", *head, "", ""]).encode() + body)
        status = int((await reader.readline()).split()[1])
        length = 0
        while (line := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, await reader.readexactly(length)

    async def close(self) -> None:
        """Closes it."""
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()
            self._streams = None


async def open_loop(port: int, path: str, bodies: list[bytes], rate: float, seconds: float) -> dict[str, Any]:
    """Requests at `rate` a second."""
    idle: list[Connection] = []
    latencies: list[float] = []
    failures: list[int] = []
    started = time.perf_counter() + 0.2

    async def one(number: int) -> None:
        due = started + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter() - TIMER_SECONDS))
        while time.perf_counter() < due:
            await asyncio.sleep(0)
        connection = idle.pop() if idle else Connection(port)
        try:
            status, _ = await connection.post(path, bodies[number % len(bodies)])
        except (OSError, asyncio.IncompleteReadError, LookupError):
            failures.append(0)
            return
        latencies.append(time.perf_counter() - due)
        if status != 200:
            failures.append(status)
        idle.append(connection)

    await asyncio.gather(*(one(number) for number in range(int(rate * seconds))))
    for connection in idle:
        await connection.close()
    return {"latencies": latencies, "failures": failures}


async def closed_loop(
    port: int, path: str, bodies: list[bytes], connections: int, seconds: float
) -> dict[str, Any]:
    """As many requests as the server answers."""
    latencies: list[float] = []
    failures: list[int] = []
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        connection = Connection(port)
        while time.perf_counter() < end:
            begun = time.perf_counter()
            status, _ = await connection.post(path, bodies[number % len(bodies)])
            number += connections
            latencies.append(time.perf_counter() - begun)
            if status != 200:
                failures.append(status)
        await connection.close()

    await asyncio.gather(*(client(number) for number in range(connections)))
    return {"latencies": latencies, "failures": failures, "per_second": len(latencies) / seconds}


def main() -> None:
    """Prints one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--bodies", type=Path, required=True, help="a JSON list of bodies, sent in turn")
    parser.add_argument("--rate", type=float, help="requests a second; without it, as many as are answered")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    bodies = [json.dumps(body).encode() for body in json.loads(options.bodies.read_text())]
    if options.rate:
        outcome = asyncio.run(open_loop(options.port, options.path, bodies, options.rate, options.seconds))
    else:
        outcome = asyncio.run(
            closed_loop(options.port, options.path, bodies, options.connections, options.seconds)
        )
    found = np.array(outcome.pop("latencies") or [np.nan]) * 1e3
    outcome |= {f"p{share:g}": float(np.percentile(found, share)) for share in (50, 95, 99, 99.9)}
    outcome["requests"] = len(found)
    outcome["within_3_times_p50"] = float(np.mean(found <= 3 * np.median(found)))
    outcome["failures"] = len(outcome["failures"])
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
