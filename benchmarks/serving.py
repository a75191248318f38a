"""Latency, throughput, start and memory of the service, under load from a second process.

    python benchmarks/serving.py                       about 6 minutes
    python benchmarks/serving.py --quick               about 2 minutes: to see that everything runs
    python benchmarks/serving.py --items 1000000 --bundles FOLDER      keeps the bundles for the next time

A DeepFM with 40 features (24 text categories and keys, 16 numbers, a history of 50, tags; random weights) serves from
one process on one core; the load comes from another process on the other cores, at fixed rates whatever becomes of the
requests before (an open loop). Each request has 500 candidates, which it names ("rank") or the service finds among all
items ("recommend"), and asks for the best 20.
Then 2,000 events a second are posted, 100 in each request, and counted in the log on disk.
All runs of one table follow each other, so that ratios compare the same machine at the same time.

    plain         a FastAPI handler that calls the SavedModel with one named tensor per feature
    tensorflow    the service with `runtime: tensorflow`
    litert        the service with `runtime: litert`

TensorFlow's C library computes for `tensorflow`, its Python for `plain`, as people have it today.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from easyrec.export.manifest import read_manifest, write_manifest

HERE = Path(__file__).resolve().parent
CANDIDATES, USERS, BODIES = 500, 20_000, 200
EVENTS_A_SECOND, EVENTS_A_REQUEST = 2000, 100
PORT = 8765
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
MIB = 1 << 20


def environment() -> dict[str, str]:
    """Of a child process."""
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, **QUIET, "PYTHONPATH": path}


def pinned(process: subprocess.Popen[str], cores: list[int]) -> None:
    """Keeps a process on some cores."""
    psutil.Process(process.pid).cpu_affinity(cores)


def write_bundles(folder: Path, items: int) -> list[Path]:
    """Two versions of the bundle, unless they are there."""
    bundles = [folder / f"deepfm-{items}-v{version}" for version in (1, 2)]
    if not (bundles[0] / "manifest.json").exists():
        print(f"writing {bundles[0]} ...", flush=True)
        script = [sys.executable, str(HERE / "serving_bundle.py"), str(bundles[0]), "--items", str(items)]
        arguments = ["--users", str(USERS), "--version", "1", "--litert"]
        subprocess.run([*script, *arguments], check=True, env=environment(), capture_output=True)
    if not bundles[1].exists():
        shutil.copytree(bundles[0], bundles[1])
        write_manifest(bundles[1], read_manifest(bundles[1]).model_copy(update={"version": "2"}))
    return bundles


def write_bodies(folder: Path, items: int) -> dict[str, Path]:
    """Bodies of requests: to rank given items, and to recommend."""
    random = np.random.default_rng(0)
    context = {"device": "tv", "hour": 3}
    bodies: dict[str, list[dict[str, Any]]] = {"rank": [], "recommend": []}
    for _ in range(BODIES):
        user = str(random.integers(0, USERS))
        candidates = [str(item) for item in random.integers(0, items, CANDIDATES)]
        bodies["rank"].append({"user_id": user, "item_ids": candidates, "n": 20, "context": context})
        bodies["recommend"].append({"user_id": user, "n": 20, "context": context})
    paths = {}
    for name, found in bodies.items():
        paths[name] = folder / f"{name}.json"
        paths[name].write_text(json.dumps(found))
    return paths


def write_events(folder: Path, items: int, seconds: float) -> Path:
    """Bodies of requests that post events, each event once."""
    random = np.random.default_rng(1)
    requests = int(seconds * EVENTS_A_SECOND / EVENTS_A_REQUEST)
    numbers = iter(range(requests * EVENTS_A_REQUEST))
    bodies = [
        [
            {
                "event_id": f"event-{next(numbers)}",
                "type": "click",
                "user_id": str(random.integers(0, USERS)),
                "item_id": str(random.integers(0, items)),
                "position": 1 + place % 20,
            }
            for place in range(EVENTS_A_REQUEST)
        ]
        for _ in range(requests)
    ]
    path = folder / "events.json"
    path.write_text(json.dumps(bodies))
    return path


def logged_events(settings: Path) -> int:
    """Events on disk, each counted once."""
    found = set()
    for segment in Path(json.loads(settings.read_text())["data"]).glob("events/*/*.jsonl"):
        for line in segment.read_bytes().splitlines():
            record = json.loads(line)
            if record["kind"] == "event":
                found.add(record["event_id"])
    return len(found)


def settings_file(folder: Path, bundle: Path, runtime: str) -> Path:
    """Settings of the service: 500 candidates from popularity and from what goes with the user's latest items."""
    data = Path(tempfile.mkdtemp(dir=folder))
    sources = {
        "popular": {"type": "popularity", "n": CANDIDATES},
        "similar": {"type": "item_to_item", "n": 100},
    }
    settings = {
        "models": [str(bundle)],
        "runtime": runtime,
        "port": PORT,
        "data": str(data),
        "scenes": {
            "home": {
                "sources": sources,
                "filters": {"seen": {"type": "seen"}},
                "merge": {"limit": CANDIDATES},
                "deadline_ms": 2000,
            }
        },
    }
    path = data / "settings.json"
    path.write_text(json.dumps(settings))
    return path


