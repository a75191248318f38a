"""What reading training rows costs: the second epoch from Parquet and from shards, alone and under a small model.

    python benchmarks/input_pipeline.py            3 rounds over 1,000,000 Criteo-like rows: about 3 minutes
    python benchmarks/input_pipeline.py --quick    1 round over 100,000 rows: to see that everything runs

Alone: batches are made and thrown away, as fast as they come. The small model is a logistic regression over the same 39
features, whose steps are short, so that reading shows. Rounds alternate; the first epoch, in which files come into the
memory of the system and the model is compiled, is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import folder_last  # noqa: F401
from criteo_like import generate
from loop_easyrec import pipeline
from settings import BATCH

from easyrec.data.prepared.local import Finished, shard_stream
from easyrec.data.prepared.training import training_shards
from easyrec.data.stream import EncodedStream
from easyrec.models.build import network_of
from easyrec.preparation import prepare
from easyrec.training.callbacks import Callback
from easyrec.training.prefetch import BatchStream
from easyrec.training.trainer import Trainer

Times = tuple[float, float]


class SecondEpoch(Callback):
    """Wall and CPU seconds from the end of the first epoch to that of the second."""

    def __init__(self) -> None:
        self.ends: list[Times] = []

    def on_epoch_end(self, epoch: int, examples: int) -> None:
        """Looks at the clock."""
        self.ends.append((time.perf_counter(), time.process_time()))

    @property
    def seconds(self) -> Times:
        """Of the second epoch."""
        (wall, cpu), (later_wall, later_cpu) = self.ends[:2]
        return later_wall - wall, later_cpu - cpu


def alone(stream: BatchStream) -> Times:
    """Seconds for the batches of the second epoch."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in stream.batches(1):
        pass
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Generates the data, measures, reports."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="1 round over 100,000 rows")
    parser.add_argument("--data", type=Path, help="folder the data are kept in; a temporary one unless given")
    options = parser.parse_args()
    rows, rounds = (100_000, 1) if options.quick else (options.rows, options.rounds)
    with tempfile.TemporaryDirectory() as temporary:
        data = options.data or Path(temporary)
        generate(data, rows, min(50_000, rows))
        folder = Path(temporary)
        file = folder / "pipeline.yaml"
        file.write_text(pipeline(data, seed=0, epochs=2), encoding="utf-8")
        prepared = prepare(file, ["model={type: logistic_regression}"], run=folder / "run")
        config, bound, encoder = prepared.config, prepared.data, prepared.encoder
        shards = training_shards(config, bound, encoder, str(folder / "shards"))
        streams: dict[str, BatchStream] = {
            "parquet": EncodedStream(
                bound.train, encoder.encode_table, BATCH, config.data.shuffle_buffer, config.training.seed
            ),
            "shards": shard_stream(config, shards, Finished()),
        }
        found: dict[tuple[str, str], list[Times]] = {}
        for _ in range(rounds + 1):  # the first one warms up
            for name, stream in streams.items():
                found.setdefault(("alone", name), []).append(alone(stream))
        for number in range(rounds):
            for name, stream in streams.items():
                clock = SecondEpoch()
                network = network_of(config, encoder, {})
                trainer = Trainer(
                    network,
                    config.training,
                    folder / f"{name}-{number}",
                    rows=bound.train.num_rows,
                    callbacks=[clock],
                )
                trainer.fit(stream)
                found.setdefault(("logistic regression", name), []).append(clock.seconds)
        for (what, name), times in found.items():
            chosen = times[1:] if what == "alone" else times
            wall, cpu = (statistics.median(column) for column in zip(*chosen, strict=True))
            print(
                f"{what:<20}{name:<9}{rows / wall:>12,.0f} examples/s{1e6 * cpu / rows:>8.2f} µs of CPU an example",
                flush=True,
            )


if __name__ == "__main__":
    main()
