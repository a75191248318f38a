"""Where the time of one ranking goes, without HTTP: user, items, embeddings, arithmetic.

python benchmarks/serving_breakdown.py BUNDLE --runtime litert        # a bundle of serving_bundle.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folder_last  # noqa: F401
import numpy as np
import psutil

from serving.models.served import load_served_model


def timed(call: Callable[[], Any], repeats: int) -> str:
    """Fastest and median milliseconds of a call."""
    call()
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - begun))
    return f"{min(taken):8.2f} {np.median(taken):8.2f}"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--runtime", default="litert", choices=["litert", "tensorflow"])
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=100)
    options = parser.parse_args()
    begun = time.perf_counter()
    model = load_served_model(options.bundle, options.runtime)
    loaded = time.perf_counter() - begun
    memory = psutil.Process().memory_full_info()
    print(f"{options.runtime}: loaded in {loaded:.2f} s; {memory.uss >> 20} MiB unique to the process")
    user = {**(model.known_user("42") or {}), "device": "tv", "hour": 3}
    user["recent"] = [str(7 * n) for n in range(50)]
    encoded = model.user(user)
    rows = np.random.default_rng(0).integers(0, len(model.catalogue), options.candidates)
    ids = model.catalogue.ids.take(rows)
    parts: dict[str, Callable[[], Any]] = {
        "columns of a known user": lambda: model.known_user("42"),
        "encode the user": lambda: model.user(user),
        f"rows of {len(rows)} keys": lambda: model.catalogue.rows(ids),
        f"encoded features of {len(rows)} items": lambda: model.catalogue.encoded(rows),
        f"score {len(rows)} items, the line above included": lambda: model.score(encoded, rows),
        "score 100 items": lambda: model.score(encoded, rows[:100]),
        "score 1 item": lambda: model.score(encoded, rows[:1]),
        "properties of 20 items": lambda: model.catalogue.properties(rows[:20]),
    }
    print(f"{'ms':<50}{'fastest':>8} {'median':>8}")
    for name, call in parts.items():
        print(f"{name:<50}{timed(call, options.repeats)}")


if __name__ == "__main__":
    main()