@contextmanager
def serving(
    command: list[str], log: Path, begin: Callable[[subprocess.Popen[str]], None] = lambda process: None
) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """A server on the first core; yields it with the seconds from start to ready. `begin` is called at once.

    `-P`, because this script's folder has a module called as the package that serves.
    """
    begun = time.perf_counter()
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", *command], stdout=output, stderr=output, text=True, env=environment()
        )
    pinned(process, [0])
    try:
        begin(process)
        while not ready():
            if process.poll() is not None or time.perf_counter() - begun > 120:
                sys.exit(f"{command[0]} did not start:\n{log.read_text()[-4000:]}")
            time.sleep(0.05)
        yield process, time.perf_counter() - begun
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def ready() -> bool:
    """Whether the server answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health/ready", timeout=1) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def load(path: str, bodies: Path, seconds: float, rate: float | None = None) -> subprocess.Popen[str]:
    """Begins to send requests from the other cores."""
    arguments = ["--port", str(PORT), "--path", path, "--bodies", str(bodies), "--seconds", str(seconds)]
    arguments += [] if rate is None else ["--rate", str(rate)]
    script = [sys.executable, str(HERE / "serving_load.py"), *arguments]
    process = subprocess.Popen(script, stdout=subprocess.PIPE, text=True, env=environment())
    pinned(process, list(range(1, os.cpu_count() or 2)) or [0])
    return process


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the load process found."""
    output, _ = process.communicate()
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


def show(name: str, what: str, found: dict[str, Any]) -> None:
    """One row of the table."""
    times = "  ".join(f"{found[share]:8.1f}" for share in ("p50", "p95", "p99", "p99.9"))
    counts = f"{found['requests']:>10}{found['failures']:>9}{100 * found['within_3_times_p50']:>10.2f}"
    print(f"{name:<12}{what:<30}{times}{counts}", flush=True)


def memory(process: subprocess.Popen[str]) -> str:
    """What the process has for itself, and what of files it has mapped."""
    sizes = {}
    for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size = line.split()[:2]
        sizes[name.rstrip(":")] = int(size) * 1024
    own, resident = sizes["Anonymous"] / MIB, sizes["Rss"] / MIB
    return f"{own:.0f} MiB of its own, {resident:.0f} MiB resident with mapped files"


def events(name: str, process: subprocess.Popen[str], settings: Path, bodies: Path, seconds: float) -> None:
    """Posts events at a fixed rate, and looks for them on disk."""
    before = sum(psutil.Process(process.pid).cpu_times()[:2])
    found = outcome(load("/v1/events", bodies, seconds, EVENTS_A_SECOND / EVENTS_A_REQUEST))
    busy = sum(psutil.Process(process.pid).cpu_times()[:2]) - before
    show(name, f"{EVENTS_A_SECOND:,} events a second", found)
    sent = found["requests"] * EVENTS_A_REQUEST
    print(
        f"{name:<12}{logged_events(settings):,} of {sent:,} events are on disk; {100 * busy / seconds:.0f} % of a core"
    )


