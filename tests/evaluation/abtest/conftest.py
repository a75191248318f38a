"""Logs of simulated experiments: users with tastes of their own, a known effect, and faults to inject."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evaluation.abtest.compilation import compile_assigner
from evaluation.abtest.loading import parse_experiments
from evaluation.abtest.schema import ExperimentsConfig

DAY = 86_400.0
START = 1_767_225_600.0  # 2026-01-01


@dataclass
class Simulated:
    """An experiment's configuration and logs."""

    config: ExperimentsConfig
    exposures: pd.DataFrame
    events: pd.DataFrame
    folder: Path
    dropped: dict[tuple[str, str], int] = field(default_factory=dict)

    def write(self) -> "Simulated":
        """Write both tables as Parquet."""
        for name in ("exposures", "events"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            getattr(self, name).to_parquet(self.folder / name / "part.parquet", index=False)
        return self


def configuration(**analysis: Any) -> ExperimentsConfig:
    """Two layers; the experiment `din` in one and an older one in the other."""
    return parse_experiments(
        {
            "version": 1,
            "layers": {"ranking": {"owns": ["model"]}, "page": {"owns": ["k"]}},
            "experiments": {
                "din": {
                    "layer": "ranking",
                    "hypothesis": "Attention to history raises the click-through rate.",
                    "status": "running",
                    "percent": 100,
                    "variants": {"control": {}, "din": {"overrides": {"model": "din"}}},
                    "metrics": {
                        "goals": ["ctr"],
                        "guardrails": {"latency_p95": 0.1},
                        "secondary": ["revenue", "conversion", "sessions"],
                    },
                    "analysis": {
                        "min_days": 5,
                        "planned_n": 4000,
                        "cuped_days": 7,
                        "segments": ["country"],
                        **analysis,
                    },
                },
                "k": {
                    "layer": "page",
                    "status": "running",
                    "percent": 100,
                    "variants": {"control": {}, "k": {"overrides": {"k": 5}}},
                },
            },
        }
    )


def simulate(
    folder: Path, *, users: int = 4000, lift: float = 0.0, days: int = 8, seed: int = 0, **analysis: Any
) -> Simulated:
    """Logs of an experiment whose variant multiplies the click rate by 1 + lift."""
    config = configuration(**analysis)
    random = np.random.default_rng(seed)
    assigner = compile_assigner(config)
    decisions = [assigner.assign({"user_id": f"u{seed}-{n}"}, {}, START) for n in range(users)]
    taste = random.beta(3, 12, users)
    arrival = START + days * DAY * random.random(users) ** 2
    country = random.choice(["DE", "NO", "FR"], users)
    visits = 1 + random.poisson(2, users)
    who = np.repeat(np.arange(users), visits)
    at = arrival[who] + np.where(
        np.arange(len(who)) == np.searchsorted(who, who), 0, random.exponential(DAY, len(who))
    )
    keep = at < START + days * DAY
    who, at = who[keep], at[keep]
    request = np.array([f"r{n}" for n in range(len(who))])
    common = {
        "kind": "exposure",
        "timestamp": at,
        "request_id": request,
        "unit_type": "user_id",
        "unit_id": [f"u{seed}-{n}" for n in who],
        "phase": 1,
        "forced": False,
        "could_differ": True,
        "fallback": random.random(len(who)) < 0.01,
        "latency_ms": random.gamma(4, 5, len(who)),
        "country": country[who],
    }
    layers = []
    for place, layer in enumerate(("ranking", "page")):
        chosen = [one.assignments[place] for one in decisions]
        layers.append(
            pd.DataFrame(
                {
                    **common,
                    "layer": layer,
                    "experiment": chosen[0].experiment,
                    "variant": np.array([one.variant for one in chosen])[who],
                    "bucket": np.array([one.bucket for one in chosen])[who],
                }
            )
        )
    treated = layers[0]["variant"].to_numpy() == "din"
    rate = np.clip(taste[who] * np.where(treated, 1 + lift, 1), 0, 1)
    events = [_events(random, who, at, request, rate, seed)]
    before = np.repeat(np.arange(users), 2 + random.poisson(1, users))
    old = arrival[before] - random.random(len(before)) * 6.9 * DAY
    events.append(
        _events(random, before, old, np.array([f"old{n}" for n in range(len(before))]), taste[before], seed)
    )
    return Simulated(
        config, pd.concat(layers, ignore_index=True), pd.concat(events, ignore_index=True), folder
    )


def _events(random, who, at, request, rate, seed):
    shown = 5
    clicks = random.binomial(shown, rate)
    bought = random.random(len(who)) < 0.05
    parts = [
        (np.repeat(np.arange(len(who)), shown), "impression"),
        (np.repeat(np.arange(len(who)), clicks), "click"),
        (np.flatnonzero(bought), "purchase"),
    ]
    rows = np.concatenate([place for place, _ in parts])
    kinds = np.concatenate([np.full(len(place), kind) for place, kind in parts])
    return pd.DataFrame(
        {
            "type": kinds,
            "timestamp": at[rows] + 1 + random.random(len(rows)) * 20,
            "user_id": [f"u{seed}-{n}" for n in who[rows]],
            "item_id": random.integers(0, 50, len(rows)).astype(str),
            "request_id": request[rows],
            "session_id": [f"s{n}" for n in at[rows] // 3600],
            "value": np.where(kinds == "purchase", random.gamma(2, 20, len(rows)), np.nan),
        }
    )


@pytest.fixture(scope="session")
def simulated(tmp_path_factory):
    """The function that simulates, with a folder of its own each time."""

    def make(**settings: Any) -> Simulated:
        return simulate(tmp_path_factory.mktemp("experiment"), **settings)

    return make
