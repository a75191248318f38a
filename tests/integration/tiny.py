"""A tiny world of films: seeded interactions with a taste to learn, item and user tables, and a pipeline on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

USERS, ITEMS, ROWS = 30, 40, 1500
GENRES = ("comedy", "drama", "horror", "western")


def films(folder: Path, seed: int = 0, rows: int = ROWS, users: int = USERS, items: int = ITEMS) -> Path:
    """Writes `train.parquet`, `eval.parquet`, `movies.parquet` and `users.parquet`; gives the folder back.

    A user likes a movie when its first genre is the user's favourite, with some noise; times increase row by row, two
    rows at a time sharing one.
    """
    random = np.random.default_rng(seed)
    first, second = random.integers(0, len(GENRES), items), random.integers(0, len(GENRES), items)
    favourite = random.integers(0, len(GENRES), users)
    user, item = random.integers(0, users, rows), random.integers(0, items, rows)
    liked = (first[item] == favourite[user]) ^ (random.random(rows) < 0.1)
    interactions = pd.DataFrame(
        {
            "user_id": user + 100,
            "movie_id": item + 1,
            "rating": np.where(liked, random.integers(4, 6, rows), random.integers(1, 4, rows)).astype(
                "float32"
            ),
            "timestamp": pd.to_datetime(1_000_000_000 + np.arange(rows) // 2 * 60, unit="s", utc=True),
            "device": random.choice(["phone", "tv"], rows),
            "watched": random.random(rows).astype("float32"),
        }
    )
    movies = pd.DataFrame(
        {
            "movie_id": np.arange(items) + 1,
            "title": [f"Film {number}" for number in range(items)],
            "genres": [f"{GENRES[one]}|{GENRES[two]}" for one, two in zip(first, second, strict=True)],
            "year": random.integers(1950, 2020, items),
        }
    )
    people = pd.DataFrame(
        {
            "user_id": np.arange(users) + 100,
            "age": np.where(random.random(users) < 0.1, np.nan, random.integers(18, 80, users)),
            "city": random.choice(["Oslo", "Turin", "Lima"], users),
        }
    )
    cut = rows * 4 // 5
    folder.mkdir(parents=True, exist_ok=True)
    interactions[:cut].to_parquet(folder / "train.parquet", index=False)
    interactions[cut:].to_parquet(folder / "eval.parquet", index=False)
    movies.to_parquet(folder / "movies.parquet", index=False)
    people.to_parquet(folder / "users.parquet", index=False)
    return folder


def pipeline(data: Path, output: Path, **parts: Any) -> dict[str, Any]:
    """A DeepFM on the films with a user and an item table, a history and a tag list; `parts` replace whole parts."""
    return {
        "name": "films",
        "data": {
            "train": str(data / "train.parquet"),
            "eval": str(data / "eval.parquet"),
            "keys": {"user": "user_id", "item": "movie_id", "time": "timestamp"},
            "tables": {"item": str(data / "movies.parquet"), "user": str(data / "users.parquet")},
        },
        "features": {
            "user_id": "id",
            "movie_id": "id",
            "genres": {"type": "tags", "separator": "|"},
            "year": {"type": "number", "buckets": 4},
            "age": {"type": "number"},
            "device": "id",
            "recent": {"type": "sequence", "of": "movie_id", "history": {"where": "rating >= 4", "last": 5}},
        },
        "model": {"type": "deepfm", "hidden_units": [8]},
        "tasks": {"liked": {"type": "binary", "label": "rating >= 4"}},
        "embedding": {"dim": 4},
        "training": {
            "batch_size": 64,
            "epochs": 2,
            "jit_compile": False,
            "log_every": 2,
            "optimizer": {"dense": {"learning_rate": 0.01}, "embedding": {"learning_rate": 0.2}},
        },
        "evaluation": {"resamples": 0},
        "output": str(output),
        **parts,
    }