def main() -> None:
    """Runs everything and prints tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rates", type=float, nargs="+", default=[10.0, 30.0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="3 seconds each")
    parser.add_argument("--bundles", type=Path, help="folder to keep the bundles in")
    parser.add_argument("--only", nargs="+", default=["plain", "tensorflow", "litert"])
    options = parser.parse_args()
    seconds = 3.0 if options.quick else options.seconds
    with tempfile.TemporaryDirectory(prefix="easyrec-serving-") as temporary:
        folder = Path(temporary)
        bundles = write_bundles(options.bundles or folder, options.items)
        bodies = write_bodies(folder, options.items)
        costs = {}
        print(
            f"{options.items:,} items, {CANDIDATES} candidates a request, one worker on one core; milliseconds"
        )
        heads = f"{'p50':>8}{'p95':>10}{'p99':>10}{'p99.9':>10}{'requests':>10}{'failed':>9}{'< 3 p50 %':>11}"
        print(f"{'':<42}{heads}")
        for name in options.only:
            costs[name] = measure(name, folder, bundles, bodies, options.rates, seconds, options.items)
        for name in [name for name in costs if name != "plain" and "plain" in costs]:
            ratio = costs["plain"] / costs[name]
            print(f"{name} answers {ratio:.1f} times as many requests as plain in the same processor time")


def measure(
    name: str,
    folder: Path,
    bundles: list[Path],
    bodies: dict[str, Path],
    rates: list[float],
    seconds: float,
    items: int,
) -> float:
    """All measurements of one server; returns the milliseconds of processor time that a request to rank takes."""
    plain = name == "plain"
    settings = settings_file(folder, bundles[0], "auto" if plain else name)
    rank = "/rank" if plain else "/v1/recommend"
    if plain:
        command = [str(HERE / "serving_plain.py"), str(bundles[0]), str(PORT)]
    else:
        command = [str(HERE / "serving_server.py"), str(settings), str(bundles[1])]
    log = folder / f"{name}.log"
    with serving(command, log) as (process, started):
        outcome(load(rank, bodies["rank"], 2.0))  # warm
        for rate in rates:
            show(name, f"rank, {rate:g} a second", outcome(load(rank, bodies["rank"], seconds, rate)))
        before = sum(psutil.Process(process.pid).cpu_times()[:2])
        most = outcome(load(rank, bodies["rank"], seconds))
        busy = sum(psutil.Process(process.pid).cpu_times()[:2]) - before
        show(name, "rank, as many as it can", most)
        if not plain:
            outcome(load("/v1/recommend", bodies["recommend"], 2.0))
            for rate in rates:
                found = outcome(load("/v1/recommend", bodies["recommend"], seconds, rate))
                show(name, f"recommend, {rate:g} a second", found)
            print(f"{name:<12}before swaps: {memory(process)}")
            running = load("/v1/recommend", bodies["recommend"], 2 * seconds, rates[-1])
            swaps: list[str] = []
            while running.poll() is None:  # one swap after the other
                process.send_signal(signal.SIGUSR1)
                asked = len(swaps)
                while running.poll() is None and len(swaps) == asked:
                    time.sleep(1.0)
                    swaps = [line for line in log.read_text().splitlines() if "active after" in line]
            found = outcome(running)
            show(name, f"recommend, {rates[-1]:g} a second, swaps", found)
            print(f"{name:<12}{len(swaps)} swaps; {' '.join(swaps[-1:])}")
            events(name, process, settings, write_events(folder, items, seconds), seconds)
        each = 1e3 * busy / most["requests"]
        print(f"{name:<12}{most['per_second']:.0f} rankings a second, {each:.1f} ms of processor time each")
        print(f"{name:<12}ready after {started:.1f} s; {memory(process)}", flush=True)
    return each


if __name__ == "__main__":
    main()
