"""What all loops share: the model's sizes, the optimizers, and how an outcome is handed to the driver."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

BATCH = 4096
DIM = 16
HIDDEN = (256, 128, 64)
LEARNING_RATE = 1e-3
ADAGRAD = {"learning_rate": 0.02, "initial_accumulator": 1e-8, "epsilon": 1e-10}


@dataclass(frozen=True)
class Outcome:
    """What one training did.

    Attributes:
        examples: Examples trained in the time measured: all but those of the first step, in which models compile.
        seconds: Wall time of those.
        cpu_seconds: CPU time of the process in that time, all threads.
        auc: On the test rows.
        peak_bytes: Most resident memory of the process, when training ended.
        wait_share: Share of the time that the step waited for input, if known.
    """

    examples: int
    seconds: float
    cpu_seconds: float
    auc: float
    peak_bytes: int
    wait_share: float | None = None


def arguments(description: str | None) -> argparse.Namespace:
    """The command line of a loop."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.parquet and test.parquet")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def finish(outcome: Outcome) -> None:
    """Prints the outcome as the last line, for the driver."""
    print(json.dumps(asdict(outcome)), flush=True)
