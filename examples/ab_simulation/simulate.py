"""Simulated users visit a running service under an experiment; the report is compared with the truth.

python examples/ab_simulation/simulate.py --folder /tmp/simulation
"""

import argparse
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from evaluation.abtest.analysis.engines import duckdb_connection
from evaluation.abtest.analysis.interleaved import InterleavedResult, analyze_interleaved
from evaluation.abtest.analysis.results import ExperimentResult
from evaluation.abtest.analysis.run import Logs, analyze
from evaluation.abtest.analysis.tables import open_events, open_exposures
from evaluation.abtest.loading import load_experiments
from evaluation.abtest.report import write_experiment_report

HERE = Path(__file__).parent
ITEMS, GENRES, SHOWN = 60, 6, 8
EASYREC = [sys.executable, "-c", "from easyrec.cli.main import main; main()"]


class World:
    """Tastes, and what follows from them.

    Args:
        users: Number of users.
        seed: Of everything that is random.
    """

    def __init__(self, users: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.genres = np.arange(ITEMS) % GENRES
        quality = self.random.normal(0, 0.5, ITEMS)
        tastes = self.random.normal(0, 1.2, (users, GENRES))
        self.likes = 1 / (1 + np.exp(-(quality + tastes[:, self.genres] - 1.5)))
        """Chance that a user clicks an item that is looked at, float64 [users, items]."""
        self.attention = 1 / np.arange(1, SHOWN + 1) ** 0.7
        """Chance that a place is looked at."""

    def write_history(self, folder: Path, rows: int) -> None:
        """Past clicks on items shown at random, to train on."""
        users = self.random.integers(0, len(self.likes), rows)
        items = self.random.integers(0, ITEMS, rows)
        clicked = self.random.random(rows) < self.likes[users, items]
        log = pd.DataFrame(
            {"user_id": users, "item_id": items, "time": np.arange(rows), "clicked": clicked.astype(int)}
        )
        log[: rows * 9 // 10].to_parquet(folder / "train.parquet", index=False)
        log[rows * 9 // 10 :].to_parquet(folder / "eval.parquet", index=False)
        items_table = pd.DataFrame(
            {"item_id": range(ITEMS), "genre": [f"genre {one}" for one in self.genres]}
        )
        items_table.to_parquet(folder / "items.parquet", index=False)

    def expected_clicks(self, user: int, items: list[int]) -> float:
        """On a list."""
        return float((self.attention[: len(items)] * self.likes[user, items]).sum())

    def clicks(self, user: int, items: list[int]) -> list[int]:
        """What a user clicks on a list."""
        chance = self.attention[: len(items)] * self.likes[user, items]
        return [item for item, one in zip(items, chance, strict=True) if self.random.random() < one]


@dataclass
class Service:
    """A running service.

    Attributes:
        url: Where it listens.
    """

    url: str

    def call(self, path: str, body: Any = None) -> Any:
        """Sends a request and returns the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path,
            data,
            {"content-type": "application/json"},
            method="GET" if data is None else "POST",
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def visit(self, world: World, user: int) -> None:
        """One visit: a list is asked for and looked at."""
        answer = self.call("/v1/recommend", {"user_id": str(user), "scene": "home"})
        clicked = world.clicks(user, [item["item_id"] for item in answer["items"]])
        if clicked:
            common = {"type": "click", "user_id": str(user), "request_id": answer["request_id"]}
            self.call(
                "/v1/events",
                [
                    {**common, "event_id": f"{answer['request_id']}-{item}", "item_id": item}
                    for item in clicked
                ],
            )

    def expected_ctr(self, world: World, scene: str) -> float:
        """The true CTR if everybody had a scene."""
        total = 0.0
        for user in range(len(world.likes)):
            answer = self.call("/v1/recommend", {"user_id": str(user), "scene": scene})
            total += world.expected_clicks(user, [item["item_id"] for item in answer["items"]])
        return total / (SHOWN * len(world.likes))


@contextmanager
def running(folder: Path) -> Iterator[Service]:
    """The service as a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *EASYREC,
        "serve",
        "runs/films",
        "--scene",
        "service.yaml",
        "--port",
        str(port),
        "--data",
        "data",
    ]
    with (folder / "service.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        service = Service(f"http://127.0.0.1:{port}")
        try:
            _wait(service, process, folder)
            yield service
        finally:
            process.terminate()
            process.wait(60)


def _wait(service: Service, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    for _ in range(1200):
        if process.poll() is not None:
            raise SystemExit(f"the service ended:\n{(folder / 'service.log').read_text()[-3000:]}")
        try:
            service.call("/health/ready")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the service does not become ready")


@dataclass
class Outcome:
    """What was true and what was found.

    Attributes:
        truth: Relative effect on CTR.
        split: Of the split.
        mixed: Of the interleaved lists.
    """

    truth: float
    split: ExperimentResult
    mixed: InterleavedResult


def simulate(folder: Path, *, users: int, visits: int, seed: int = 0) -> Outcome:
    """Runs the whole simulation.

    Args:
        folder: Where everything is written.
        users: Number of users.
        visits: Visits of each, on average.
        seed: Of everything that is random.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("pipeline.yaml", "service.yaml", "experiments.yaml"):
        shutil.copy(HERE / name, folder)
    world = World(users, seed)
    world.write_history(folder, 100 * users)
    subprocess.run([*EASYREC, "train", "pipeline.yaml"], cwd=folder, check=True)
    with running(folder) as service:
        truth = service.expected_ctr(world, "ranked") / service.expected_ctr(world, "control") - 1
        _visits(service, world, visits)
        _mix(folder / "experiments.yaml")
        service.call("/v1/experiments/reload", {})
        _visits(service, world, 1)
    with duckdb_connection() as connection:
        logs = Logs(
            open_exposures(connection, folder / "data" / "exposures"),
            open_events(connection, folder / "data" / "events"),
        )
        experiments = load_experiments(folder / "experiments.yaml")
        split = analyze(experiments, "ranked", logs)
        mixed = analyze_interleaved(experiments, "mixed", logs)
    write_experiment_report(folder / "report", split)
    return Outcome(truth, split, mixed)


def _visits(service: Service, world: World, visits: int) -> None:
    for user in range(len(world.likes)):
        for _ in range(1 + world.random.poisson(visits - 1)):
            service.visit(world, user)


def _mix(file: Path) -> None:
    """Stops the split, and mixes lists in its place."""
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    split = values["experiments"]["ranked"]
    mixed = {key: split[key] for key in ("layer", "percent", "when", "variants", "metrics")}
    values["experiments"]["mixed"] = {**mixed, "status": "running", "interleave": True}
    # What users do from now on is not the split's doing.
    split |= {"status": "stopped", "released": True, "end": datetime.now(UTC).isoformat()}
    file.write_text(yaml.safe_dump(values), encoding="utf-8")


def main() -> None:
    """Runs it and prints what was true beside what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("ab_simulation"))
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--visits", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcome = simulate(options.folder, users=options.users, visits=options.visits, seed=options.seed)
    ctr = outcome.split.metric("ctr").relative
    verdict = outcome.split.verdict
    lines = [
        f"true effect on CTR    {outcome.truth:+.1%}",
        f"found                 {ctr.estimate:+.1%} [{ctr.low:+.1%}, {ctr.high:+.1%}]",
        f"verdict               {verdict.word}: {verdict.sentence}",
        f"interleaving          {outcome.mixed.verdict()}",
        f"report                {options.folder / 'report' / 'experiment.html'}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
