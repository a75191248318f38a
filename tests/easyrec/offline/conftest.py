"""Two tiny runs on the same rows, trained once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import easyrec
import evaluation.report.layout


@dataclass(frozen=True)
class TwoRuns:
    """Folders: a run of a model that sees everything, and of one that sees users only."""

    full: Path
    poor: Path
    data: Path


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> TwoRuns:
    folder = tmp_path_factory.mktemp("two")
    random = np.random.default_rng(0)
    rows = 1500
    user, item = random.integers(0, 40, rows), random.integers(0, 30, rows)
    quality, price = random.normal(size=30), random.gamma(2.0, 10.0, rows)
    chance = 1 / (1 + np.exp(-2.5 * quality[item] + 0.05 * (price - 20)))
    table = pd.DataFrame(
        {
            "user": [f"u{code}" for code in user],
            "item": item,
            "time": np.arange(rows),
            "price": price,
            "noise": random.normal(size=rows),
            "liked": (random.random(rows) < chance).astype(int),
        }
    )
    table[:1100].to_parquet(folder / "train.parquet")
    table[1100:].to_parquet(folder / "eval.parquet")
    pd.DataFrame({"item": np.arange(30), "kind": np.arange(30) % 4}).to_parquet(folder / "items.parquet")
    features = {
        "full": {"user": "id", "item": "id", "kind": "id", "price": "number", "noise": "number"},
        "poor": {"user": "id", "kind": "id"},
    }
    with pytest.MonkeyPatch.context() as patch:
        # Drawings take longer than these trainings, and have tests of their own.
        patch.setattr(evaluation.report.layout, "inline_svg", lambda figure, name, label: "<svg></svg>")
        for name, chosen in features.items():
            easyrec.train(
                {
                    "name": name,
                    "data": {
                        "train": str(folder / "train.parquet"),
                        "eval": str(folder / "eval.parquet"),
                        "keys": {"user": "user", "item": "item", "time": "time"},
                        "tables": {"item": str(folder / "items.parquet")},
                    },
                    "features": chosen,
                    "model": {"type": "deepfm", "hidden_units": [8]},
                    "tasks": {"liked": {"type": "binary"}},
                    "training": {"batch_size": 64, "epochs": 4},
                    "evaluation": {"resamples": 40, "k": [5, 10]},
                    "output": str(folder / "runs"),
                }
            )
    return TwoRuns(folder / "runs" / "full", folder / "runs" / "poor", folder)
